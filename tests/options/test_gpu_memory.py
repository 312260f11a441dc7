"""Memory of GPUs: rows of rates.csv that need more are no options, which the plan, the audit and
the reasons say.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from builders import problem, snapshot

from allocator.api import solve
from allocator.audit import audit
from allocator.options.instance_building import compile_round

A = {"gpu_type": "A"}
TWO_BATCHES = [
    {**A, "gpus": 2, "work_per_s": 3, "batch_size": 32, "accumulation": 2, "memory_gb": 12},
    {**A, "gpus": 2, "work_per_s": 5, "batch_size": 64, "accumulation": 1, "memory_gb": 30},
]
SMALL = {"gpus": 4, "memory_gb": 16}


def test_the_plan_tells_batch_and_passes() -> None:
    """On 16 GB the plan says batch 32 in two passes, and its speed is that of this row."""
    told = solve(snapshot([{}], [SMALL], TWO_BATCHES)).jobs
    assert [told[n][0] for n in ("batch_size", "accumulation", "work_per_s")] == [32, 2, 3.0]


def test_the_audit_knows() -> None:
    """A plan with a row that does not fit is at fault, whoever made it."""
    p = problem([{}], [SMALL], TWO_BATCHES)
    round_ = compile_round(p)
    right = round_.allocation(np.array([0]))
    assert audit(p, right, round_.repairs, round_.offer).faults == ()
    row = np.array([1])
    wrong = audit(p, replace(right, row=row), round_.repairs, round_.offer).faults
    assert any("needs 30 GB of each GPU; it has 16" in fault for fault in wrong)


def test_why_it_waits() -> None:
    """A job that fits nowhere is told that memory may be why, and the table which row it is."""
    told = solve(snapshot([{}], [SMALL], [{**A, "gpus": 2, "work_per_s": 5, "memory_gb": 30}]))
    assert told.jobs["reason"] == ["exceeds_cluster"] and "enough memory" in told.jobs["detail"][0]
    assert told.warnings == (
        'rates.csv:2: memory_gb 30 is more than any "A" GPU of pools.csv has, 16',
    )
