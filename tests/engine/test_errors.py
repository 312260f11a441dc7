"""Errors travel between processes as they are."""

from __future__ import annotations

import pickle

import pytest

from allocator.errors import (
    AllocatorError,
    AuditFailure,
    Fault,
    Infeasible,
    InvalidInput,
    NoPlanInTime,
    Relaxation,
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
