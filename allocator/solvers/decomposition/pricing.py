"""The LP relaxation by column generation.

Only doubtful groups are in the LP; all other groups are priced in numpy. Every dual solution of the
small LP gives a valid Lagrangian bound (formulations/bounds/lagrangian), so the bound holds
whatever HiGHS does (Dantzig and Wolfe 1960). When a step makes the bound worse, pricing is
stabilised by a mixture of the best and the present prices (Wentges 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.solvers.decomposition.core import RestrictedMaster
from formulations.bounds.lagrangian import Dual, evaluate, project_prices, spread_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

ROUNDS = 8  # of pricing, at most


@dataclass(frozen=True)
class Relaxation:
    """The core after pricing.

    Attributes
    ----------
    core : RestrictedMaster
        The restricted model.
    dual : Dual
        Best prices and bound that were found.
    x : (k,)
        LP solution of the core.
    value : float
        Value of the LP.
    """

    core: RestrictedMaster
    dual: Dual
    x: Floats
    value: float

    def fractional(self) -> Ints:
        """Return the groups that the LP solution splits."""
        part = (self.x > 1e-6) & (self.x < 1 - 1e-6)
        return np.unique(self.core.choices.group[self.core.columns[: len(self.x)][part]])


def losses(choices: Choices, dual: Dual) -> Floats:
    """Return what each column loses against the best one of its group at the prices, (n,)."""
    p = project_prices(choices, dual.prices)
    reduced = choices.value - choices.matrix @ p
    return np.asarray(
        np.maximum(np.repeat(dual.reduced, np.diff(choices.start)) - reduced, 0.0), dtype=np.float64
    )


def select_doubtful_columns(
    choices: Choices, dual: Dual, loss: Floats, want: int
) -> tuple[Ints, Bools]:
    """Return about `want` columns of least loss and the best ones of their groups.

    Also return which groups these are, (J,).
    """
    best = np.zeros(choices.n, dtype=bool)
    best[dual.choice[dual.choice >= 0]] = True
    nothing = np.where((dual.choice >= 0) & ~choices.mandatory, dual.reduced, np.inf)
    other = np.concatenate([np.where(best, np.inf, loss), nothing])
    limit = np.partition(other, want)[want] if want < len(other) else np.inf
    near = ~best & (loss <= limit)
    free = nothing <= limit
    free[choices.group[near]] = True
    columns = np.flatnonzero(near | (best & free[choices.group]))
    return columns, free


def select_largest_groups(choices: Choices, most: int) -> Ints:
    """Return the most valuable groups, with about `most` columns in all.

    They decide how well the other groups can be packed.
    """
    size = np.diff(choices.start)
    top = np.zeros(choices.J)
    top[choices.filled] = (
        np.maximum.reduceat(choices.value, choices.start[choices.filled]) if choices.n else 0.0
    )
    order = np.argsort(-top, kind="stable")
    return order[: int(np.searchsorted(np.cumsum(size[order]), most))]


def solve_relaxation(
    choices: Choices, dual: Dual, value_scale: float, tol: float, want: int
) -> Relaxation | None:
    """Solve the LP to a relative distance of tol between its value and the bound.

    The result is None if HiGHS fails. The LP starts with about `want` columns.
    """
    columns, free = select_doubtful_columns(choices, dual, losses(choices, dual), want)
    big = select_largest_groups(choices, min(want // 2, choices.n // 8))
    free[big] = True
    columns = np.union1d(columns, choices.columns_of(big))
    kept = dual.choice[free]
    columns = np.union1d(columns, kept[kept >= 0])
    core = RestrictedMaster(choices, free, dual.choice, columns, value_scale)
    penalty = 4.0 * np.maximum(
        np.abs(project_prices(choices, dual.prices)), 0.3 * _typical(choices, value_scale)
    )
    core.load(False, penalty)
    best = dual
    added = False
    it = 0
    while True:
        if not core.run(added):
            return None
        it += 1
        x, p, u = core.solution()
        value = core.objective()
        broken = core.broken()
        here = evaluate(choices, spread_prices(choices, p))
        if here.bound > best.bound * (1 + 2e-6) and it < ROUNDS:
            half = evaluate(choices, 0.7 * best.prices + 0.3 * spread_prices(choices, p))
            best = min(best, half, key=lambda d: d.bound)
        best = min(best, here, key=lambda d: d.bound)
        close = best.bound - value <= tol * abs(best.bound)
        if broken > 1e-6 and best.bound - value <= 1e-3 * abs(best.bound) and it < ROUNDS + 4:
            penalty = 8.0 * penalty
            core.set_penalty(penalty)
            added = True
        elif close or it >= ROUNDS:
            break
        new, groups, _ = find_violated_columns(
            core, here, project_prices(choices, spread_prices(choices, p)), u
        )
        if not len(new) and not len(groups):
            if broken > 1e-6 and it < ROUNDS + 4:
                continue
            break
        core.add(new, groups)
        added = True
    return Relaxation(core, best, x, value)


def find_violated_columns(
    core: RestrictedMaster,
    here: Dual,
    p: Floats,
    u: Floats,
    which: Bools | None = None,
    most: int = 1500,
) -> tuple[Ints, Ints, float]:
    """Find the columns that the LP lacks.

    They are the best columns of the groups that the LP values too low; if there are more than
    `most`, those with the largest shortfall. `which` (J,) restricts the groups; None: all. Return
    the columns, their groups, and what the LP may still gain by missing columns.
    """
    c = core.choices
    reduced = np.append(c.value - c.matrix @ p, 0.0)
    now = np.where(core.free, np.where(c.mandatory, u, np.maximum(u, 0.0)), reduced[core.fixed])
    short = here.reduced - now if which is None else np.where(which, here.reduced - now, 0.0)
    missing = float(short[short > 0].sum())
    at = np.flatnonzero(
        (short > 1e-7 * core.value_scale) & ((here.choice < 0) | ~core.has[here.choice])
    )
    at = at[(here.choice[at] >= 0) | ~core.free[at]]
    if len(at) > most:
        at = at[np.argpartition(-short[at], most)[:most]]
    out = here.choice[at]
    return np.unique(out[out >= 0]), at, missing


def _typical(choices: Choices, value_scale: float) -> Floats:
    """Return the mean value per mean use of each row, (R,)."""
    return np.asarray(value_scale / choices.unit, dtype=np.float64)
