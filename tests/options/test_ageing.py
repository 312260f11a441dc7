"""Ageing: waiting raises the value of a job in the objective, and only waiting does."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from worlds import workload

from allocator.engine.decision import decide
from allocator.simulator import SimulationOptions, simulate

JOBS = [
    {"job_id": "old", "submitted_s": 0, "remaining_work": 6000},
    {"job_id": "new", "submitted_s": 900, "remaining_work": 3000},
]


def test_an_old_job_overtakes_a_short_one() -> None:
    """One GPU: the short job has value 300/3000, twice the long one's; with ageing_s 500 the long
    one has weight 3 and the short one 1.2, so that the long one gets the GPU, and the audit agrees
    on its value."""
    for ageing, first in ((None, "new"), (500, "old")):
        config = {"now_s": 1000, "interval_s": 300} | ({"ageing_s": ageing} if ageing else {})
        p = problem(JOBS, [{"gpus": 1}], config=config)
        result = decide(p)
        assert [
            n for n, g in zip(result.jobs["job_id"], result.jobs["gpus"], strict=True) if g
        ] == [first]
        assert result.objective_value == pytest.approx(0.1 if ageing is None else 3 * 0.05)


@pytest.mark.nightly
def test_ageing_bounds_the_wait_of_a_long_job_among_short_ones() -> None:
    """A job of 4 hours and a short one in every round: without ageing the long one starts when the
    others are over, with ageing_s 100 within two hours: its fraction is a 48th of theirs, which
    4,700 s of waiting make up for."""
    short = [{"submitted_s": 300.0 * i, "total_work": 300} for i in range(60)]
    w = workload([{"total_work": 14_400}, *short])
    started = {
        a: (
            simulate(w, policy="mip", options=SimulationOptions(ageing_s=a)).jobs.set_index(
                "job_id"
            )["started_s"]["j0"]
        )
        for a in (None, 100.0)
    }
    assert started[None] >= 18_000 and started[100.0] < 7_200
    assert np.isfinite(started[100.0])
