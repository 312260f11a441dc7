"""Plans on disk: strict JSON, CSV, and files that appear whole or not at all, whatever happens
on the way.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import multiprocessing
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import series
from places import ROOT
from waiting import PATIENCE_S

import allocator
from allocator.domain.plan import JOB_FIELDS, Plan
from allocator.errors import AllocatorError, UsageError
from allocator.io import plans


@cache
def demo() -> Plan:
    """The plan of the demo."""
    return allocator.solve(allocator.read_snapshot(ROOT / "data" / "snapshots" / "demo"))


def result(**more: Any) -> Plan:
    """The plan of the demo with other values, and two numbers that are none."""
    values = {
        "objective_value": 1 / 3,
        "bound": math.inf,
        "gap": math.nan,
        "jobs": dict(demo().jobs),
    }
    return dataclasses.replace(demo(), **(values | more))


def test_json_says_what_the_result_says() -> None:
    """Same document as Plan.to_dict, field by field and in its order, numbers to the last bit,
    inf and nan null.
    """

    def strict(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    read = json.loads(plans.to_json(result()), parse_constant=strict)
    want = result().to_dict() | {"bound": None, "gap": None}
    assert read == want
    assert list(read) == list(want) and list(read["jobs"][0]) == list(JOB_FIELDS)


def test_odd_values_are_plain_json(tmp_path: Path) -> None:
    """Numbers of numpy are JSON numbers; a lone surrogate in a name (from a frame) becomes an
    escape and reads back as itself."""
    jobs = dict(demo().jobs)
    odd = {**jobs, "gpus": [*map(np.int64, jobs["gpus"])]}
    odd["job_id"] = ["a\udc80", *jobs["job_id"][1:]]
    path, _ = plans.write_plan(result(jobs=odd, bound=np.float32(2.5)), tmp_path)
    read = json.loads(path.read_text("utf-8"))
    assert ([j["gpus"] for j in read["jobs"]], read["bound"]) == (jobs["gpus"], 2.5)
    assert read["jobs"][0]["job_id"] == "a\udc80"


def test_write_plan_makes_the_folder_and_leaves_only_the_plan(tmp_path: Path) -> None:
    """Both files, readable for others as the umask says, and nothing else."""
    paths = plans.write_plan(result(), tmp_path / "a" / "b")
    assert [p.name for p in paths] == ["plan.json", "plan.csv"]
    assert names(tmp_path / "a" / "b") == ["plan.csv", "plan.json"]
    (tmp_path / "probe").touch()
    assert paths[0].stat().st_mode == (tmp_path / "probe").stat().st_mode
    assert paths[0].read_text("utf-8") == plans.to_json(result())


def test_what_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    """A file where the folder should be, a folder where a file should be: nothing is written."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "b" / "plan.json").mkdir(parents=True)
    for folder, words in (("file", "a file of that name is in the way"), ("b", "is a folder")):
        with pytest.raises(UsageError, match=words):
            plans.write_plan(result(), tmp_path / folder)
    assert names(tmp_path / "b") == ["plan.json"] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EROFS, "not allowed"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_any_failure_leaves_the_old_plan_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, step: str
) -> None:
    """The disk refuses while the text is synced or put in place: an error in words, the old
    plan, nothing else.
    """
    plans.write_plan(result(), tmp_path)
    before = (tmp_path / "plan.json").read_bytes()

    def refuse(*_args: Any) -> None:
        raise OSError(number, "Input/output error")

    monkeypatch.setattr(plans.os, step, refuse)
    with pytest.raises(AllocatorError, match=words):
        plans.write_plan(result(objective_value=2.0), tmp_path)
    assert (tmp_path / "plan.json").read_bytes() == before
    assert names(tmp_path) == ["plan.csv", "plan.json"]


def die_at(step: int, folder: Path) -> None:
    """Write a plan, and be killed before the step of this number."""
    left = iter(range(1, step))

    def dying(call: Any) -> Any:
        return lambda *a: call(*a) if next(left, 0) else os.kill(os.getpid(), signal.SIGKILL)

    os.fsync, os.replace = dying(os.fsync), dying(os.replace)
    plans.write_plan(result(objective_value=2.0), folder)


@pytest.mark.parametrize("step", series([3, 1, 4], 1))
def test_killed_between_two_writes(tmp_path: Path, step: int) -> None:
    """Killed before the n-th of fsync, fsync, replace, replace: each file is the old one or the
    new one, and whole.
    """
    plans.write_plan(result(), tmp_path)
    child = multiprocessing.get_context("spawn").Process(target=die_at, args=(step, tmp_path))
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode == -signal.SIGKILL
    assert json.loads((tmp_path / "plan.json").read_text("utf-8"))["objective_value"] == 1 / 3
    assert len((tmp_path / "plan.csv").read_text("utf-8").splitlines()) == 13
    plans.write_plan(result(objective_value=3.0), tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text("utf-8"))["objective_value"] == 3.0


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())
