"""Whole GPUs over several GPU types: the plan against an LP solver."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, strategies as st
from scipy.optimize import linprog
from test_rental import Points, example, small

from formulations.rental import widths as f
from formulations.rental.speed_curves import AMDAHL, TABLE

Option = tuple[float, float]  # cost and wait of all jobs of a class


def options(made: f.JobClasses, points: Points, most: int) -> list[list[Option]]:
    """By class, every (row, k) up to `most`, and every point of a table, on its hull or not."""
    out: list[list[Option]] = [[] for _ in range(len(made))]
    for r, i in enumerate(made.of.tolist()):
        table = made.speed.kind[r] == TABLE
        sizes = (
            dict(points[r])
            if table
            else {
                k: float(1 / (1 - p + p / k) if made.speed.kind[r] == AMDAHL else k**p)
                for k in range(1, int(min(most, made.speed.most[r])) + 1)
                for p in [made.speed.parameter[r]]
            }
        )
        for k, s in sizes.items():
            time = made.load[i] / (s * made.speed.factor[r])
            out[i].append((time * k * made.price[r], time * made.weight[i]))
    return out


def by_solver(choices: list[list[Option]], budget: float) -> float:
    """The least wait by HiGHS."""
    flat = np.array([option for some in choices for option in some])
    one_each = np.repeat(np.eye(len(choices)), [len(some) for some in choices], axis=1)
    found = linprog(
        flat[:, 1], flat[:, :1].T, [budget], one_each, np.ones(len(choices)), method="highs"
    )
    return float(found.fun)


@examples(20, 150)
@given(small(), st.floats(1.001, 4))
def test_equal_to_an_lp_solver(case: tuple[f.JobClasses, Points], times: float) -> None:
    """At most one class is split, between two options of whole widths."""
    made, points = case
    choices = options(made, points, 4)
    budget = times * sum(min(c for c, _ in some) for some in choices)
    plan = f.plan(f.restrict_to_whole_gpus(made), budget)
    assert plan.weighted == pytest.approx(by_solver(choices, budget), rel=1e-6)
    assert plan.spend <= budget * (1 + 1e-8)
    assert len(plan.of) <= len(made) + 1 and np.all(plan.share > 0)
    assert np.all(plan.width == np.round(plan.width))


@pytest.mark.parametrize("budget", [0.85, 1.0, 2.0, 7.5, 15.0])
def test_widths_without_a_limit_are_looked_at_far_enough(budget: float) -> None:
    """Amdahl and square root without a largest width: as good as an LP over widths up to 3,000,
    never better than the fractional optimum."""
    plan = f.plan(f.restrict_to_whole_gpus(example()), budget)
    assert plan.weighted == pytest.approx(
        by_solver(options(example(), [(), ()], 3000), budget), rel=1e-6
    )
    assert plan.weighted >= f.plan(example(), budget).weighted * (1 - 1e-12)
