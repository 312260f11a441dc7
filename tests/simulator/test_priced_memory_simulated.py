"""Pools with a price of memory in the simulator: it spends what the plans said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import seeds
from worlds import workload

from allocator.engine.decision import Decision
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.cluster import TraceDrivenCluster

FAST = SimulationOptions(react_s=1e-9)  # a round at every arrival and completion


def test_memory_is_paid_while_gpus_are_held() -> None:
    """Two jobs of 1800 s on a GPU each at 1 dollar an hour, and 0.1 for a GB: 20 GB cost 1.50 in
    half an hour, and a job that says nothing of its memory 0.50."""
    pool = {"pool": "p", "gpus": 2, "price_per_gpu_hour": 1.0, "price_per_gb_hour": 0.1}
    s = simulate(
        workload([{"total_work": 1800, "memory_gb": 20}, {"total_work": 1800}], pools=[pool])
    )
    assert s.jobs["dollars"].tolist() == pytest.approx([1.5, 0.5])
    assert s.metrics["dollars"] == pytest.approx(2.0)
    assert s.spans["memory_price"].tolist() == [2.0, 0.0]


def random_workload(seed: int, objective: str) -> Any:
    """Twelve jobs on two pools, with memory by row, by curve and by job, and a budget at times."""
    rng = np.random.default_rng(seed)
    markets = rng.choice(["reserved", "on_demand", "spot"], 2)
    pools = [
        {
            "pool": name,
            "gpu_type": name.upper(),
            "gpus": int(rng.integers(3, 9)),
            "market": market,
            "memory_gb": 40.0,
            "price_per_gpu_hour": float(rng.choice([0.0, 1.3])),
            "price_per_gb_hour": float(rng.choice([0.0, 0.02, 0.2])),
        }
        for name, market in zip("ab", markets, strict=True)
    ]
    rates = [
        {
            "model": m,
            "gpu_type": t,
            "gpus": k,
            "work_per_s": k ** rng.uniform(0.6, 1.0),
            "memory_gb": float(rng.uniform(5, 30) / k) if m == "m" else None,
        }
        for m in "mn"
        for t in "AB"
        for k in (1, 2, 4)
    ]
    jobs = [
        {
            "model": str(rng.choice(["m", "n"])),
            "submitted_s": float(rng.integers(0, 2000)),
            "total_work": float(rng.integers(200, 4000)),
            "max_gpus": int(rng.choice([1, 2, 4])),
            "memory_gb": float(rng.uniform(4, 30)) if rng.random() < 0.7 else None,
        }
        for _ in range(12)
    ]
    config = {"objective": objective} | ({"budget_per_hour": 12.0} if rng.random() < 0.5 else {})
    return workload(jobs, pools=pools, rates=rates, config=config)


@pytest.mark.parametrize("seed", seeds(4, 100))
@pytest.mark.parametrize("objective", ["progress", "completion", "cost", "response"])
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
    finished = np.asarray(s.jobs["finished_s"], dtype=float)
    claimed = np.zeros(len(finished))
    for (at, jobs, cost), end in zip(rounds, ends, strict=True):
        claimed[jobs] += cost * np.maximum(0.0, np.minimum(end, finished[jobs]) - at) / 3600.0
    assert np.isfinite(claimed).all()
    assert s.jobs["dollars"].to_numpy() == pytest.approx(claimed, rel=1e-9, abs=1e-9)
