"""Plans in which jobs share GPUs, from the values of a linear programme: pairs move as one.

A pair seen as one option of its host (worth what both are worth) leaves a round without guests, in
which the moves of rounding.py work: a host that moves away leaves its guest behind, which is then
free to go where it likes. In turn:

    pairs as one -> repair and fill -> guests for options that have none -> ...      until nothing
        gets better
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from formulations.choices import Choices, choices
from formulations.lagrangian import Dual
from formulations.linear import Bools, Floats, Ints
from formulations.pairing import Guests, by_scipy, shares
from formulations.rounding import fill, repair, round_dual

EPS = 1e-6
TURNS = 24
STEPS = (10, 4, 40)  # parts of what is fractional, of which a dive settles one at a time


def round_pairs(
    c: Choices, dual: Dual, until: float = math.inf, enough: float = 0.0
) -> Ints | None:
    """The plan that the values of the programme suggest, repaired and filled: the best of some
    dives, or the first with a relative gap of `enough`. Without values, or where all get stuck, as
    rounding.round_dual; None where that does."""
    best: Ints | None = None
    for steps in STEPS if dual.values is not None else ():
        assert dual.values is not None
        plan = improve_paired(c, _dive(c, dual.values, steps, until), dual.prices, until)
        if plan is not None and (best is None or c.value_of(plan) > c.value_of(best)):
            best = plan
        if time.monotonic() >= until or (
            best is not None and dual.bound - c.value_of(best) <= enough * abs(c.value_of(best))
        ):
            break
    return round_dual(c, dual, until) if best is None else best


def _dive(c: Choices, x: Floats, steps: int, until: float) -> Ints:
    """A plan (J,) from the values of a programme: what is whole stays, one of so many parts of the
    rest is settled, the largest shares first and only what still fits, and the programme of what is
    left is solved again, some times."""
    plan, open_ = np.full(c.J, -1), np.ones(c.J, dtype=bool)
    for turn in range(TURNS):
        whole = np.flatnonzero(x > 1 - EPS)
        plan[c.group[whole]] = whole
        part = np.flatnonzero((x > EPS) & (x <= 1 - EPS))
        open_ &= np.bincount(c.group[part], minlength=c.J) > 0
        if not open_.any():
            return plan
        order = part[np.lexsort((part, -c.value[part], -np.round(x[part], 6)))]
        use, settled = c.use_of(plan), 0
        share = max(1, len(order) // steps) if turn < TURNS - 1 else len(order)
        for o in order.tolist():
            row = slice(c.matrix.indptr[o], c.matrix.indptr[o + 1])
            at, amount = c.matrix.indices[row], c.matrix.data[row]
            if open_[c.group[o]] and (use[at] + amount <= c.high[at]).all():
                plan[c.group[o]], open_[c.group[o]] = o, False
                use[at] += amount
                settled += 1
                if settled >= share:
                    break
        columns = c.columns_of(np.flatnonzero(open_))
        if not settled or not len(columns) or time.monotonic() >= until:
            return plan
        model, held = c.model.take(columns), c.model.activity(c.to_x(plan))
        taken = held > 0
        taken[c.rows] = False
        found = by_scipy(
            replace(
                model, lower=np.where(taken, -np.inf, model.lower - held), upper=model.upper - held
            ),
            until - time.monotonic(),
        )
        if found is None:
            return plan
        x = np.zeros(c.n)
        x[columns] = found[0]
    return plan


def improve_paired(
    c: Choices, plan: Ints, prices: Floats, until: float = math.inf, turns: int = 4
) -> Ints | None:
    """A plan near the given one (J,) that keeps all rows, and better where moves can do it; None
    if stuck.
    """
    g, best = Guests.of(c), None
    plan = _kept(c, g, plan)
    for _ in range(turns):
        host, guest = _pairs(g, plan)
        view, columns = _as_one(c, g, host, guest)
        place = np.full(c.n + 1, -1)
        place[columns] = np.arange(len(columns))
        own = np.where(np.isin(plan, guest), -1, plan)
        alone = repair(view, place[own], prices, until)
        if alone is None:
            break
        alone = fill(view, alone, prices, until=until)
        now = np.append(columns, -1)[alone]
        stays = np.isin(host, now)
        now[c.group[guest[stays]]] = guest[stays]
        now = _joined(c, g, now)
        if best is not None and c.value_of(now) <= c.value_of(best) * (1 + 1e-9):
            break
        best = plan = now
    return best if best is not None and c.feasible(best) else None


def filled(c: Choices, plan: Ints, prices: Floats, until: float = math.inf) -> Ints:
    """rounding.fill of any round: where jobs may share, pairs move as one."""
    if not shares(c.model):
        return fill(c, plan, prices, until=until)
    better = improve_paired(c, plan, prices, until)
    return plan if better is None or c.value_of(better) < c.value_of(plan) else better


def _pairs(g: Guests, plan: Ints) -> tuple[Ints, Ints]:
    """(hosts' columns, guests' columns) of a plan."""
    at = np.flatnonzero(np.isin(g.guest, plan))
    return g.host[at], g.guest[at]


def _kept(c: Choices, g: Guests, plan: Ints) -> Ints:
    """The plan without guests whose host is not there or has another guest, of the best worth."""
    at = np.flatnonzero(np.isin(g.guest, plan))
    at = at[np.lexsort((-c.value[g.guest[at]], g.host[at]))]
    first = np.append(True, np.diff(g.host[at]) != 0)[: len(at)]
    gone = at[~(first & np.isin(g.host[at], plan))]
    plan = plan.copy()
    plan[c.group[g.guest[gone]]] = -1
    return plan


def _as_one(c: Choices, g: Guests, host: Ints, guest: Ints) -> tuple[Choices, Ints]:
    """The round in which these pairs are options of their hosts and nobody else can be a guest; and
    its columns.

    Groups of guests own nothing there, so those that must run go on as they are with their host."""
    own: Bools = np.ones(c.n, dtype=bool)
    own[g.guest] = False
    own[np.isin(c.group, c.group[guest])] = False
    value, must = c.value.copy(), c.must.copy()
    value[host] += c.value[guest]
    # a host whose guest must run may not leave it behind
    bound = c.group[host[must[c.group[guest]]]]
    must[c.group[guest]] = False
    own[np.isin(c.group, bound)] = False
    own[host] = True
    must[bound] = True
    columns = np.flatnonzero(own)
    part = replace(c.model, value=value).take(columns)
    lower, upper = part.lower.copy(), part.upper.copy()
    tied = np.setdiff1d(c.rows, c.rows[g.rest])
    lower[tied], upper[tied] = -np.inf, np.inf
    lower[g.groups] = np.where(must, 1.0, -np.inf)
    # a guest that keeps is kept
    kept = np.bincount(c.matrix[guest].indices, c.matrix[guest].data, c.R)[g.rest]
    lower[c.rows[g.rest]] -= kept
    upper[c.rows[g.rest]] -= kept
    return choices(replace(part, lower=lower, upper=upper)), columns


def _joined(c: Choices, g: Guests, plan: Ints) -> Ints:
    """The plan with guests, the best first, for options that have none, of groups that have
    nothing.
    """
    plan = plan.copy()
    at = np.flatnonzero(
        np.isin(g.host, plan) & (plan[c.group[g.guest]] < 0) & (c.value[g.guest] > 0)
    )
    ridden = set(g.host[np.isin(g.guest, plan)].tolist())
    for k in at[np.argsort(-c.value[g.guest[at]], kind="stable")].tolist():
        if g.host[k] not in ridden and plan[c.group[g.guest[k]]] < 0:
            plan[c.group[g.guest[k]]] = g.guest[k]
            ridden.add(int(g.host[k]))
    return plan
