"""Prices of rows and of pairs of kinds: by hand, and against a linear programme."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from choice_models import model_of
from examples import examples
from hypothesis import given, strategies as st
from scipy.optimize import linprog

from formulations.colocation.kind_prices import KindPrices, Terms, find_nearby_kind_prices
from formulations.model.choices import Choices, choices
from formulations.model.linear import Floats

SLACK = 1e-6  # rows of a model are wider by its tolerance

Role = tuple[float, Floats, int, int]
"""Value, use of the rows, pair of kinds (-1 = none), and 1 for a primary, -1 for a secondary job"""


@dataclass(frozen=True)
class Case:
    """Jobs with columns of their own, and the terms of both sides of pairs of kinds."""

    c: Choices
    primary: Terms
    secondary: Terms
    kinds: int

    def roles(self, job: int) -> list[Role]:
        """What a job may be, nothing first unless it must run."""
        c, use = self.c, self.c.matrix.toarray()
        none: list[Role] = [] if c.mandatory[job] else [(0.0, np.zeros(c.R), -1, 0)]
        own = [(float(c.value[o]), use[o], -1, 0) for o in range(c.start[job], c.start[job + 1])]
        first = [
            (
                float(self.primary.term[e] + c.value[self.primary.column[e]]),
                use[self.primary.column[e]],
                int(self.primary.kinds[e]),
                1,
            )
            for e in np.flatnonzero(self.primary.group == job)
        ]
        second = [
            (float(self.secondary.term[e]), np.zeros(c.R), int(self.secondary.kinds[e]), -1)
            for e in np.flatnonzero(self.secondary.group == job)
        ]
        return none + own + first + second

    def bound(self, p: Floats, t: Floats) -> tuple[float, Floats]:
        """L(p, t) as the head of the module has it, and the part of each job."""
        u = np.array(
            [
                max(value - use @ p + sign * t[k] for value, use, k, sign in self.roles(j))
                for j in range(self.c.J)
            ]
        )
        return float(self.c.high @ p + u.sum()), u

    def relaxed(self) -> float:
        """The least L(p, t), which is the value of the linear programme."""
        roles = [(j, role) for j in range(self.c.J) for role in self.roles(j)]
        once, balance = np.zeros((self.c.J, len(roles))), np.zeros((self.kinds, len(roles)))
        for at, (job, (_, _, k, sign)) in enumerate(roles):
            once[job, at], balance[k, at] = 1.0, sign
        found = linprog(
            [-value for _, (value, _, _, _) in roles],
            A_ub=np.array([use for _, (_, use, _, _) in roles]).T,
            b_ub=self.c.high,
            A_eq=np.vstack([once, balance]),
            b_eq=np.append(np.ones(self.c.J), np.zeros(self.kinds)),
        )
        return -float(found.fun)


def case(rng: np.random.Generator, jobs: int) -> Case:
    """Jobs of a few sizes on two pools; some of them may share GPUs."""
    groups = [
        [
            (float(rng.uniform(0, 2)), {int(rng.integers(0, 2)): float(rng.integers(1, 4))})
            for _ in range(int(rng.integers(1, 3)))
        ]
        for _ in range(jobs)
    ]
    c = choices(model_of(groups, [(-np.inf, float(rng.integers(2, 6))) for _ in range(2)]))
    kinds = 3
    first = np.flatnonzero(rng.random((kinds, c.n)).ravel() < 0.5)
    second = np.flatnonzero(rng.random((kinds, jobs)).ravel() < 0.5)
    column = first % c.n
    return Case(
        c,
        Terms(first // c.n, c.group[column], -rng.uniform(0, 1, len(first)), column),
        Terms(
            second // jobs, second % jobs, rng.uniform(0, 2, len(second)), np.full(len(second), -1)
        ),
        kinds,
    )


@examples(8, 500)
@given(seed=st.integers(0, 10**9))
def test_any_prices_give_a_bound_and_the_search_ends_near_the_least(seed: int) -> None:
    """Prices of rows from 0, prices of rights of either sign: no plan of the linear programme,
    which holds every plan in whole jobs, has more value than L(p, t).
    The search ends within 1 % of the linear programme of it, and so near the least bound."""
    rng = np.random.default_rng(seed)
    drawn = case(rng, 4)
    relaxed = drawn.relaxed()
    for _ in range(5):
        p, t = rng.uniform(0, 1, drawn.c.R), rng.normal(0, 1, drawn.kinds)
        bound, u = drawn.bound(p, t)
        assert bound >= relaxed - SLACK
    at = KindPrices(p, t, u)
    p, t, _ = find_nearby_kind_prices(drawn.c, drawn.primary, drawn.secondary, at, 1e-4, math.inf)
    found = drawn.bound(p, t)[0]
    assert (p >= 0).all() and relaxed - SLACK <= found <= relaxed + 0.01 * max(1.0, relaxed)
