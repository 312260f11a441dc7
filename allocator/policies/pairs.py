"""Pairs of jobs that a large round leaves out (options/round.py): those that pay are added, all
others are proven to.

At the prices of the dual every pair is priced (options/colocation.py). What breaks the dual is
added and the dual found again, until nearly nothing does; how far the rest breaks it is added to
the bound, which so holds for all pairs. A solver sees the pairs of the round: what it proves holds
for all plans if those left out lose enough at these prices, as a plan with a pair of loss d is
worth at most bound - d.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

import numpy as np

from allocator.options.round import Round, compile_round, same_columns, with_pairs
from allocator.policies.base import Task
from allocator.policies.memory import Memory
from formulations.choices import Choices, choices
from formulations.lagrangian import Dual, evaluate
from formulations.linear import Floats, Ints
from formulations.pairing import Programmes

TURNS = 16
MOST = 20_000  # pairs that are added for a solver at most
LEAST = 1e-7  # relative: gaps below this are rounding errors
# shares of the asked gap: distance of the bound over all pairs to a linear programme
ROUGH, FINE = 0.6, 0.1


def with_missing_pairs(task: Task, share: float = ROUGH) -> Task:
    """The task with the pairs that its dual lacks, and with a bound over all pairs: the given one
    where it has them.

    share: of the asked gap that the bound may lie above the best one.
    """
    if task.round.rest is None:
        return task
    now, enough, known = time.monotonic(), max(LEAST, share * task.limits.gap), task.known
    until = now + 0.5 * max(0.0, task.deadline - now)
    start = task.round.rest.prices(task.round.model) if task.prices is None else task.prices
    search = Programmes(task.choices, start, until)
    for _ in range(TURNS):
        answered = search.turn()
        here = _Prices.of(task.round, search.here)
        known = min(known, here.bound)
        if not answered or search.gap(known) <= enough:
            break
        grown = search.grow()
        wider = with_pairs(task.round, here.host, here.guest)
        if len(wider.option) > len(task.round.option):
            search, task, grown = *_wider(search, task, wider, until), True
        if not grown:
            break
    task = dataclasses.replace(task, known=known, others=known)
    vars(task).update(choices=search.c, dual=dataclasses.replace(search.here, values=search.x))
    return task


def _wider(search: Programmes, task: Task, wider: Round, until: float) -> tuple[Programmes, Task]:
    """Both for a round with more pairs, which come into the programme at once."""
    place = same_columns(task.round, np.arange(len(task.round.option)), wider)
    inside = np.ones(len(wider.option), dtype=bool)
    inside[place] = search.inside
    rides = np.flatnonzero(inside & (wider.instance.host >= 0))
    inside[wider.instance.host[rides]] = True
    search = Programmes(choices(wider.model), np.zeros(wider.model.m), until, inside=inside)
    return search, dataclasses.replace(task, round=wider, prices=None)


def with_near_pairs(task: Task, plan: Ints | None) -> tuple[Task, Ints | None]:
    """The task with all pairs, up to MOST, that a plan better than a known one may need; and that
    plan in its columns."""
    if task.round.rest is None or plan is None:
        return task, plan
    here = _Prices.of(task.round, task.dual)
    loss = max(0.0, here.bound - task.choices.value_of(plan)) * (1 + 1e-9) + LEAST * abs(here.bound)
    host, guest, least = task.round.rest.pairs.within(here.reduced, here.u, loss, MOST)
    wider = with_pairs(task.round, host, guest)
    # a plan with a pair that is still left out loses more than `least`
    moved = dataclasses.replace(
        _moved(task, wider), known=min(task.known, here.bound), others=here.bound - least
    )
    return moved, same_columns(task.round, plan, wider)


def whole_bound(task: Task) -> float:
    """No plan that the rules allow is worth more, with whichever pairs; from the dual of a round
    that has them all.
    """
    if not task.round.covers:
        task = Task(compile_round(task.round.problem), task.limits, None, task.deadline)
    return (with_missing_pairs(task) if math.isinf(task.known) else task).bound


def bound_at_prices(round_: Round, c: Choices, prices: Floats) -> float:
    """The Lagrangian bound of a round at any prices (m,), over all pairs. c: the round's model
    as choices.
    """
    dual = evaluate(c, prices)
    return dual.bound if round_.rest is None else _Prices.of(round_, dual).bound


@dataclass(frozen=True)
class _Prices:
    """All pairs at the prices of a dual: reduced (n,) and u (J,) as of colocation.py, u raised so
    that no pair breaks it, with the bound; host, guest: options of pairs that broke it."""

    reduced: Floats
    u: Floats
    bound: float
    host: Ints
    guest: Ints

    @staticmethod
    def of(round_: Round, dual: Dual) -> _Prices:
        rest = round_.rest
        assert rest is not None
        reduced = rest.reduced(round_, dual.prices)
        found = rest.pairs.price(reduced, dual.reduced)
        return _Prices(
            reduced,
            dual.reduced + found.least,
            dual.bound + math.fsum(found.least.tolist()) * (1 + 1e-12),
            found.host,
            found.guest,
        )


def _moved(task: Task, wider: Round) -> Task:
    """The task for a round with more pairs, from the prices of its dual."""
    memory = Memory.of(task.round.problem.objective, task.round.model, task.dual.prices)
    return dataclasses.replace(task, round=wider, prices=memory.row_prices(wider.model)[0])
