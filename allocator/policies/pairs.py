"""Pairs of jobs that a large round leaves out: good ones are added, the proof covers the others.

Every pair is priced at the prices of the dual (options/colocation/pairs.py). Pairs that break the
dual are added, and the dual is found again, until nearly none does. The remaining violation is
added to the bound, so that the bound holds for all pairs. A solver sees the pairs of the round
only. Its proof holds for all plans if the omitted pairs lose enough at these prices, because a plan
with a pair of loss d has at most the value bound - d.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from allocator.options.colocation.several_primaries import groups_of_options
from allocator.options.instance_building import (
    CompiledRound,
    compile_round,
    same_columns,
    with_pairs,
)
from allocator.policies.base import Task
from allocator.policies.memory import Memory
from formulations.bounds.lagrangian import Dual, evaluate
from formulations.colocation.prices import Programmes
from formulations.model.choices import Choices, choices
from formulations.model.linear import Floats, Ints

TURNS = 16
MOST = 20_000  # largest number of pairs that are added for a solver
LEAST = 1e-7  # relative: gaps below this are rounding errors
# shares of the asked gap that the bound over all pairs may exceed the linear programme by
ROUGH = 0.6
FINE = 0.1


def add_missing_pairs(task: Task, share: float = ROUGH) -> Task:
    """Return the task with the pairs that its dual lacks and a bound over all pairs.

    It is the given task if none are missing. `share` is the share of the gap by which the bound may
    exceed the best one.
    """
    if task.round.omitted_pairs is None:
        return task
    enough = max(LEAST, share * task.limits.gap)
    known_bound = task.known_bound
    until = task.share_of_time(0.5)
    start = (
        task.round.omitted_pairs.prices(task.round.model) if task.prices is None else task.prices
    )
    search = Programmes(task.choices, start, until)
    for _ in range(TURNS):
        answered = search.turn()
        here = _PairPrices.of(task.round, search.here)
        known_bound = min(known_bound, here.bound)
        if not answered or search.gap(known_bound) <= enough:
            break
        grown = search.grow()
        wider_round = with_pairs(task.round, here.primary, here.secondary)
        if len(wider_round.option) > len(task.round.option):
            search, task, grown = *_add_pairs(search, task, wider_round, until), True
        if not grown:
            break
    task = dataclasses.replace(task, known_bound=known_bound, bound_with_other_pairs=known_bound)
    vars(task).update(choices=search.c, dual=dataclasses.replace(search.here, values=search.x))
    return task


def _add_pairs(
    search: Programmes, task: Task, wider_round: CompiledRound, until: float
) -> tuple[Programmes, Task]:
    """Return search and task of a round with more pairs, which enter the programme at once."""
    place = same_columns(task.round, np.arange(len(task.round.option)), wider_round)
    inside = np.ones(len(wider_round.option), dtype=bool)
    inside[place] = search.inside
    secondary, primary = wider_round.instance.colocations
    inside[primary[inside[secondary]]] = True
    search = Programmes(
        choices(wider_round.model), np.zeros(wider_round.model.m), until, inside=inside
    )
    return search, dataclasses.replace(task, round=wider_round, prices=None)


def add_near_pairs(task: Task, plan: Ints | None) -> tuple[Task, Ints | None]:
    """Add up to MOST pairs that a better plan than a known one may need.

    Return the task, and the known plan in its columns.
    """
    if task.round.omitted_pairs is None or plan is None:
        return task, plan
    here = _PairPrices.of(task.round, task.dual)
    loss = max(0.0, here.bound - task.choices.value_of(plan)) * (1 + 1e-9) + LEAST * abs(here.bound)
    primary, secondary, least = task.round.omitted_pairs.pairs.within(
        here.reduced, here.u, loss, MOST
    )
    wider_round = with_pairs(task.round, primary, secondary)
    # a plan with a pair that is still left out loses more than `least`
    moved = dataclasses.replace(
        _move_task(task, wider_round),
        known_bound=min(task.known_bound, here.bound),
        bound_with_other_pairs=here.bound - least,
    )
    return moved, same_columns(task.round, plan, wider_round)


def bound_over_all_pairs(task: Task) -> float:
    """Return a bound on the value of all plans that the rules allow, with whichever pairs.

    It comes from the dual of a round that has all pairs.
    """
    if not task.round.has_all_pairs:
        groups = groups_of_options(task.round.problem, task.round.option_table)
        whole = compile_round(task.round.problem, groups=groups)
        task = Task(whole, task.limits, None, task.deadline)
    return (add_missing_pairs(task) if math.isinf(task.known_bound) else task).bound


def bound_at_prices(round_: CompiledRound, c: Choices, prices: Floats) -> float:
    """Return the Lagrangian bound of a round at any prices (m,), over all pairs.

    c is the round's model as choices.
    """
    dual = evaluate(c, prices)
    return dual.bound if round_.omitted_pairs is None else _PairPrices.of(round_, dual).bound


@dataclass(frozen=True)
class _PairPrices:
    """All pairs at the prices of a dual.

    Attributes
    ----------
    reduced : (n,)
        Reduced values of options/colocation/pairs.py.
    u : (J,)
        Values of jobs, raised so that no pair breaks the inequality.
    bound : float
        Bound over all pairs.
    primary, secondary
        Options of the pairs that broke the inequality.
    """

    reduced: Floats
    u: Floats
    bound: float
    primary: Ints
    secondary: Ints

    @staticmethod
    def of(round_: CompiledRound, dual: Dual) -> _PairPrices:
        omitted_pairs = round_.omitted_pairs
        assert omitted_pairs is not None
        reduced = omitted_pairs.reduced(round_, dual.prices)
        found = omitted_pairs.pairs.price(reduced, dual.reduced)
        return _PairPrices(
            reduced,
            dual.reduced + found.least,
            dual.bound + math.fsum(found.least.tolist()) * (1 + 1e-12),
            found.primary,
            found.secondary,
        )


def _move_task(task: Task, wider_round: CompiledRound) -> Task:
    """Return the task for a round with more pairs, from the prices of its dual."""
    memory = Memory.of(task.round.problem.objective, task.round.model, task.dual.prices)
    return dataclasses.replace(
        task, round=wider_round, prices=memory.row_prices(wider_round.model)[0]
    )
