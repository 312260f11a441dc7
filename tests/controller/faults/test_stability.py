"""Which jobs a round leaves alone, computed by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from queues import NOW, cluster

from allocator.controller.options import Stability
from allocator.controller.steadiness import (
    find_unpaid_changes,
)
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError

ROWS = (
    f"one,m,{NOW - 100},1000,4,running,a,1\ntwo,m,{NOW - 100},1000,4,running,a,2\n"
    f"idle,m,{NOW - 100},1000,4,queued,,\n"
)


def test_payback() -> None:
    """From 1 to 2 GPUs: rate 1 -> 1.9, pause 30 s. It pays after T with 1.9 (T - 30) > T: T > 63.3
    s; but never in less than an interval (60 s), nor later than the job is done."""
    problem = validate(cluster(ROWS))
    pool, grown = np.array([0, 0, 0]), np.array([2, 2, 4])
    assert find_unpaid_changes(problem, pool, grown, 63.0).tolist() == [True, False, False]
    assert find_unpaid_changes(problem, pool, grown, 64.0).tolist() == [False, False, False]
    shrunk = np.array([1, 1, 0])
    assert not find_unpaid_changes(problem, pool, shrunk, 10.0).any()
    short = dataclasses.replace(
        problem,
        jobs=dataclasses.replace(problem.jobs, remaining_work=np.array([100.0, 100.0, 100.0])),
    )
    assert find_unpaid_changes(short, pool, grown, math.inf).tolist() == [True, False, False]


def test_wrong_rules_are_refused() -> None:
    """Negative or endless seconds."""
    for values in ({"cooldown_s": -1.0}, {"min_run_s": math.inf}, {"cooldown_s": math.nan}):
        with pytest.raises(UsageError):
            Stability(**values)
