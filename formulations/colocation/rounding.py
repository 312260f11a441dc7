"""Plans with colocated jobs, from the values of a linear programme: pairs move as one.

A pair becomes one option of its primary job, with the value of both jobs. What remains is a round
without secondary jobs, for which formulations/primal/rounding.py has moves. A primary job that
moves away leaves its secondary job behind, which is then free to move as well. The steps repeat
until nothing improves:

    merge pairs -> repair and fill -> add secondary jobs to options that have none -> ...
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from formulations.bounds.lagrangian import Dual, best_columns, minimise_dual, project_prices
from formulations.colocation.prices import PairColumns, by_scipy, merge_pairs
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, begins_run
from formulations.primal.rounding import BEYOND, fill, repair, round_dual

EPS = 1e-6
TURNS = 24
CLOSE = 1e-4  # gap of the round without pairs that is small enough
PASSES = 4  # of improvement, at most
STEPS = (10, 4, 40)  # for each dive: parts into which it divides the fractional columns
CARES = (0.0, 10.0, 1e6)  # for each matching: weight of what a pair loses
MIX = 0.5  # share of the given prices in those of the last matching


def round_pairs(
    c: Choices,
    dual: Dual,
    until: float = math.inf,
    enough: float = 0.0,
    beyond: int = BEYOND,
) -> Ints | None:
    """Return the plan that the values of the programme suggest, repaired and filled.

    It is the best plan of some dives, or the first with a relative gap of at most `enough`. Without
    values the pairs are matched at the prices. If all that fails, it is the plan of
    `rounding.round_dual`, which may be None. That one is improved in `beyond` passes once its gap
    is at most `enough`.
    """
    best: Ints | None = None
    enough_value = dual.bound / (1.0 + math.copysign(enough, dual.bound))
    for start in _starts(c, dual, until):
        if not beyond and c.value_of(start) >= enough_value and c.feasible(start):
            return start
        plan = improve_paired(c, start, dual.prices, until)
        if plan is not None and (best is None or c.value_of(plan) > c.value_of(best)):
            best = plan
        if time.monotonic() >= until or (
            best is not None and dual.bound - c.value_of(best) <= enough * abs(c.value_of(best))
        ):
            break
    return round_dual(c, dual, until, enough, beyond) if best is None else best


def _starts(c: Choices, dual: Dual, until: float) -> Iterator[Ints]:
    """Yield choices (J,) that are to be repaired."""
    if dual.values is not None:
        for steps in STEPS:
            yield _dive(c, dual.values, steps, until)
    elif c.model.has_pairs:
        for care in CARES:
            plan, there = _decide_others(c, _match_pairs(c, dual, care), dual.prices, until)
            yield plan
            if care == 0.0:
                balanced = MIX * dual.prices + (1 - MIX) * there
        yield _decide_others(
            c, _match_pairs(c, replace(dual, prices=balanced), 0.0), balanced, until
        )[0]


def _match_pairs(c: Choices, dual: Dual, care: float) -> Ints:
    """Return the best choice (J,) at the prices of a dual, with pairs by descending gain.

    The gain of a pair is what both jobs have more together than alone, less `care` times what they
    lose compared with what the dual promises to both. No job is in two pairs.
    """
    g = PairColumns.of(c)
    p = project_prices(c, dual.prices)
    p[g.row] = 0.0
    reduced = c.value - c.matrix @ p
    own = np.ones(c.n, bool)
    own[g.secondary] = False
    alone, choice = best_columns(c, np.where(own, reduced, -np.inf))
    choice[~np.isfinite(alone)] = -1
    one = np.flatnonzero(~g.takes_more)
    primary, secondary = g.primary[one], g.secondary[one]
    first, second = c.group[primary], c.group[secondary]
    together = reduced[primary] + reduced[secondary]
    gain = together - alone[first] - alone[second]
    loss = dual.reduced[first] + dual.reduced[second] - together
    order = np.argsort(care * loss - gain, kind="stable")
    order = order[gain[order] > 0]
    free = np.ones(c.J, bool)
    for h, g_, x, y in zip(
        *(a[order].tolist() for a in (first, second, primary, secondary)), strict=True
    ):
        if free[h] and free[g_]:
            free[h] = free[g_] = False
            choice[h], choice[g_] = x, y
    return choice


def _dive(c: Choices, x: Floats, steps: int, until: float) -> Ints:
    """Return a plan (J,) from the values x (n,) of a programme.

    Columns with a value of 1 are taken. Of the fractional ones, one part of `steps` is then taken,
    the largest values first, as far as they fit. The programme of the remaining groups is solved
    again, and so on.
    """
    plan = np.full(c.J, -1)
    open_ = np.ones(c.J, bool)
    for turn in range(TURNS):
        whole = np.flatnonzero(x > 1 - EPS)
        plan[c.group[whole]] = whole
        part = np.flatnonzero((x > EPS) & (x <= 1 - EPS))
        open_ &= np.bincount(c.group[part], minlength=c.J) > 0
        if not open_.any():
            return plan
        order = part[np.lexsort((part, -c.value[part], -np.round(x[part], 6)))]
        use = c.use_of(plan)
        settled = 0
        share = max(1, len(order) // steps) if turn < TURNS - 1 else len(order)
        for o in order.tolist():
            row = slice(c.matrix.indptr[o], c.matrix.indptr[o + 1])
            at = c.matrix.indices[row]
            amount = c.matrix.data[row]
            if open_[c.group[o]] and (use[at] + amount <= c.high[at]).all():
                plan[c.group[o]], open_[c.group[o]] = o, False
                use[at] += amount
                settled += 1
                if settled >= share:
                    break
        columns = c.columns_of(np.flatnonzero(open_))
        if not settled or not len(columns) or time.monotonic() >= until:
            return plan
        model = c.model.take(columns)
        held = c.model.activity(c.to_x(plan))
        taken = held > 0
        taken[c.rows] = False
        solution = by_scipy(
            replace(
                model, lower=np.where(taken, -np.inf, model.lower - held), upper=model.upper - held
            ),
            until - time.monotonic(),
        )
        if solution is None:
            return plan
        x = np.zeros(c.n)
        x[columns] = solution[0]
    return plan


def _decide_others(c: Choices, plan: Ints, prices: Floats, until: float) -> tuple[Ints, Floats]:
    """Return the best known plan (J,) with no other pairs than those of the given one.

    Also return prices (m,) of the round in which each pair is an option of its primary job.
    """
    g = PairColumns.of(c)
    primary, secondary = _pairs_of_plan(g, plan)
    view, columns = merge_pairs(c, g, primary, secondary)
    there = minimise_dual(view, prices, until, close=CLOSE)
    alone = round_dual(view, there, until, CLOSE, beyond=0)
    if alone is None:
        return plan, there.prices
    now = np.append(columns, -1)[alone]
    stays = np.isin(primary, now)
    now[c.group[secondary[stays]]] = secondary[stays]
    return now, there.prices


def improve_paired(c: Choices, plan: Ints, prices: Floats, until: float = math.inf) -> Ints | None:
    """Return a plan near the given one (J,) that keeps all rows, improved by moves.

    The result is None if the repair fails.
    """
    g = PairColumns.of(c)
    best = None
    plan = _drop_orphaned_secondaries(c, g, plan)
    for _ in range(PASSES):
        primary, secondary = _pairs_of_plan(g, plan)
        view, columns = merge_pairs(c, g, primary, secondary)
        place = np.full(c.n + 1, -1)
        place[columns] = np.arange(len(columns))
        own = np.where(np.isin(plan, secondary), -1, plan)
        alone = repair(view, place[own], prices, until)
        if alone is None:
            fixed = secondary[g.takes_more[np.isin(g.secondary, plan)]]
            if not len(fixed):
                break
            plan = plan.copy()
            plan[c.group[fixed]] = -1
            continue
        alone = fill(view, alone, prices, until=until)
        now = np.append(columns, -1)[alone]
        stays = np.isin(primary, now)
        now[c.group[secondary[stays]]] = secondary[stays]
        now = _add_secondaries(c, g, now)
        if best is not None and c.value_of(now) <= c.value_of(best) * (1 + 1e-9):
            break
        best = plan = now
    return best if best is not None and c.feasible(best) else None


def fill_plan(c: Choices, plan: Ints, prices: Floats) -> Ints:
    """Improve a feasible plan as `rounding.fill` does; where jobs share GPUs, pairs move as one."""
    if not c.model.has_pairs:
        return fill(c, plan, prices)
    better = improve_paired(c, plan, prices)
    return plan if better is None or c.value_of(better) < c.value_of(plan) else better


def _pairs_of_plan(g: PairColumns, plan: Ints) -> tuple[Ints, Ints]:
    """Return the columns of primary jobs and those of secondary jobs of a plan."""
    at = np.flatnonzero(np.isin(g.secondary, plan))
    return g.primary[at], g.secondary[at]


def _drop_orphaned_secondaries(c: Choices, g: PairColumns, plan: Ints) -> Ints:
    """Drop secondary jobs whose primary job is absent or has a better secondary job."""
    at = np.flatnonzero(np.isin(g.secondary, plan))
    at = at[np.lexsort((-c.value[g.secondary[at]], g.primary[at]))]
    first = begins_run(g.primary[at])
    gone = at[~(first & np.isin(g.primary[at], plan))]
    plan = plan.copy()
    plan[c.group[g.secondary[gone]]] = -1
    return plan


def _add_secondaries(c: Choices, g: PairColumns, plan: Ints) -> Ints:
    """Add secondary jobs, the best first, to options that have none.

    Groups that already have something do not take part.
    """
    plan = plan.copy()
    at = np.flatnonzero(
        np.isin(g.primary, plan) & (plan[c.group[g.secondary]] < 0) & (c.value[g.secondary] > 0)
    )
    taken_primaries = set(g.primary[np.isin(g.secondary, plan)].tolist())
    takes_more = g.takes_more
    for k in at[np.argsort(-c.value[g.secondary[at]], kind="stable")].tolist():
        if g.primary[k] in taken_primaries or plan[c.group[g.secondary[k]]] >= 0:
            continue
        needed = [int(g.primary[k])]
        if takes_more[k]:
            needed = g.primary[g.secondary == g.secondary[k]].tolist()
            if not taken_primaries.isdisjoint(needed) or not _fits(c, plan, int(g.secondary[k])):
                continue
        plan[c.group[g.secondary[k]]] = g.secondary[k]
        taken_primaries.update(needed)
    return plan


def _fits(c: Choices, plan: Ints, column: int) -> bool:
    """Return whether the plan keeps all `at most` rows with one more column."""
    at, use = c.matrix.entries_of(column)
    more: Bools = c.use_of(plan)[at] + use <= c.high[at] + EPS
    return bool(more.all())
