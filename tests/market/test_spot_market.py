"""Choosing between spot and on demand, by hand."""

from __future__ import annotations

import pytest
from worlds import workload

from allocator.simulator import simulate

HOUR = 3600


@pytest.mark.parametrize(
    ("moves", "jobs", "spot", "dollars"),
    [
        # a spot GPU that is always there is all that is bought
        ([], [(HOUR, 2 * HOUR)], 1, (1.0, 1.0)),
        # without a spot GPU the deadline is kept on demand
        ([], [(HOUR, 1.5 * HOUR)], 0, (3.0, 3.0)),
        # it vanishes for good: what is left, and at most 300 s of redone work, is bought on demand
        *(([(gone, 0)], [(HOUR, 1.5 * HOUR)], 1, (1.0, 3.0 + 300 / HOUR)) for gone in (600, 3000)),
        # one for two jobs: who cannot wait gets it; both at once on demand would be 6
        ([], [(HOUR, 4 * HOUR), (HOUR, 1.2 * HOUR)], 1, (2.0, 4.0)),
    ],
)
def test_deadlines_are_kept_for_little(
    moves: list[tuple[int, int]],
    jobs: list[tuple[int, float]],
    spot: int,
    dollars: tuple[float, float],
) -> None:
    """An hour of work each, on one of `spot` GPUs for $1, which become `moves`, or on demand for
    $3."""
    rows = [{"total_work": w, "deadline_s": due, "checkpoint_every_s": 300} for w, due in jobs]
    pools = [
        {"pool": "spot", "gpus": spot, "market": "spot", "price_per_gpu_hour": 1},
        {"pool": "firm", "market": "on_demand", "price_per_gpu_hour": 3},
    ]
    changes = [(at, gpus, None) for at, gpus in moves]
    config = {"restart_s": 0, "objective": "cost"}
    s = simulate(workload(rows, rates={1: 1.0}, changes=changes, pools=pools, config=config))
    assert all(f <= due for f, (_, due) in zip(s.jobs["finished_s"], jobs, strict=True))
    assert dollars[0] - 1e-9 <= s.metrics["dollars"] <= dollars[1] + 1e-9
