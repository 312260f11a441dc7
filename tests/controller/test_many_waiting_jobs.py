"""Rounds in which almost all jobs may not run: they change nothing about the decision of the
others.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import allocator

MANY = 8_000  # more jobs than the sample of the dual has groups


def _snapshot(jobs: pd.DataFrame) -> allocator.Snapshot:
    pools = pd.DataFrame({"pool": ["p"], "gpu_type": ["G"], "gpus": [8]})
    rates = pd.DataFrame(
        {"model": "m", "gpu_type": "G", "gpus": [1, 2, 4], "work_per_s": [1.0, 1.8, 3.0]}
    )
    return allocator.Snapshot.from_frames(jobs=jobs, pools=pools, rates=rates)


def _queued(n: int) -> pd.DataFrame:
    work = np.random.default_rng(0).uniform(100.0, 5_000.0, n)
    return pd.DataFrame(
        {
            "job_id": [f"j{i}" for i in range(n)],
            "model": "m",
            "submitted_s": 0,
            "remaining_work": work,
            "max_gpus": 4,
        }
    )


@pytest.mark.parametrize("free", [0, 12])
def test_held_jobs_do_not_change_what_the_others_get(free):
    """Thousands of held jobs next to a few queued ones: the value and the bound are those of the
    few alone.
    """
    jobs = _queued(MANY)
    jobs["state"] = np.where(np.arange(MANY) < free, "queued", "held")
    many = allocator.solve(_snapshot(jobs), gap=0.0)
    assert many.objective_value <= many.bound
    if free:
        few = allocator.solve(_snapshot(jobs[:free]), gap=0.0)
        assert many.objective_value == pytest.approx(few.objective_value)
        assert many.bound == pytest.approx(few.bound)
    else:
        assert many.objective_value == 0.0
