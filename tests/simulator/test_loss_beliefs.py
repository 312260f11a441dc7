"""Losses of simulated jobs: what policies believe from them, and that the truth stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.bench.workloads import generate
from allocator.loop.rounds import RoundOutcome
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.run import SimulationState

WORKLOAD = generate("reproduction", seed=1, load=0.3, jobs=25).workload()


def options(noise: float | None) -> SimulationOptions:
    return SimulationOptions(seed=3, prove_every=0, sizes="unknown", loss_noise=noise)


def test_losses_without_noise_say_the_true_work() -> None:
    """Within 1 % of the work of each job that is long enough for six losses."""
    told: dict[str, float] = {}

    def note(state: SimulationState, turn: RoundOutcome) -> None:
        jobs = state.cluster.observe().jobs
        says = np.isfinite(jobs.loss_work)
        told.update(zip(np.array(jobs.job_id)[says], jobs.loss_work[says], strict=True))

    simulate(WORKLOAD, policy="greedy", options=options(0.0), on_round=note)
    true = dict(zip(WORKLOAD.problem.jobs.job_id, WORKLOAD.problem.jobs.total_work, strict=True))
    assert len(told) >= 5
    for name, work in told.items():
        assert work == pytest.approx(true[name], rel=0.01)
