"""The view as choices, the Lagrangian bound and its minimisation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from choice_models import best_choice, lp_bound, model_of, random_model, view
from examples import count, examples, seeds
from hypothesis import given, strategies as st
from rounds import random_instance

from formulations.bounds import lagrangian
from formulations.bounds.lagrangian import bound_at, evaluate, excludes_every_plan, minimise_dual
from formulations.model.choices import NotChoices, choices
from formulations.model.linear import RowFamily
from formulations.model.single_round import build_model
from formulations.primal.rounding import round_dual


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"integer": np.array([True, False])}, "continuous"),
        ({"col_upper": np.array([2.0, 1.0])}, "binary"),
        ({"families": (RowFamily("capacity", 0, ["x", "y", "z"]),)}, "at-most-one"),
        ({"upper": np.array([2.0, 1.0, 1.0])}, "bounds"),
    ],
)
def test_other_models_are_refused_with_the_reason(change, word):
    """General integers, continuous columns, columns without a group and other bounds are not
    choices.
    """
    base = model_of([[(1, {0: 1})], [(1, {0: 1})]], [(-np.inf, 1)])
    with pytest.raises(NotChoices, match=word):
        choices(dataclasses.replace(base, **change))


def test_the_bound_covers_plans_within_the_tolerance():
    """0.1 + 0.2 dollars pass a budget of 0.3 by rounding; at any price, also none, the bound
    stays above that plan."""
    c = view([[(1, {0: 0.1})], [(1, {0: 0.2})]], [(-np.inf, 0.3)])
    assert c.feasible(np.array([0, 1]))
    for price in (0.0, 1.0, 5.0, 10.0, 1e3, -7.0, np.nan):
        assert bound_at(c, np.array([0, 0, price])) >= 2


def test_groups_that_a_row_needs_all_of_are_mandatory():
    """A guarantee of 8 GPUs, which one job of 8 can hold, at 20 GPUs for 20 other jobs."""
    jobs = [[(1, {0: 1})]] * 20 + [[(0.1, {0: 8, 1: 8})]]
    c = view(jobs, [(-np.inf, 20), (8, np.inf)])
    assert np.flatnonzero(c.mandatory).tolist() == [20]
    assert minimise_dual(c).bound == pytest.approx(12.1, 1e-4)


@examples(10, 150)
@given(
    seed=st.integers(0, 10**9),
    scale=st.sampled_from([1e-6, 1.0, 1e9]),
    size=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_bound_never_below_the_optimum(seed, scale, size):
    """Any prices, any signs of rows, any magnitude: the bound holds, and so does the minimised
    one; both finite.
    """
    rng = np.random.default_rng(seed)
    model = random_model(rng, scale=scale)
    c = choices(model)
    best = best_choice(c)
    dual = minimise_dual(c)
    assert np.isfinite(dual.bound)
    assert bound_at(c, dual.prices) == dual.bound
    if best is not None:
        assert dual.bound >= best
        for prices in (dual, evaluate(c, 9 * rng.normal(size=model.m))):
            assert not excludes_every_plan(c, prices)
        assert bound_at(c, size * scale * rng.normal(size=model.m)) >= best


def test_minimised_bound_is_close_to_the_lp():
    """Rounds with every kind of row: the median distance to the LP bound is below 1e-5, the
    worst below 1e-3.
    """
    distance = []
    for seed in range(count(10, 30)):
        model = build_model(
            random_instance(np.random.default_rng(seed), jobs=12, pools=3, tenants=4)
        )
        lp = lp_bound(model)
        if lp is not None:
            distance.append((minimise_dual(choices(model)).bound - lp) / max(1.0, abs(lp)))
    assert len(distance) > count(3, 10)
    assert min(distance) > -1e-9
    assert np.median(distance) < 1e-5
    assert max(distance) < 1e-3


@pytest.mark.parametrize("sample", [20, 3000])
def test_many_tenants_with_guarantees(sample: int, monkeypatch: pytest.MonkeyPatch):
    """60 tenants with a guarantee, every third with a budget, on two pools: within 1e-4 of the LP.

    It does not matter whether the first prices come from a sample with a job of every third tenant.
    """
    monkeypatch.setattr(lagrangian, "SAMPLE", sample)
    monkeypatch.setattr(lagrangian, "SAMPLE_PER_ROW", 0)
    rng = np.random.default_rng(5)

    def use(pool: int, tenant: int, gpus: int) -> dict[int, float]:
        budget = {} if tenant % 3 else {62 + tenant // 3: 2.0 * gpus}
        return {pool: gpus, 2 + tenant: gpus, **budget}

    groups = [
        [
            (float(v), use(p, q, k))
            for p in (0, 1)
            for k, v in zip((1, 2, 4), np.cumsum(rng.random(3)), strict=True)
        ]
        for q in np.repeat(np.arange(60), 5).tolist()
    ]
    rows = [(-np.inf, 300.0), (-np.inf, 250.0)]
    rows += [(float(u), np.inf) for u in rng.integers(4, 14, 60)]
    rows += [(-np.inf, float(b)) for b in rng.integers(28, 40, 20)]
    model = model_of(groups, rows)
    lp = lp_bound(model)
    assert lp is not None
    assert minimise_dual(choices(model)).bound == pytest.approx(lp, rel=1e-4)


def test_rounds_at_the_edge():
    """Without coupling rows every job takes its best; without options, or values, the bound is 0.
    Where no plan exists the search ends all the same."""
    for groups, rows, bound in (
        ([[(3, {}), (5, {})], [(-1, {})]], [], 5),
        ([[], []], [(-np.inf, 2)], 0),
        ([], [], 0),
        ([[(0, {0: 1})]] * 10, [(-np.inf, 3)], 0),
    ):
        assert minimise_dual(view(groups, rows)).bound == pytest.approx(bound, rel=1e-4, abs=1e-12)
    assert np.isfinite(minimise_dual(view([[(1, {0: 1})]] * 2, [(9, np.inf)])).bound)


def test_a_bound_below_every_choice_excludes_all_plans():
    """Two jobs must run on one GPU: at high prices the bound falls below what any choice has."""
    c = view([[(1, {0: 1})], [(2, {0: 1})]], [(-np.inf, 1)], mandatory={0, 1})
    assert not excludes_every_plan(c, evaluate(c, np.zeros(3)))
    excluded = evaluate(c, np.array([0, 0, 9.0]))
    assert excluded.bound < 3
    assert excludes_every_plan(c, excluded)
    assert round_dual(c, excluded) is None


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_a_round_with_other_values_reaches_the_bound_of_a_cold_start(seed: int) -> None:
    """Values change by 5 %: the bound is as low as from nothing, and no plan exceeds it."""
    rng = np.random.default_rng(seed)
    c = choices(random_model(rng))
    before = minimise_dual(c)
    values = c.value * rng.uniform(0.95, 1.05, c.n)
    c = choices(dataclasses.replace(c.model, value=values))
    cold, warm = minimise_dual(c), minimise_dual(c, before.prices, close=1e-4)
    best = best_choice(c)
    assert warm.bound == bound_at(c, warm.prices)
    if best is not None:
        assert best - 1e-9 <= warm.bound <= cold.bound + 2e-3 * abs(cold.bound) + 1e-9
