"""Renting whole GPUs on a budget: widths 1, 2, 3 ... or the sizes of a table, over several GPU types with prices.

    min  sum_i w_i rho_i sum_o z_io / s_o    s.t.   sum_i rho_i sum_o z_io c_o k_o / s_o <= b,   sum_o z_io = 1,  z >= 0

over options o = (row, k), z_io the share of the jobs of class i that run so. It is the linear relaxation of a
multiple-choice knapsack: exact without a solver by the frontier of each class and its steps in order of their slopes;
only the step that the budget cuts mixes two options, of one class (Sinha and Zoltners 1979, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.frontier import frontier, slopes
from formulations.linear import Floats, Ints
from formulations.rental import SAME, Classes, Plan, TooLittle
from formulations.rental import plan as continuous
from formulations.rental_speed import TABLE

ROOM = 4        # widths beyond the best fractional one that are looked at first


@dataclass(frozen=True)
class Steps:
    """What is bought in which order. row, width, time (n,): the options; start (M,): the cheapest one of every class.
    of, to, cost, slope (S,): the class that moves on to option `to`, what that costs, and what it saves per unit."""

    row: Ints
    width: Floats
    time: Floats
    start: Ints
    of: Ints
    to: Ints
    cost: Floats
    slope: Floats


def plan_whole(classes: Classes, budget: float) -> Plan:
    """The best shares of whole widths for a long-run mean of `budget` units per hour; raises TooLittle."""
    rented = continuous(classes, budget)
    rows = len(classes.speed)
    best = np.ones(rows)
    np.maximum.at(best, rented.row, rented.width)
    most = best if rented.mu == 0 else np.maximum(best, _widths(classes, rented.mu))
    while True:         # widths that no price above the one found would choose need no looking at
        most = np.minimum(np.ceil(most) + ROOM, classes.speed.most)
        found = _buy(classes, steps(classes, most), budget)
        wanted = _widths(classes, found.mu) if found.mu > 0 else classes.speed.most
        if np.all(wanted <= most):
            return found
        most = np.minimum(wanted, 2 * most)


def steps(classes: Classes, most: Floats) -> Steps:
    """Every step of every class among whole widths up to most (R,), the one that saves most per unit first."""
    speed = classes.speed
    sizes = [np.array([k for k, _ in points], dtype=np.float64) if kind == TABLE else np.arange(1.0, top + 0.5)
             for kind, points, top in zip(speed.kind.tolist(), speed.points, most.tolist(), strict=True)]
    row = np.repeat(np.arange(len(sizes)), [len(one) for one in sizes])
    width = np.concatenate(sizes)
    time = 1.0 / _speed(classes, row, width)
    of = classes.of[row]
    cost, wait = (classes.load[of] * time * by for by in (width * classes.price[row], classes.weight[of]))
    on = frontier(of, cost, wait)
    slope = slopes(of[on], cost[on], wait[on])
    first = np.flatnonzero(np.isinf(slope))
    later = np.flatnonzero(np.isfinite(slope))
    later = later[np.argsort(-slope[later], kind="stable")]
    return Steps(row, width, time, on[first], of[on[later]], on[later], cost[on[later]] - cost[on[later - 1]],
                 slope[later])


def _speed(classes: Classes, row: Ints, width: Floats) -> Floats:
    """(n,) speed of options; sizes of tables have their own speed, also below the hull."""
    out = classes.speed.take(row).speed(width)
    table = np.flatnonzero(classes.speed.kind[row] == TABLE)
    own = [s for r in np.unique(row[table]).tolist() for _, s in classes.speed.points[r]]
    out[table] = np.array(own) * classes.speed.factor[row[table]]
    return out


def _widths(classes: Classes, mu: float) -> Floats:
    """(R,) the best width of every row at a price."""
    return classes.speed.width(mu * classes.price / classes.weight[classes.of])


def _buy(classes: Classes, s: Steps, budget: float) -> Plan:
    at, m = s.start.copy(), np.arange(len(classes))
    spent = float((classes.load * s.time[at] * s.width[at] * classes.price[s.row[at]]).sum())
    if not budget > spent:
        raise TooLittle(spent, float((classes.load * s.time[at]).sum() / classes.arrivals.sum()))
    after = spent + np.cumsum(s.cost)
    whole = int(np.searchsorted(after - SAME * s.cost, budget, side="right"))
    at[s.of[:whole]] = s.to[:whole]          # the last step of a class counts
    if whole == len(s.of):
        return _plan(classes, budget, 0.0, s, m, at, np.ones(len(m)))
    before = after[whole - 1] if whole else spent
    share, one = float((budget - before) / s.cost[whole]), int(s.of[whole])
    if share <= SAME:
        return _plan(classes, budget, float(s.slope[whole]), s, m, at, np.ones(len(m)))
    shares = np.ones(len(m) + 1)
    shares[one], shares[-1] = 1.0 - share, share
    order = np.argsort(np.append(m, one), kind="stable")
    return _plan(classes, budget, float(s.slope[whole]), s, np.append(m, one)[order],
                 np.append(at, s.to[whole])[order], shares[order])


def _plan(classes: Classes, budget: float, mu: float, s: Steps, of: Ints, at: Ints, share: Floats) -> Plan:
    return Plan(classes, budget, mu, of, s.row[at], s.width[at], share, s.time[at])
