"""The bound on mean completion times, where the least is known, and against simulations."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.bench.least import least_mean_completion_s
from allocator.bench.workloads import generate
from allocator.simulator import SimulationOptions, simulate
from formulations.bounds.completion_times import Demand, Speeds, least_total_completion


def shortest_rest_first(arrival: np.ndarray, work: np.ndarray) -> float:
    """Return the sum of completion less arrival on one machine of speed 1, which is the least."""
    left, now, total = work.copy(), 0.0, 0.0
    while (left > 0).any():
        there = np.flatnonzero((left > 0) & (arrival <= now))
        later = arrival[(left > 0) & (arrival > now)]
        until = float(later.min()) if len(later) else np.inf
        if not len(there):
            now = until
            continue
        j = there[np.argmin(left[there])]
        step = min(left[j], until - now)
        left[j], now = left[j] - step, now + step
        total += now - arrival[j] if left[j] <= 0 else 0.0
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", [(1.0,), (1.0, 2.0, 4.0)])
def test_close_to_the_least_and_never_above(seed: int, sizes: tuple[float, ...]) -> None:
    """Jobs of linear speed on 1 or 4 GPUs are best done one after the other."""
    random = np.random.default_rng(seed)
    arrival = np.sort(random.uniform(0, 4000, 12) * (seed > 0))
    work = random.exponential(600, 12) + 1
    k = np.array(sizes)
    speeds = Speeds(np.zeros(len(k), np.int64), k, k / k.max())
    times = np.linspace(arrival[0], arrival[-1] + work.sum(), 201)
    gpus = np.full((1, 200), k.max())
    bound = least_total_completion([Demand(speeds, arrival, work)], times, gpus, turns=400)
    least = shortest_rest_first(arrival, work)
    assert 0.9 * least < bound <= least * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixed", {"misjudged": 0.5}),
        ("heterogeneous", {"speeds": "learned", "sizes": "unknown"}),
    ],
)
def test_no_policy_is_below(name: str, options: dict[str, object]) -> None:
    """Policies that know all sizes are the closest, in short rounds."""
    workload = generate(name, seed=3, load=None, jobs=8).workload()
    given = SimulationOptions(seed=3, **options)  # type: ignore[arg-type]
    least = least_mean_completion_s(workload, given)
    for policy in ("mip", "srtf"):
        mean = simulate(workload, policy=policy, options=given).metrics["jct_s_mean"]
        assert 0.2 * mean < least <= mean
