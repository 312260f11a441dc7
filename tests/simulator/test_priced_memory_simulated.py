"""Pools with a price of memory in the simulator: it spends what the plans said."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from examples import seeds, series

from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.engine.decided import Decision
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.cluster import TraceDrivenCluster

FAST = SimulationOptions(react_s=1e-9, prove_every=0)  # a round at every arrival and completion


def random_workload(seed: int, objective: str) -> Workload:
    """Return eight jobs that state the memory they need, on four pools that price memory."""
    made, rng = generate("mixed", seed=seed, jobs=8).workload(), np.random.default_rng(seed)
    p = made.problem
    per_gb, memory_gb = rng.choice([0.0, 0.02, 0.2], len(p.pools)), rng.uniform(4, 30, 8)
    pools = dataclasses.replace(p.pools, price_per_gb_hour=per_gb)
    jobs = dataclasses.replace(p.jobs, memory_gb=memory_gb)
    changed = dataclasses.replace(p, pools=pools, jobs=jobs, objective=objective)
    return dataclasses.replace(made, problem=changed)


@pytest.mark.parametrize("seed", seeds(1, 100))
@pytest.mark.parametrize("objective", series(["response", "progress", "completion", "cost"], 1))
def test_jobs_spend_what_the_plans_said(
    objective: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dollars of each job are the cost per hour of its plans times the hours until the next
    plan, or its end; no plan is above the budget, or claims another cost."""
    made = random_workload(seed, objective)
    rounds: list[tuple[float, Any, Any]] = []
    apply = TraceDrivenCluster.apply

    def note(self: TraceDrivenCluster, decision: Decision, took_s: float) -> int:
        assert decision.witness.cost.sum() <= decision.round.problem.budget_per_hour + 1e-9
        rounds.append((self.world.now, self.world.active, decision.witness.cost))
        return apply(self, decision, took_s)

    monkeypatch.setattr(TraceDrivenCluster, "apply", note)
    s = simulate(made, options=FAST)
    ends = [at for at, _, _ in rounds[1:]] + [np.inf]
    # a job that is not worth its dollars never ends
    finished = np.nan_to_num(s.jobs["finished_s"].to_numpy(float), nan=np.inf)
    claimed = np.zeros(len(finished))
    for (at, jobs, cost), end in zip(rounds, ends, strict=True):
        paid_s = (np.minimum(end, finished[jobs]) - at).clip(0.0)
        claimed[jobs] += cost * np.where(cost, paid_s, 0.0) / 3600.0
    assert s.jobs["dollars"].to_numpy() == pytest.approx(claimed, rel=1e-9, abs=1e-9)
