"""Prices of memory in a round: what an option costs, and sizes that cost less with more GPUs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import columns

from allocator.engine.decision import decide
from allocator.options.option_table import option_table
from allocator.performance.table import RateTable
from allocator.valuation.prices import added_prices, gpu_prices

POOL = {"pool": "p", "gpu_type": "A", "gpus": 4, "memory_gb": 40.0, "market": "on_demand"}


def costs(jobs: list[Any], pool: Any, rates: Any, **tables: Any) -> dict[tuple[str, int], float]:
    """Dollars per hour of each option, by job and GPUs."""
    p = problem(jobs, [POOL | pool], rates, **tables)
    m = option_table(p, RateTable.of(p))
    names = [p.jobs.job_id[j] for j in m.job.tolist()]
    return dict(zip(zip(names, m.gpus.tolist(), strict=True), m.cost.tolist(), strict=True))


def test_the_memory_of_a_curve() -> None:
    """A curve of batch 64: 8 GB, and 0.25 GB for each of the 64 samples on one GPU, or of the 32 on
    each of two."""
    curve = {"min_batch": 64, "compute": 0.01, "sync": 0.01, "max_gpus": 2}
    curve |= {"memory_gb": 8, "memory_per_sample_gb": 0.25}
    models = [{"model": "m", "gpu_type": "A", "kind": "iteration", "parameters": json.dumps(curve)}]
    pool = {"price_per_gpu_hour": 1.0, "price_per_gb_hour": 0.1}
    found = costs([{"max_gpus": 2, "memory_gb": 39}], pool, [], models=models)
    assert found == pytest.approx({("j0", 1): 1 + 2.4, ("j0", 2): 2 * (1 + 1.6)})


def test_reserved_memory_adds_nothing_to_the_bill() -> None:
    """Listed, it costs its price; a bill is the same with and without it."""
    pools = [POOL | {"pool": name, "market": name, "price_per_gb_hour": 0.5} for name in MARKETS]
    p = problem([{"memory_gb": 4}], pools)
    ways = np.zeros(2, dtype=np.int64), np.array([0, 1]), np.array([1, 1])
    assert gpu_prices(p, *ways).tolist() == [2.0, 2.0]
    assert added_prices(p, *ways).tolist() == [0.0, 2.0]


MARKETS = ("reserved", "on_demand")


def test_more_gpus_that_cost_less_are_kept_for_the_budget() -> None:
    """One GPU with 30 GB costs 30 $/h and does as much as two with 5 GB each for 10 $/h. Of 35 $/h
    both jobs run on two GPUs, though neither gains by its second GPU."""
    rates = columns("gpu_type gpus work_per_s memory_gb: A 1 1 30; A 2 1 5")
    pool, config = POOL | {"price_per_gb_hour": 1.0}, {"budget_per_hour": 35}
    found = decide(problem([{"max_gpus": 2}] * 2, [pool], rates, config=config))
    assert found.jobs["gpus"] == [2, 2] and found.status == "optimal"
    assert found.budget.spent_per_hour == pytest.approx(20.0)
