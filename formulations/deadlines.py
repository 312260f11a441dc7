"""What it costs to finish a job in the time that is left: the cost to go behind the objective
`cost`.

    M(R, h) = min  sum_f c_f z_f + L late - l spare    s.t.  sum_f z_f = R,  sum_f t_f z_f + spare =
        h + late,  all >= 0
            = max  R phi(lambda) - lambda h     over  l <= lambda <= L,    phi(lambda) = min_f (c_f
                + lambda t_f)

z_f: work done at option f, c_f: dollars per unit of work, t_f: hours per unit of work (on spot GPUs
divided by the share of time in which they can be had), R: work left, h: hours left, L and l:
dollars per hour too late and per hour to spare. lambda is what an hour is worth to the job;
phi(lambda) what a unit of its work is worth. phi is concave and piecewise linear, so the maximum is
at one of its breakpoints (LP duality): M is the largest of a few linear functions.
"""

from __future__ import annotations

import numpy as np

from formulations.linear import Bools, Floats, Ints


def lines(
    start: Ints, cost: Floats, hours: Floats, least: Floats, late: Floats
) -> tuple[Floats, Floats]:
    """(J, I) breakpoints lambda_i of phi and phi(lambda_i), by job; the last is lambda = L, which
    fills up the rest.

    cost, hours (n,): c_f, t_f > 0 of the options, job by job; start (J+1,): where those of a job
    begin; least, late (J,): smallest and largest lambda. A job without options has phi = inf.
    """
    J, job = len(late), np.repeat(np.arange(len(late)), np.diff(start))
    # at the smallest lambda one option is best, of several the fastest; then one by one faster ones
    # take over
    each = cost + least[job] * hours
    worth = [_least(J, job, each)]
    best = each <= worth[0][job]
    t_now = _least(J, job[best], hours[best])
    price = [least]
    with np.errstate(invalid="ignore"):
        c_now = worth[0] - least * t_now
    while True:
        faster = np.flatnonzero(hours < t_now[job])
        j = job[faster]
        turn = (cost[faster] - c_now[j]) / (t_now[j] - hours[faster])
        at = _least(J, j, turn)
        on = at < late
        price.append(np.where(on, at, late))
        with np.errstate(invalid="ignore"):
            worth.append(c_now + price[-1] * t_now)
        if not on.any():
            return np.stack(price, axis=1), np.stack(worth, axis=1)
        next_ = faster[(turn <= at[j]) & on[j]]
        t_now = np.where(on, _least(J, job[next_], hours[next_]), t_now)
        c_now = np.where(on, worth[-1] - price[-1] * t_now, c_now)


def _least(J: int, job: Ints, amount: Floats) -> Floats:
    """(J,) smallest amount of each job, inf where it has none."""
    out = np.full(J, np.inf)
    np.minimum.at(out, job, amount)
    return out


def money(price: Floats, worth: Floats, work: Floats, hours: Floats) -> Floats:
    """(n,) M(R, h): price, worth (n, I) as of `lines`, work R >= 0 and hours h (n,)."""
    with np.errstate(invalid="ignore"):
        return np.asarray((work[:, None] * worth - price * hours[:, None]).max(axis=1))


def too_late(query: Ints, work: Floats, hours: Floats, takes: Floats, pause: Floats) -> Floats:
    """(n,) hours beyond the deadline at best: min over the pairs of a question of max(0, pause + R
    t_f - h).

    Pairs of a question and a sure option are parallel arrays (m,): query, takes (t_f), pause. work,
    hours (n,): R, h. Work of 0 is done; a question without pairs is never too late.
    """
    over = np.where(work[query] > 0, pause + work[query] * takes, 0.0) - hours[query]
    least = _least(len(work), query, over)
    return np.maximum(0.0, np.where(np.isinf(least), 0.0, least))


def first_kind(start: Ints, *kinds: Bools) -> Bools:
    """(n,) for every job its options of the first of the kinds that it has any of, all if of
    none. start (J+1,).
    """
    count, job = np.diff(start), np.repeat(np.arange(len(start) - 1), np.diff(start))
    left, out = np.ones(len(count), dtype=np.bool_), np.zeros(len(job), dtype=np.bool_)
    for kind in (*kinds, np.ones(len(job), dtype=np.bool_)):
        has = np.bincount(job[kind], minlength=len(count)) > 0
        out |= kind & (left & has)[job]
        left &= ~has
    return out


def risk(work: Floats, fastest: Floats, hours: Floats) -> Floats:
    """(n,) how likely a deadline is taken to be missed: min(1, R / (s h)) ** 2, in [0, 1].

    work: R left; fastest: s, work per hour at the fastest option; hours: h left. Of the hours left,
    R / (s h) is the share in which the job must not wait at all. 0 for work of 0, 1 without time.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(hours > 0, work / (fastest * hours), np.inf)
    return np.where(work > 0, np.minimum(1.0, share) ** 2, 0.0)
