"""Choosing between spot and on demand, by hand."""

from __future__ import annotations

import pytest
from text_tables import cases
from worlds import workload

from allocator.simulator import simulate


@pytest.mark.parametrize(
    ("jobs", "spot", "gone", "low", "high"),
    cases("""
7200 -> 1 -> -1 -> 1 -> 1
5400 -> 0 -> -1 -> 3 -> 3
5400 -> 1 -> 600 -> 1 -> 3.25
5400 -> 1 -> 3000 -> 1 -> 3.25
14400 4320 -> 1 -> -1 -> 2 -> 4
"""),
)
def test_deadlines_are_kept_for_little(
    jobs: str, spot: str, gone: str, low: str, high: str
) -> None:
    """Jobs of an hour of work, with these deadlines, on one of `spot` GPUs for $1, which are gone
    at a time, or on demand for $3.

    A spot GPU that is always there is all that is bought; without one the deadline is kept on
    demand. If it vanishes for good, what is left, and at most 300 s of redone work, is bought on
    demand. One for two jobs: who cannot wait gets it; both at once on demand would be 6.
    """
    due = [float(word) for word in jobs.split()]
    rows = [{"total_work": 3600, "deadline_s": d, "checkpoint_every_s": 300} for d in due]
    pools = [
        {"pool": "spot", "gpus": int(spot), "market": "spot", "price_per_gpu_hour": 1},
        {"pool": "firm", "market": "on_demand", "price_per_gpu_hour": 3},
    ]
    changes = [(float(gone), 0, None)] if gone != "-1" else []
    config = {"restart_s": 0, "objective": "cost"}
    s = simulate(workload(rows, rates={1: 1.0}, changes=changes, pools=pools, config=config))
    assert (s.jobs["finished_s"] <= due).all()
    assert float(low) - 1e-9 <= s.metrics["dollars"] <= float(high) + 1e-9
