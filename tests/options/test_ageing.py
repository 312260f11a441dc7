"""Ageing: waiting raises the value of a job in the objective, and only waiting does."""

from __future__ import annotations

import pytest
from worlds import workload

from allocator.simulator import SimulationOptions, simulate


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
