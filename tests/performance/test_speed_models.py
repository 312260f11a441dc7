"""Speed models: the best batch inside each size, one interface over rows and curves, the knee, what
to measure next.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from allocator.performance import batched, profiling
from allocator.performance.knee import front, knee

GOODPUT = {"alpha_c": 1.0, "beta_c": 0.1, "alpha_r": 2.0, "beta_r": 0.5, "alpha_n": 4.0}
GOODPUT |= {"beta_n": 1.0, "gamma": 1.0, "batch_0": 8, "max_batch": 64, "max_local": 16}
GOODPUT |= {"min_local": 1, "gpus_per_node": 4}


@given(k=st.integers(1, 40), phi=st.floats(0, 1000), gamma=st.floats(1, 10))
def test_best_batch_is_the_best_of_all_batches(k: int, phi: float, gamma: float) -> None:
    """Of every whole batch none is more than 5 % faster than the best of BATCHES tried: the grid
    is fine enough.
    """
    q = GOODPUT | {"noise_scale": phi, "gamma": gamma}
    every = np.arange(8.0, 65.0)
    rates = batched.at("goodput", q, np.full(len(every), float(k)), every).rate
    found = batched.best("goodput", q, np.array([float(k)]))
    assert np.isnan(found.rate[0]) == np.isnan(rates).all()
    if not np.isnan(found.rate[0]):
        assert 0.95 * np.nanmax(rates) <= found.rate[0] <= np.nanmax(rates) * (1 + 1e-12)
        assert rates[int(found.batch[0]) - 8] == pytest.approx(found.rate[0])


def test_overlap_between_sum_and_maximum() -> None:
    """gamma 10 is nearly the larger; zeros and huge numbers stay finite."""
    times = np.array([[3.0, 0.0, 1e300], [4.0, 0.0, 1e300]])
    found = batched.combine_overlapping_times(*times, np.array(10.0))
    assert found[:2] == pytest.approx([4.02, 0.0], abs=0.01) and np.isfinite(found).all()


def test_knee_by_hand() -> None:
    """Costs 0 1 2 3, times 10 2 1 0: 1 - 1/3 - 2/10 is the largest; (2, 5) is beaten by (1, 2)."""
    assert knee(np.array([0.0, 1, 2, 2, 3]), np.array([10.0, 2, 5, 1, 0])) == 1
    assert knee(np.array([1.0, 2.0]), np.array([5.0, 3.0])) == 1


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=12))
def test_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    """By comparing every pair."""
    cost, time = (np.array(v) for v in zip(*points, strict=True))
    on = front(cost, time)
    for i in range(len(cost)):
        beaten = (cost <= cost[i]) & (time <= time[i]) & ((cost < cost[i]) | (time < time[i]))
        assert not (on[i] and beaten.any())
        assert on[i] or ((cost <= cost[i]) & (time <= time[i]) & on).any()


def test_profiling_begins_at_the_corners_then_where_it_matters() -> None:
    """Three corners of one type; then the unsure one near the best if its value covers its price,
    never a measured one, nor one far behind."""
    gpus, batch = np.array([1, 1, 2, 2, 4, 4]), np.array([8, 64, 8, 64, 8, 64])
    mean = np.array([3.0, 3.0, 1.0, 1.02, 2.5, 2.5])
    deviation, measured = np.full(6, 0.1), np.array([True, False, True, False, False, False])
    group = np.zeros(6, dtype=np.int64)
    found = profiling.plan(group, gpus, batch, mean, deviation, measured, np.full(6, 0.01))
    assert [(i, why) for i, why, _ in found] == [(1, "corner"), (5, "corner"), (3, "decision")]
    assert found[-1][2] == pytest.approx(
        0.1 * (math.exp(-0.02) / math.sqrt(2 * math.pi) - 0.2 * 0.5 * math.erfc(0.2 / math.sqrt(2)))
    )
    dear = profiling.plan(group, gpus, batch, mean, deviation, measured, np.full(6, 0.05))
    assert [i for i, _, _ in dear] == [1, 5]
    value, price = np.array([0.02, 0.04, 0.01]), np.array([0.005, 0.02, 0.02])
    assert profiling.select_trials(value, price) == [0, 1]
