"""The bound that keeps the rows of few groups: against exhaustive search, and by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from choice_models import best_choice, random_model, view
from examples import examples
from hypothesis import given, strategies as st
from rounds import random_instance

from formulations.bounds.knapsacks import tighten_bound
from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import choices
from formulations.model.single_round import build_model
from formulations.primal.rounding import round_dual


def test_a_quota_that_cannot_be_filled():
    """Two tenants of two jobs each. Tenant 0 has a quota of 5 and jobs of 4 and 3 GPUs of value 1
    per GPU: 4 at best.

    At price 1 on that quota L counts 5 for it; the knapsack knows that one GPU stays unused and
    takes 1 off.
    """
    c = view(
        [[(4, {0: 4})], [(3, {0: 3})], [(2, {1: 2})], [(2, {1: 2})]], [(-np.inf, 5), (-np.inf, 4)]
    )
    dual = evaluate(c, np.array([0, 0, 0, 0, 1.0, 0]))
    assert dual.bound == pytest.approx(5 + 4)
    tighter = tighten_bound(c, dual, np.array([-1, 1, 2, 3]), -math.inf, math.inf)
    assert tighter.bound == pytest.approx(4 + 4)
    assert tighter.credit == pytest.approx([1, 1, 0, 0])
    assert tighter.choice.tolist() == [0, -1, 2, 3]  # the better job for the block


def test_a_guarantee_in_whole_jobs():
    """At least 3 GPUs from jobs of 2 that lose 1 each: 4 GPUs, loss 2, while L assumes 3 GPUs,
    loss 1.5.
    """
    c = view(
        [[(-1, {0: 2})], [(-1, {0: 2})], [(5, {1: 1})], [(5, {1: 1})]], [(3, np.inf), (-np.inf, 2)]
    )
    dual = evaluate(c, np.array([0, 0, 0, 0, -0.5, 0]))
    assert dual.bound == pytest.approx(10 - 1.5)
    assert tighten_bound(
        c, dual, np.array([0, 1, 2, 3]), -math.inf, math.inf
    ).bound == pytest.approx(10 - 2)


def test_rows_with_the_same_entries_are_one_block():
    """A quota and a guarantee on the same GPUs bound the same sum."""
    c = view(
        [[(4, {0: 4, 1: 4})], [(3, {0: 3, 1: 3})], [(1, {})], [(1, {})]],
        [(-np.inf, 6), (2, np.inf)],
    )
    dual = evaluate(c, np.array([0, 0, 0, 0, 1.0, 0]))
    assert dual.bound == pytest.approx(8)
    assert tighten_bound(
        c, dual, np.array([-1, 1, 2, 3]), -math.inf, math.inf
    ).bound == pytest.approx(6)


def test_stops_where_enough_is_proven_or_time_is_up():
    """Nothing is done when the bound is good enough or no time is left."""
    c = view(
        [[(4, {0: 4})], [(3, {0: 3})], [(2, {1: 2})], [(2, {1: 2})]], [(-np.inf, 5), (-np.inf, 4)]
    )
    dual, plan = evaluate(c, np.array([0, 0, 0, 0, 1.0, 0])), np.array([-1, 1, 2, 3])
    assert tighten_bound(c, dual, plan, 100.0, math.inf).bound == dual.bound
    assert tighten_bound(c, dual, plan, -math.inf, -math.inf).bound == dual.bound


def test_dollars_in_cents():
    """A budget of 0.50 dollars and jobs of 0.30 and 0.24: 0.30 at best, 0.20 stay unused
    whatever the price says.
    """
    c = view([[(3.0, {0: 0.30})], [(2.4, {0: 0.24})], [(1, {})], [(1, {})]], [(-np.inf, 0.50)])
    dual = evaluate(c, np.array([0, 0, 0, 0, 10.0]))
    assert dual.bound == pytest.approx(5 + 2)
    tighter = tighten_bound(c, dual, np.array([-1, 1, 2, 3]), -math.inf, math.inf)
    assert tighter.bound == pytest.approx(3 + 2)
    assert tighter.choice.tolist() == [0, -1, 2, 3]


@examples(50, 150)
@given(seed=st.integers(0, 10**9), size=st.sampled_from([0.0, 0.3, 2.0]))
def test_never_below_the_optimum(seed, size):
    """Rows of all kinds, any prices: the tighter bound still covers the best plan, and each group's
    part of the reduced-cost test holds for the best plan's own columns."""
    rng = np.random.default_rng(seed)
    make = seed % 2 == 0
    model = (
        random_model(rng, jobs=6, rows=5)
        if make
        else build_model(random_instance(rng, jobs=5, pools=2, tenants=3))
    )
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
    for seed in range(20):
        rng = np.random.default_rng(seed)
        groups = [
            [(float(k * rng.uniform(0.8, 1.2)), {0: k, 1 + j % 8: k}) for k in (3, 5)]
            for j in range(32)
        ]
        c = view(groups, [(-np.inf, 60), *[(-np.inf, float(q)) for q in rng.integers(6, 14, 8)]])
        dual = minimise_dual(c)
        tighter = tighten_bound(c, dual, round_dual(c, dual), -math.inf, math.inf)
        better += tighter.bound < dual.bound * (1 - 1e-4)
    assert better >= 15
