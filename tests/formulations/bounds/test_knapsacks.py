"""The bound that counts one row in whole jobs: against exhaustive search, and by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds.knapsacks import tighten_bound
from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import choices
from formulations.primal.rounding import round_dual

QUOTAS = [[(4, {0: 4})], [(3, {0: 3})], [(2, {1: 2})], [(2, {1: 2})]], [(-np.inf, 5), (-np.inf, 4)]
FREE = [(1, {})], [(1, {})]


@pytest.mark.parametrize(
    ("groups", "rows", "price", "bound", "tighter"),
    [
        # of a quota of 5 jobs of 4 and 3 GPUs use 4
        (*QUOTAS, 1.0, 9, 8),
        # at least 3 GPUs from jobs of 2 that lose 1 each: 4 GPUs, loss 2, where prices say 1.5
        (
            [[(-1, {0: 2})], [(-1, {0: 2})], [(5, {1: 1})], [(5, {1: 1})]],
            [(3, np.inf), (-np.inf, 2)],
            -0.5,
            8.5,
            8,
        ),
        # a quota and a guarantee on the same GPUs bound the same sum
        (
            [[(4, {0: 4, 1: 4})], [(3, {0: 3, 1: 3})], *FREE],
            [(-np.inf, 6), (2, np.inf)],
            1.0,
            8,
            6,
        ),
        # half a dollar pays 0.30 of 0.30 and 0.24
        ([[(3.0, {0: 0.30})], [(2.4, {0: 0.24})], *FREE], [(-np.inf, 0.50)], 10.0, 7, 5),
    ],
)
def test_whole_jobs_by_hand(groups, rows, price, bound, tighter):
    """The price of the first row bounds the value; what whole jobs cannot use is taken off.
    Nothing is done where enough is proven or no time is left."""
    c = view(groups, rows)
    dual = evaluate(c, np.append(np.zeros(4), [price, *[0.0] * (len(rows) - 1)]))
    assert dual.bound == pytest.approx(bound)
    plan = round_dual(c, minimise_dual(c))
    assert tighten_bound(c, dual, plan, -math.inf, math.inf).bound == pytest.approx(tighter)
    assert tighten_bound(c, dual, plan, 100.0, math.inf).bound == dual.bound
    assert tighten_bound(c, dual, plan, -math.inf, -math.inf).bound == dual.bound


@examples(50, 150)
@given(seed=st.integers(0, 10**9), size=st.sampled_from([0.0, 0.3, 2.0]))
def test_never_below_the_optimum(seed, size):
    """Rows of all kinds, any prices: the tighter bound still covers the best plan, and each group's
    part of the reduced-cost test holds for the best plan's own columns."""
    rng = np.random.default_rng(seed)
    model = drawn_model(rng, rows=5)
    # whole numbers, or dollars and cents
    unit = float(rng.choice([1.0, 0.1, 0.05, 0.01]))
    coupling = model.index >= len(model.families[0].labels)
    coef = np.where(coupling, model.coef * unit, model.coef)
    rows = np.arange(model.m) >= len(model.families[0].labels)
    c = choices(
        dataclasses.replace(
            model,
            coef=coef,
            lower=np.where(rows, model.lower * unit, model.lower),
            upper=np.where(rows, model.upper * unit, model.upper),
        )
    )
    dual = minimise_dual(c)
    if size:
        dual = evaluate(
            c, dual.prices + size * rng.normal(size=model.m) * (rng.random(model.m) < 0.5)
        )
    plan = round_dual(c, minimise_dual(c))
    if plan is None:
        return
    tighter = tighten_bound(c, dual, plan, -math.inf, math.inf)
    assert best_choice(c) <= tighter.bound + 1e-12 * abs(tighter.bound)
    assert tighter.bound <= dual.bound
    assert (tighter.credit >= 0).all()


def test_it_closes_part_of_the_gap():
    """On rounds of few large jobs per tenant the bound comes down for most seeds."""
    better = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        groups = [
            [(float(k * rng.uniform(0.8, 1.2)), {0: k, 1 + j % 8: k}) for k in (3, 5)]
            for j in range(32)
        ]
        c = view(groups, [(-np.inf, 60), *[(-np.inf, float(q)) for q in rng.integers(6, 14, 8)]])
        dual = minimise_dual(c)
        tighter = tighten_bound(c, dual, round_dual(c, dual), -math.inf, math.inf)
        better += tighter.bound < dual.bound * (1 - 1e-4)
    assert better >= 7
