"""Variants of a job as rows of rates.csv: out of core or distributed, compressed or not, in step or not."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.api import solve
from allocator.domain.columns import OBJECTIVES
from allocator.performance.table import RateTable
from formulations.servers import step_time_sampled

A = {"gpu_type": "A"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 1.0), st.floats(0.1, 1.0), st.floats(0.1, 1.0)), min_size=1, max_size=4),
       st.sampled_from(OBJECTIVES), st.sampled_from(("reserved", "on_demand")))
def test_where_more_gpus_gain_nothing_nobody_gets_more_than_one(
        shares: list[tuple[float, float, float]], objective: str, market: str) -> None:
    """A job that is as fast or faster out of core on one GPU than distributed over 2, 4 and 8 gets one, though all
    eight are free: every further GPU would be one that nothing is worth."""
    rates = [{"model": f"m{i}", **A, "gpus": k, "work_per_s": 3.0 * s}
             for i, some in enumerate(shares) for k, s in zip((1, 2, 4, 8), (1.0, *some), strict=True)]
    told = solve(snapshot([{"model": f"m{i}"} for i in range(len(shares))],
                          [{"market": market, "price_per_gpu_hour": 1.0}], rates,
                          config={"objective": objective, "now_s": 0}))
    assert max(told.jobs["gpus"]) <= 1


@given(st.floats(0.1, 5), st.floats(0.01, 5), st.floats(0.1, 20), st.floats(1.1, 10))
def test_compression_where_the_link_is_slow(compute: float, codec: float, link: float, ratio: float) -> None:
    """A step takes compute + link, compressed compute + codec + link / ratio seconds: the compressed row counts exactly
    where link (1 - 1/ratio) > codec."""
    rows = [{**A, "gpus": 2, "work_per_s": 1 / (compute + link)},
            {**A, "gpus": 2, "work_per_s": 1 / (compute + codec + link / ratio), "variant": "compressed"}]
    p = problem([{}], [{}], rows)
    _, row = RateTable.of(p).rate(np.array([0]), np.array([0]), np.array([2]))
    gain = link * (1 - 1 / ratio) - codec
    if abs(gain) > 1e-9:
        assert p.rates.variant[row[0]] == ("compressed" if gain > 0 else "")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_synchronous_or_not_as_rows(n: int) -> None:
    """Steps of a worker that take 1 or 3 s, each half of the time: n workers in step wait for the slowest, so they run
    at m / E[max] = 2 / (3 - 2 (1/2)^n) of n times one worker; without waiting at all of it, at the efficiency of stale
    gradients. The row of the asynchronous variant counts where that is less of a loss."""
    samples = np.tile([1.0, 3.0], 500)
    longest = 3.0 - 2.0 * 0.5**n
    assert step_time_sampled("bulk", samples, n)[0] == pytest.approx(longest, rel=0.01)
    for stale, wanted in ((2 / longest - 0.05, "synchronous"), (2 / longest + 0.05, "asynchronous")):
        rows = [{**A, "gpus": n, "work_per_s": n / longest, "variant": "synchronous"},
                {**A, "gpus": n, "work_per_s": n / 2, "efficiency": min(1.0, stale), "variant": "asynchronous"}]
        p = problem([{}], [{}], rows)
        _, row = RateTable.of(p).rate(np.array([0]), np.array([0]), np.array([n]))
        assert p.rates.variant[row[0]] == wanted
