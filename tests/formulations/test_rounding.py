"""Plans from prices: repaired, feasible, close to the best."""

from __future__ import annotations

import numpy as np
import pytest
from choice_models import best_choice, random_model, view
from examples import count, examples
from hypothesis import given, strategies as st
from rounds import random_instance

from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import choices
from formulations.model.single_round import build_model
from formulations.primal.rounding import repair, round_dual

INF = np.inf


@pytest.mark.parametrize(
    ("groups", "rows", "mandatory", "choice", "repaired"),
    [
        # at least 3 GPUs: the job grows that loses least by it
        ([[(3, {0: 1}), (1, {0: 2})], [(3, {0: 1}), (2, {0: 2})]], [(3, INF)], (), [0, 2], [0, 3]),
        # exactly 3 units: the 2 leave as the 3 enter; no single move helps
        ([[(5, {0: 2})], [(1, {0: 3})]], [(3, 3)], (), [0, -1], [-1, 1]),
        # two that must run and do not fit have no plan
        ([[(1, {0: 1})]] * 2, [(-INF, 1)], {0, 1}, [0, 1], None),
    ],
)
def test_repair_by_hand(groups, rows, mandatory, choice, repaired):
    """What the comment of each case says."""
    c = view(groups, rows, mandatory)
    found = repair(c, np.array(choice), np.zeros(c.model.m))
    assert (None if found is None else found.tolist()) == repaired


def test_idle_scarce_units_go_to_a_column_that_is_no_near_tie():
    """4,000 large jobs of 2 GPUs and 2,501 small ones of 1 share 10,502 GPUs: a price of 0.5 leaves
    one GPU idle that only a third kind of job can use, whose loss of 0.2 is no near tie.
    """
    large, small, third = [(2.0, {0: 2})], [(0.5 + 1e-6, {0: 1})], [(0.3, {0: 1})]
    c = view([large] * 4_000 + [small] * 2_501 + [third], [(-np.inf, 10_502)])
    prices = np.append(np.zeros(c.J), 0.5)
    dual = evaluate(c, prices)
    assert c.use_of(dual.choice).tolist() == [10_501]
    gap = 0.25 / dual.bound  # less than the GPU that is left idle
    plan = round_dual(c, dual, enough=gap)
    assert c.feasible(plan) and c.use_of(plan).tolist() == [10_502]


@examples(20, 100)
@given(seed=st.integers(0, 10**9))
def test_rounded_plans_keep_all_rows(seed):
    """Whatever the rows: a plan that comes out is feasible and below the bound; none comes where
    none exists.
    """
    c = choices(random_model(np.random.default_rng(seed)))
    dual = minimise_dual(c)
    best = best_choice(c)
    for plan in (round_dual(c, dual), round_dual(c, dual, enough=1e-3)):
        if plan is not None:
            assert c.feasible(plan) and c.model.feasible(c.to_x(plan))
            assert best is not None
            assert c.value_of(plan) <= best + 1e-9 <= dual.bound + 2e-9


def test_rounds_with_every_rule():
    """Random rounds: a plan wherever one exists, within 2 % on average."""
    lost, missed = [], 0
    for seed in range(2000, 2000 + count(20, 60)):
        c = choices(
            build_model(random_instance(np.random.default_rng(seed), jobs=5, pools=2, tenants=3))
        )
        best, plan = best_choice(c), round_dual(c, minimise_dual(c))
        if best is None:
            assert plan is None
            continue
        missed += plan is None
        if plan is not None:
            lost.append((best - c.value_of(plan)) / max(best, 1e-9))
    assert len(lost) > count(6, 20)
    assert missed == 0
    assert np.mean(lost) < 0.02
