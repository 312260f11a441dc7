"""Prices of memory in a round: that of a curve, and of GPUs that are paid for anyhow."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import problem

from allocator.options.configure import configure
from allocator.options.option_table import option_table
from allocator.valuation.values import added_prices, gpu_prices

POOL = {"pool": "p", "gpu_type": "A", "gpus": 4, "memory_gb": 40.0, "market": "on_demand"}


def test_the_memory_of_a_curve() -> None:
    """A curve of batch 64: 8 GB, and 0.25 GB for each of the 64 samples on one GPU, or of the 32 on
    each of two."""
    curve = {"min_batch": 64, "compute": 0.01, "sync": 0.01, "max_gpus": 2}
    curve |= {"memory_gb": 8, "memory_per_sample_gb": 0.25}
    models = [{"model": "m", "gpu_type": "A", "kind": "iteration", "parameters": json.dumps(curve)}]
    pool = {"price_per_gpu_hour": 1.0, "price_per_gb_hour": 0.1}
    p = problem([{"max_gpus": 2, "memory_gb": 39}], [POOL | pool], [], models=models)
    found = option_table(p).cost
    assert found == pytest.approx([1 + 2.4, 2 * (1 + 1.6)])
    ways = configure(p, "j0")
    assert ways.cost == pytest.approx(ways.hours * found[ways.gpus - 1])


def test_reserved_memory_adds_nothing_to_the_bill() -> None:
    """Listed, it costs its price; a bill is the same with and without it."""
    pools = [
        POOL | {"pool": market, "market": market, "price_per_gb_hour": 0.5}
        for market in ("reserved", "on_demand")
    ]
    p = problem([{"memory_gb": 4}], pools)
    ways = np.zeros(2, dtype=np.int64), np.array([0, 1]), np.array([1, 1])
    assert gpu_prices(p, *ways).tolist() == [2.0, 2.0]
    assert added_prices(p, *ways).tolist() == [0.0, 2.0]
