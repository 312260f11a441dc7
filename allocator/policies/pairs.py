"""Pairs of jobs that a large round leaves out: near ones are added, the proof covers the others.

Every pair is priced at prices of rows and of pairs of kinds (options/colocation/pairs.py,
formulations/colocation/kind_prices.py). What pairs still exceed these prices by is added to the
bound, so that the bound holds for all pairs. The pairs that lose least at the prices are added to
the round. A plan with a pair of loss d has at most the value bound - d, so a bound on the plans of
the round holds for all plans if the pairs that are left out lose enough.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

import numpy as np

from allocator.options.colocation.several_primaries import groups_of_options
from allocator.options.instance_building import (
    CompiledRound,
    compile_round,
    same_columns,
    with_pairs,
)
from allocator.policies.base import Memory, Task
from formulations.bounds.lagrangian import evaluate, spread_prices
from formulations.colocation.kind_prices import KindPrices, find_nearby_kind_prices
from formulations.colocation.prices import (
    prices_without_pairs,
    solve_paired_dual,
    with_pair_rows,
)
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints

TURNS = 8
MOST = 20_000  # largest number of pairs that are added at once
LEAST = 1e-7  # relative: gaps below this are rounding errors
# share of the asked gap that another turn of the search for prices has to gain
SHARE = 0.2
TIGHT = 1e-4  # gap below which prices of kinds are not exact enough
PROGRAMMES = 16
FINE = 0.1  # share of the asked gap by which the bound may exceed the linear programme


def add_missing_pairs(task: Task, missing: float = SHARE) -> Task:
    """Return the task with the pairs that a good plan may need, and a bound over all pairs.

    It is the given task if none are missing. The search for prices ends once pairs of kinds without
    a known price add no more to the bound than the share `missing` of the asked gap, or if another
    turn does not help.
    """
    if task.round.omitted_pairs is None:
        return task
    here = _find_prices(task, max(LEAST, SHARE * task.limits.gap), missing * task.limits.gap)
    task = _with_near_pairs(task, here, max(LEAST, task.limits.gap) * abs(here.bound))
    return tighten_bound(task) if task.limits.gap < TIGHT else task


def tighten_bound(task: Task) -> Task:
    """Return the task with the prices of a linear programme, and the pairs that it needs."""
    enough, until = max(LEAST, FINE * task.limits.gap), task.share_of_time(0.5)
    for _ in range(PROGRAMMES):
        c = task.choices
        dual = solve_paired_dual(c, task.prices, until, close=enough)
        here = _PairPrices.of(task.round, c, dual.prices)
        bound = min(task.known_bound, here.bound)
        task = dataclasses.replace(
            task, known_bound=bound, bound_with_other_pairs=bound, known_dual=dual
        )
        value = -math.inf if dual.values is None else float(c.value @ dual.values)
        assert task.round.omitted_pairs is not None
        more = task.round.omitted_pairs.pairs.match(here.reduced, dual.reduced)
        if bound - value <= enough * abs(bound) or not len(more[0]) or time.monotonic() >= until:
            break
        task = _widen(task, *more, here.prices)
    return task


def _find_prices(task: Task, enough: float, missing: float) -> _PairPrices:
    """Return prices of a round with a low bound over all pairs.

    `enough` is the relative improvement of the bound that does not matter, `missing` the share of
    the bound that pairs of kinds without a known price may have.
    """
    c, until = task.choices, task.share_of_time(0.5)
    prices = prices_without_pairs(c, until) if task.prices is None else task.prices
    best = here = _PairPrices.of(task.round, c, prices)
    assert task.round.omitted_pairs is not None
    sides = task.round.omitted_pairs.terms(task.round)
    for _ in range(TURNS):
        at = KindPrices(here.prices[c.rows], here.right, here.u)
        p, right, is_inside = find_nearby_kind_prices(c, *sides, at, enough, until)
        here = _PairPrices.of(task.round, c, spread_prices(c, p), right)
        gain = best.bound - here.bound
        best = here if gain > 0 else best
        is_settled = is_inside and here.missing < missing * abs(best.bound)
        if gain <= enough * abs(best.bound) or is_settled or time.monotonic() >= until:
            break
    return best


def _with_near_pairs(task: Task, here: _PairPrices, loss: float) -> Task:
    """Return the task with the pairs that lose at most `loss` at these prices, MOST at most.

    Those of a matching by gain are always among them.
    """
    assert task.round.omitted_pairs is not None
    primary, secondary, least = task.round.omitted_pairs.pairs.within(
        here.reduced, here.u, loss, MOST
    )
    also = task.round.omitted_pairs.pairs.match(here.reduced, here.alone)
    primary, secondary = np.append(primary, also[0]), np.append(secondary, also[1])
    wider = _widen(task, primary, secondary, here.prices)
    wider = dataclasses.replace(
        wider,
        known_bound=min(task.known_bound, here.bound),
        # a plan with a pair that is still left out loses more than `least`
        bound_with_other_pairs=here.bound - least,
    )
    assert wider.prices is not None
    dual = with_pair_rows(wider.choices, wider.prices, here.u)
    # a plan is measured against the bound over all pairs
    return dataclasses.replace(wider, known_dual=dataclasses.replace(dual, bound=here.bound))


def _widen(task: Task, primary: Ints, secondary: Ints, prices: Floats) -> Task:
    """Return the task with more pairs, given by options, and with prices (m,) of its old rows."""
    wider_round = with_pairs(task.round, primary, secondary)
    memory = Memory.of(task.round.problem.objective, task.round.model, prices)
    prices = memory.row_prices(wider_round.model)[0]
    return dataclasses.replace(task, round=wider_round, prices=prices, known_dual=None)


def add_near_pairs(task: Task, plan: Ints | None) -> tuple[Task, Ints | None]:
    """Add up to MOST pairs that a better plan than a known one may need.

    Return the task, whose prices come from a linear programme, and the known plan in its columns.
    """
    if task.round.omitted_pairs is None or plan is None:
        return task, plan
    here = _PairPrices.of(task.round, task.choices, task.dual.prices)
    bound = min(task.known_bound, here.bound)
    loss = max(0.0, here.bound - task.choices.value_of(plan)) * (1 + 1e-9) + LEAST * abs(bound)
    wider = dataclasses.replace(_with_near_pairs(task, here, loss), known_dual=None)
    return wider, same_columns(task.round, plan, wider.round)


def bound_over_all_pairs(task: Task) -> float:
    """Return a bound on the value of all plans that the rules allow, with whichever pairs.

    It comes from the dual of a round that has all pairs.
    """
    if not task.round.has_all_pairs:
        groups = groups_of_options(task.round.option_table)
        whole = compile_round(task.round.problem, groups=groups)
        task = Task(whole, task.limits, None, task.deadline)
    return (add_missing_pairs(task) if math.isinf(task.known_bound) else task).bound


def bound_at_prices(round_: CompiledRound, c: Choices, prices: Floats) -> float:
    """Return the Lagrangian bound of a round at any prices (m,), over all pairs.

    c is the round's model as choices.
    """
    if round_.omitted_pairs is None:
        return evaluate(c, prices).bound
    return _PairPrices.of(round_, c, prices).bound


@dataclass(frozen=True)
class _PairPrices:
    """All pairs at the prices of a round.

    Attributes
    ----------
    prices : (m,)
        Prices of the rows.
    reduced : (n,)
        Reduced values of options/colocation/pairs.py.
    alone : (J,)
        Values of jobs with GPUs of their own.
    u : (J,)
        Values of jobs, raised so that no pair breaks the inequality.
    right : (K,)
        Prices of the right to a secondary job by pair of kinds, nan where none is known.
    bound : float
        Bound over all pairs.
    missing : float
        The part of the bound that comes from pairs of kinds without a known price.
    """

    prices: Floats
    reduced: Floats
    alone: Floats
    u: Floats
    right: Floats
    bound: float
    missing: float

    @staticmethod
    def of(
        round_: CompiledRound, c: Choices, prices: Floats, right: Floats | None = None
    ) -> _PairPrices:
        """Price all pairs; `right` (K,) are known prices of rights, or nan."""
        omitted_pairs = round_.omitted_pairs
        assert omitted_pairs is not None
        dual = evaluate(c, prices)
        reduced = omitted_pairs.reduced(round_, dual.prices)
        pairs = omitted_pairs.pairs
        known = np.full(len(pairs.alike), np.nan) if right is None else right
        paid = pairs.at_rights(reduced, dual.reduced, known)
        priced = pairs.price(reduced, dual.reduced + paid)
        total, missing = (
            math.fsum(x.tolist()) * (1 + 1e-12) for x in (paid + priced.least, priced.least)
        )
        return _PairPrices(
            dual.prices,
            reduced,
            dual.reduced,
            dual.reduced + paid + priced.least,
            np.where(np.isnan(known), priced.right, known),
            dual.bound + total,
            missing,
        )
