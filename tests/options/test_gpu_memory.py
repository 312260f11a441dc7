"""Memory of GPUs: rows of rates.csv that need more are no options; by hand, and against a plain
reading of the rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot
from hypothesis import given, settings, strategies as st

from allocator.api import solve
from allocator.audit import audit
from allocator.domain.problem import Problem
from allocator.options.instance_building import compile_round
from allocator.options.option_table import option_table
from allocator.performance.table import RateTable

A = {"gpu_type": "A"}
TWO_BATCHES = [
    {**A, "gpus": 2, "work_per_s": 3, "batch_size": 32, "accumulation": 2, "memory_gb": 12},
    {**A, "gpus": 2, "work_per_s": 5, "batch_size": 64, "accumulation": 1, "memory_gb": 30},
]
SMALL, LARGE = {"gpus": 4, "memory_gb": 16}, {"gpus": 4, "memory_gb": 40}


def offered(p: Problem) -> dict[tuple[int, int], tuple[float, int]]:
    """{(pool, GPUs): (speed, row)} of the first job."""
    m = option_table(p, RateTable.of(p))
    mine = np.arange(m.start[0], m.start[1])
    return {(int(m.pool[o]), int(m.gpus[o])): (float(m.rate[o]), int(m.row[o])) for o in mine}


def test_the_fastest_row_that_fits_counts() -> None:
    """Batch 64 needs 30 GB: it is there on 40 GB and where memory is not known; 16 GB run batch
    32, at 3 of 5.
    """
    p = problem([{}], [SMALL, LARGE, {"gpus": 4}], TWO_BATCHES)
    assert offered(p) == {(0, 2): (3.0, 0), (1, 2): (5.0, 1), (2, 2): (5.0, 1)}


def test_the_plan_tells_batch_and_passes() -> None:
    """On 16 GB the plan says batch 32 in two passes, and its speed is that of this row."""
    told = solve(snapshot([{}], [SMALL], TWO_BATCHES)).jobs
    assert [told[n][0] for n in ("batch_size", "accumulation", "work_per_s")] == [32, 2, 3.0]


def test_what_runs_already_fits() -> None:
    """A running job stays where rates.csv says that it cannot be: it is the table that is wrong."""
    rates = [{**A, "gpus": 2, "work_per_s": 5, "memory_gb": 30}]
    here = {"state": "running", "pool": "p0", "gpus": 2, "sizes": [2]}
    assert offered(problem([here], [SMALL, SMALL], rates)) == {(0, 2): (5.0, 0)}
    told = solve(snapshot([here], [SMALL, SMALL], rates))
    assert (told.jobs["action"], told.jobs["work_per_s"]) == (["keep"], [5.0])


def test_the_audit_knows() -> None:
    """A plan with a row that does not fit is at fault, whoever made it."""
    p = problem([{}], [SMALL], TWO_BATCHES)
    round_ = compile_round(p)
    right = round_.allocation(np.array([0]))
    assert audit(p, right, round_.repairs, round_.offer).faults == ()
    row = np.array([1])
    wrong = audit(p, replace(right, row=row), round_.repairs, round_.offer).faults
    assert any("needs 30 GB of each GPU; it has 16" in fault for fault in wrong)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((1, 2, 4)), st.integers(1, 9), st.sampled_from((None, 8, 16, 32))
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from((None, 8, 20, 64)),
)
def test_against_a_plain_reading(
    rows: list[tuple[int, int, int | None]], gpu_memory_gb: int | None
) -> None:
    """Measured sizes by trying every row; those between need both neighbours."""
    p = problem(
        [{"sizes": [1, 2, 3, 4]}],
        [{"gpus": 4, "memory_gb": gpu_memory_gb}],
        [{**A, "gpus": k, "work_per_s": r, "memory_gb": m} for k, r, m in rows],
    )
    speed: dict[int, float] = {}
    for k in (1, 2, 4):
        fits = [
            float(r)
            for size, r, m in rows
            if size == k and (m is None or gpu_memory_gb is None or m <= gpu_memory_gb)
        ]
        if any(size == k for size, _, _ in rows):
            speed[k] = max(fits, default=0.0)
    for k in (2, 3):
        low, high = (
            max((s for s in speed if s < k), default=0),
            min((s for s in speed if s > k), default=0),
        )
        if k not in {size for size, _, _ in rows} and low and high and speed[low] and speed[high]:
            a, b = speed[low], speed[high]
            speed[k] = min(a + (b - a) * (k - low) / (high - low), a * k / low)
    wanted: dict[Any, Any] = {(0, k): v for k, v in speed.items() if v}
    assert {key: rate for key, (rate, _) in offered(p).items()} == pytest.approx(wanted)


def test_why_it_waits() -> None:
    """A job that fits nowhere is told that memory may be why, and the table which row it is."""
    told = solve(snapshot([{}], [SMALL], [{**A, "gpus": 2, "work_per_s": 5, "memory_gb": 30}]))
    assert told.jobs["reason"] == ["exceeds_cluster"] and "enough memory" in told.jobs["detail"][0]
    assert told.warnings == (
        'rates.csv:2: memory_gb 30 is more than any "A" GPU of pools.csv has, 16',
    )
