"""`configure` under caps of cost and time, against the enumeration of all ways by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Job, Pool, Problem, Rate
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import Infeasible
from allocator.options.configure import configure

WORK = 1e6


def draw_problem(luck: np.random.Generator) -> tuple[Problem, list[tuple[float, float]]]:
    """A running or waiting job with measured rows of several batches in two pools; the hours and
    dollars of every way, by the formulas of the page."""
    running = bool(luck.integers(2))
    restart_s, startup_s = luck.uniform(0, 600, 2).tolist()
    billing_s = float(luck.choice([0.0, 7200.0]))
    pools = [
        Pool(
            name,
            kind,
            16,
            market="on_demand",
            price_per_gpu_hour=float(luck.uniform(0.5, 3)),
            price_per_gb_hour=float(luck.choice([0.0, luck.uniform(0, 0.1)])),
            memory_gb=memory,
            startup_s=startup_s,
            min_billing_s=billing_s,
        )
        for name, kind, memory in (("a", "A", 40.0), ("b", "B", 16.0))
    ]
    rates, ways = [], []
    for pool in pools:
        for gpus in (1, 2, 4, 8, 16):
            for batch in (64, 256):
                memory = float(luck.choice([8.0, 12.0, 24.0]))
                rate = float(20 * gpus ** luck.uniform(0.5, 1.0) * luck.uniform(0.5, 2))
                rates.append(
                    Rate("net", pool.gpu_type, gpus, rate, batch_size=batch, memory_gb=memory)
                )
                assert pool.memory_gb is not None
                if memory > pool.memory_gb:
                    continue
                stays = running and (pool.pool, gpus) == ("a", 4)
                pause_s = 0.0 if stays else startup_s + restart_s * running
                seconds = pause_s + WORK / rate
                paid_s = seconds if stays else max(seconds, billing_s)
                per_hour = gpus * (pool.price_per_gpu_hour + pool.price_per_gb_hour * memory)
                ways.append((seconds / 3600, per_hour * paid_s / 3600))
    state: dict[str, Any] = {"state": "running", "pool": "a", "gpus": 4} if running else {}
    job = Job("j", "net", WORK, 16, min_gpus=1, restart_s=restart_s, **state)
    return Problem.build(jobs=[job], pools=pools, rates=rates, now_s=0.0), ways


def test_caps_of_cost_and_time_by_enumeration() -> None:
    """In 60 drawn cases every way has its hours and dollars by hand. Under random caps the fastest
    is that of the enumeration within the dollars, the cheapest that within the hours. A cap that
    nothing meets is refused with the least value that something meets."""
    luck = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        problem, ways = draw_problem(luck)
        found = configure(validate(problem.snapshot), "j")
        listed = sorted(zip(found.hours.tolist(), found.cost.tolist(), strict=True))
        assert np.array(listed) == pytest.approx(np.array(sorted(ways)), rel=1e-9)
        hours, dollars = (np.array(column) for column in zip(*ways, strict=True))
        for caps, other, choose in (
            (dollars, hours, found.fastest),
            (hours, dollars, found.cheapest),
        ):
            cap = float(caps.min() * luck.uniform(0.8, 3.0))
            within = caps <= cap
            if within.any():
                i = choose(cap)
                best = found.hours[i] if choose == found.fastest else found.cost[i]
                assert best == pytest.approx(other[within].min(), rel=1e-9)
            else:
                refused += 1
                with pytest.raises(Infeasible) as failure:
                    choose(cap)
                [relaxed] = failure.value.relaxations
                assert relaxed.needed == pytest.approx(caps.min(), rel=1e-9)
    assert 5 <= refused <= 60
