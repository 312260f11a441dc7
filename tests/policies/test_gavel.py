"""Gavel's max-min fairness: its programme worked out by hand, and the rounds that its priorities
lead to.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import given

from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.options.instance_building import compile_round
from allocator.policies.rules.gavel import (
    ThroughputDemand,
    allocate_time,
    equal_shares,
    is_lease_start,
)
from allocator.solvers.base import SolveLimits


def plan(p: Problem) -> list[tuple[str | None, int]]:
    r = decide(p, policy="maxmin")
    return list(zip(r.jobs["pool"], r.jobs["gpus"], strict=True))


def share_of(p: Problem) -> list[list[float]]:
    X, solved = allocate_time(ThroughputDemand.of(compile_round(p, prunes=False)), lambda: math.inf)
    assert solved
    found: list[list[float]] = X.tolist()
    return found


def rates(**speeds: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"model": m, "gpu_type": t, "gpus": 1, "work_per_s": r}
        for m, pair in speeds.items()
        for t, r in zip("AB", pair, strict=True)
    ]


def test_two_jobs_two_types_by_hand() -> None:
    """One GPU of each type. a does 1 and 4, b 1 and 2; on equal shares 2.5 and 1.5, so their terms
    are .4 and 1.6, and 2/3 and 4/3. With y = b's share of B (a has it of A): a = 1.6 - 1.2 y, b =
    2/3 + 2/3 y. Weight 2 for a halves its term: .8 - .6 y = 2/3 + 2/3 y gives y = 2/19, level
    14/19."""
    round_ = """jobs: model=a weight=2 max_gpus=1; model=b max_gpus=1 /
        pools: gpu_type=A gpus=1; gpu_type=B gpus=1"""
    p = problem(**given(round_), rates=rates(a=(1, 4), b=(1, 2)))
    y = 2 / 19
    assert share_of(p)[0] == pytest.approx([y, 1 - y], abs=1e-6)
    assert share_of(p)[1] == pytest.approx([1 - y, y], abs=1e-6)


def test_second_programme_uses_what_the_level_leaves() -> None:
    """4 GPUs of A, 2 of B. Only A for a; b runs on both, 1 and 3: on equal shares (4 + 6) / 6,
    terms .6 and 1.8; a's is 1.5 on A. Both alone reach the whole of their best type: no smaller
    level may idle b: a all of A, b all of B."""
    round_ = """jobs: model=a max_gpus=1 gpu_types=A; model=b max_gpus=1 /
        pools: gpu_type=A gpus=4; gpu_type=B gpus=2"""
    p = problem(**given(round_), rates=rates(a=(1, 1), b=(1, 3)))
    assert share_of(p) == [pytest.approx([1, 0], abs=1e-6), pytest.approx([0, 1], abs=1e-6)]


def test_rounds_alternate() -> None:
    """Two equal jobs, one GPU, rounds of 300 s: the first of two that never ran, then the one that
    has had less; when both have had the same, the one that runs goes on. After every second round
    both have had the same."""
    ran, had = [0.0, 0.0], list[int]()
    for turn in range(6):
        jobs: list[dict[str, Any]] = [{"max_gpus": 1}, {"max_gpus": 1}]
        if had:
            jobs[had[-1]] |= {"state": "running", "pool": "p0", "gpus": 1}
        received = [{"job_id": f"j{j}", "gpu_type": "A", "seconds": s} for j, s in enumerate(ran)]
        p = problem(jobs, [{"gpus": 1}], config={"now_s": 300 * turn}, received=received)
        gpus = [k for _, k in plan(p)]
        had.append(gpus.index(1))
        ran[had[-1]] += 300
        assert sum(gpus) == 1
    assert had == [0, 1, 1, 0, 0, 1]


def test_leases() -> None:
    """Rounds of 60 s make leases of 6: at 360 s the waiting job's turn has come, at 420 s the lease
    goes on and only the free GPU is given away. Rounds of 300 s are a lease each."""
    starts = [t for t in (0, 60, 300, 360, 419, 420) if is_lease_start(t, 60.0)]
    assert starts == [0, 360, 419]
    assert is_lease_start(300, 300.0) and is_lease_start(1000, 600.0)
    round_ = """jobs: state=running pool=p0 gpus=2 requested_gpus=2; requested_gpus=2; /
        pools: gpus=3 / received: job_id=j0 gpu_type=A seconds=300"""
    for now, expected in (
        (360, [(None, 0), ("p0", 2), ("p0", 1)]),
        (420, [("p0", 2), (None, 0), ("p0", 1)]),
    ):
        p = problem(**given(round_), config={"now_s": now, "interval_s": 60})
        assert plan(p) == expected


def test_without_time_shares_are_equal() -> None:
    """No second left: equal shares, said so, and a plan all the same."""
    size = np.array([[1.0, 1.0], [2.0, 0.0]])
    assert equal_shares(size, np.array([2, 1]), np.array([2.0, 1.0])).tolist() == [
        [0.5, 0.5],
        [0.5, 0.0],
    ]
    r = decide(problem([{}, {}]), policy="maxmin", limits=SolveLimits(time_s=0.0))
    assert sum(r.jobs["gpus"]) == 2 and any("equal shares" in w for w in r.warnings)
