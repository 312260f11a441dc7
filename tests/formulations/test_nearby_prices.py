"""Prices near those of a similar round: the dual of a few columns, and what the search finds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from choice_models import best_choice, random_model, view

from formulations.bounds.lagrangian import bound_at, minimise_dual, spread_prices
from formulations.bounds.nearby_prices import find_nearby_prices
from formulations.bounds.scaled_rows import ScaledRows
from formulations.model.choices import Choices, choices


def random_choices(seed: int) -> tuple[Choices, np.random.Generator]:
    """A random model with rows of both directions and groups that must take a column."""
    rng = np.random.default_rng(seed)
    return choices(random_model(rng)), rng


@pytest.mark.parametrize("seed", range(40))
def test_the_dual_of_a_box_is_the_whole_dual(seed: int) -> None:
    """At any prices inside the box, the few columns give the same bound as all columns."""
    c, rng = random_choices(seed)
    rows = ScaledRows.of(c)
    if rows is None:
        return
    p = rng.exponential(size=len(rows.at)) * (rng.random(len(rows.at)) < 0.7)
    reach = rng.exponential(0.3, size=len(p))
    smooth, taken = rows.smooth_near(c, p, reach)
    for _ in range(5):
        q = np.maximum(p + rng.uniform(-1, 1, len(p)) * reach, 0.0)
        whole = rows.smooth(c, None).exact(q)
        assert smooth.exact(q) + taken == pytest.approx(whole, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_with_other_values_reaches_the_bound_of_a_cold_start(seed: int) -> None:
    """Values change by 5 %: the bound is as low as from nothing, and no plan exceeds it."""
    c, rng = random_choices(seed)
    before = minimise_dual(c)
    values = c.value * rng.uniform(0.95, 1.05, c.n)
    c = choices(dataclasses.replace(c.model, value=values))
    cold, warm = minimise_dual(c), minimise_dual(c, before.prices, close=1e-4)
    best = best_choice(c)
    assert warm.bound == bound_at(c, warm.prices)
    if best is not None:
        assert best - 1e-9 <= warm.bound <= cold.bound + 2e-3 * abs(cold.bound) + 1e-9


def test_prices_far_away_are_followed() -> None:
    """Start prices of ten times the best ones: boxes move and grow, or the whole dual is used."""
    rng = np.random.default_rng(3)
    groups = 3000
    value = 10.0 ** rng.uniform(-1, 2, groups)
    c = view([[(float(v), {0: 1}), (1.5 * float(v), {0: 2})] for v in value], [(-np.inf, 900)])
    cold = minimise_dual(c)
    for factor in (0.1, 0.8, 1.0, 1.3, 10.0):
        warm = minimise_dual(c, factor * cold.prices, close=1e-4)
        assert warm.bound == pytest.approx(cold.bound, rel=1e-4)
    rows = ScaledRows.of(c)
    assert rows is not None
    p, is_settled = find_nearby_prices(
        c, rows, rows.split(0.8 * cold.prices[c.rows]), 1e-4, math.inf
    )
    assert is_settled
    assert bound_at(c, spread_prices(c, rows.join(p))) == pytest.approx(cold.bound, rel=1e-4)
