"""Errors travel between processes as they are."""

from __future__ import annotations

import pickle
import re
import tomllib

import pytest
from places import ROOT

from allocator.errors import (
    OPTIONAL,
    AllocatorError,
    AuditFailure,
    Fault,
    Infeasible,
    InvalidInput,
    NoPlanInTime,
    Relaxation,
    install_command,
)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput([Fault("jobs.csv", 3, "is wrong"), Fault("pools.csv", None, "is missing")]),
        Infeasible(["quota and guarantee"], [Relaxation("budget_per_hour", "", 100.0, 126.4)]),
        AuditFailure(["pool p holds 9 of 8"]),
        NoPlanInTime("too late"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_survive_pickling(error: AllocatorError) -> None:
    """The same class, message and parts on the other side."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_commands_that_install_name_what_the_project_asks_for() -> None:
    """Each is the requirement of an extra; the name of the project is on no index. What the command
    line, `solve` and the service import is there without any extra.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {tuple(needed) for needed in project["optional-dependencies"].values()}
    assert {(one,) for one in OPTIONAL} <= extras
    assert install_command("psycopg") == "pip install 'psycopg[binary]>=3.1'"
    needed = {re.split(r"[>=<; ]", one)[0] for one in project["dependencies"]}
    assert {"fastapi", "uvicorn"} <= needed
    for path in (ROOT / "allocator").rglob("*.py"):
        assert f"{project['name']}[" not in path.read_text(encoding="utf-8"), path
