"""Objective `cost`: dollars saved against a round of waiting, to the end of the job.

    v_o = C(R_j, h_j | nothing) - m_o B_o / 3600 - C(R_j - done_o, h_j + (D - b_o)/3600 | o)
    C(R, h | o) = M(R, h) + L_j too_late(R, h | o)         cost of finishing R in h hours
    M(R, h) = min  sum_f c_f z_f + L late - l spare
              s.t. sum_f z_f = R,  sum_f t_f z_f + spare = h + late,  all >= 0
            = max  R phi(lambda) - lambda h    over  l <= lambda <= L
    phi(lambda) = min_f (c_f + lambda t_f)
    c_f = m_f / (3600 r_f),  t_f = 1 / (3600 r_f availability_f)     dollars and hours per unit of
                                                                     work
    too_late = max(0, min over sure f of (a_f + R' t_f) + restart - h)       only with a deadline
    a_f = 0 if f is o, else start-up and restart
    R'  = R, on spot GPUs R_j and what they did since a checkpoint
    h_j = hours from the end of the round to the deadline; without one, to when R_j is done as asked
    L_j = 10 W_j x the dearest m_f of the job, at least 10 W_j       dollars per hour too late
    l_j = L_j / 200                                                  dollars per hour to spare
    + L_j/1000 x hours of asked speed done, where m_o = 0: GPUs that cost nothing may as well work

sure: options in on-demand pools; of a job that has none there in reserved ones; without these all.
z_f is work done at option f, lambda the value of an hour to the job, phi(lambda) the value of a
unit of its work. phi is concave and piecewise linear, so the maximum is at one of its breakpoints
(LP duality), and M is the largest of a few linear functions.

What is done cheaply now need not be bought later, and time that is lost may have to be bought back.
M is the least cost of a mix of options that ends in time: a job paces itself, narrow and on spot
while there is time, wider or on demand as time runs out. Spot GPUs count there with the share of
time they can be had; whether the deadline can still be kept is judged as if they were gone. An hour
to spare has the value l_j, without which a job would rather wait than work at the least price:
measured in docs/spot-results.md. For stages of a pipeline the deadline is their share of the time
to it (formulations/deadlines/pipelines.py).
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import ragged
from formulations.objectives import Objective
from formulations.objectives.context import (
    Context,
    due_in_s,
    largest_by_job,
    least_by_job,
    measure_whole_jobs,
    requested_work,
)
from formulations.objectives.interval import HOUR

# an hour late costs as much as ten hours of the job's dearest option, more than any saving
LATE = 10.0
# of that: value of a spare hour, since spot GPUs may not be available when they are needed
SPARE = 0.005
# of that: value of an hour of work before its time on GPUs that cost nothing
EARLY = 1e-3


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    f, job, late = c.facts, c.job, late_price(c)
    left, pace = f.remaining_work, requested_work(c) / f.interval_s * HOUR
    done, until = np.minimum(c.done, c.remaining), hours_left(c)
    # who is done early has the rest of the round
    after = until[job] + (f.interval_s - c.busy_s) / HOUR
    price, unit = prices_of_time(c)
    saved = (
        cost_to_go(price, unit, left, until)[job]
        - c.dollars
        - cost_to_go(price[job], unit[job], c.remaining - done, after)
    )
    sooner, waiting = hours_too_late(c, c.remaining - done, after, until)
    saved += late[job] * (waiting[job] - sooner)
    ahead = np.minimum(f.interval_s / HOUR, done / pace[job])
    return saved + np.where(c.cost_per_hour > 0, 0.0, EARLY * late[job] * ahead)


@measure_whole_jobs
def late_price(c: Context) -> Floats:
    """Return L_j (J,), dollars per hour too late."""
    return (
        LATE * c.facts.weight * largest_by_job(np.ones_like(c.facts.weight), c.job, c.cost_per_hour)
    )


@measure_whole_jobs
def hours_left(c: Context) -> Floats:
    """Return h_j (J,)."""
    f, due = c.facts, due_in_s(c)
    pace = requested_work(c) / f.interval_s * HOUR
    return np.where(np.isnan(due), f.remaining_work / pace, due / HOUR) - f.interval_s / HOUR


@measure_whole_jobs
def prices_of_time(c: Context) -> tuple[Floats, Floats]:
    """Return the breakpoints lambda_i of phi, and phi(lambda_i), each (J, I)."""
    late, per_hour = late_price(c), c.rate * HOUR
    cost, hours = c.cost_per_hour / per_hour, 1.0 / (per_hour * c.facts.availability[c.pool])
    return cost_breakpoints(c.offer.start, cost, hours, SPARE * late, late)


def hours_too_late(c: Context, work: Floats, after: Floats, until: Floats) -> tuple[Floats, Floats]:
    """Return too_late of the options (n,), and of waiting (J,).

    Parameters
    ----------
    work, after : (n,)
        Work left after each option, and hours left.
    until : (J,)
        h_j.
    """
    f, o, w = c.facts, c.offer, c.everything
    J, n = len(until), len(o.job)
    # one question for every option, then one for every job that waits
    owner = np.append(o.job, np.arange(J))
    question, option = ragged(w.offer.start[owner], w.offer.start[owner + 1])
    asked = sure(w)[option] & ~np.isnan(due_in_s(c))[owner[question]]
    question, option = question[asked], option[asked]
    pool, gpus = w.offer.pool[option], w.offer.gpus[option]
    restart = np.where(question < n, f.restart_s[w.job[option]], 0.0)
    now = np.minimum(question, n)
    stays = (np.append(o.pool, -1)[now] == pool) & (np.append(o.gpus, 0)[now] == gpus)
    pause = np.where(stays, 0.0, f.startup_s[pool] + restart)
    # spot GPUs may be taken back at any moment
    every = f.checkpoint_every_s[o.job]
    undone = c.rate * np.where(np.isnan(every), f.interval_s, every)
    gone = np.minimum(c.remaining + undone, f.total_work[o.job])
    worst = np.append(np.where(f.spot[c.pool], gone, work), f.remaining_work)
    # one pause that nobody foresaw
    hours = np.append(after, until) - f.restart_s[owner] / HOUR
    over = hours_beyond_deadline(
        question, worst, hours, 1.0 / (w.rate * HOUR)[option], pause / HOUR
    )
    return over[:n], over[n:]


@measure_whole_jobs
def sure(c: Context) -> Bools:
    """Return whether an option (n,) is in the first market that its job has options in.

    The markets, in this order: on demand, reserved, any.
    """
    f, start = c.facts, c.offer.start
    return select_first_kind(start, f.on_demand[c.pool], f.reserved[c.pool])


def cost_breakpoints(
    start: Ints, cost: Floats, hours: Floats, least: Floats, late: Floats
) -> tuple[Floats, Floats]:
    """Return breakpoints lambda_i of phi and phi(lambda_i), each (J, I).

    The last is lambda = L, which fills up the rest. A job without options has phi = inf.

    Parameters
    ----------
    start : (J+1,)
        Where the options of a job begin.
    cost, hours : (n,)
        c_f, and t_f > 0, of the options, job by job.
    least, late : (J,)
        Smallest and largest lambda.
    """
    J, job = len(late), np.repeat(np.arange(len(late)), np.diff(start))
    # at the smallest lambda one option is best, of several the fastest; then one by one faster ones
    # take over
    each = cost + least[job] * hours
    unit = [least_by_job(J, job, each)]
    best = each <= unit[0][job]
    t_now = least_by_job(J, job[best], hours[best])
    price = [least]
    with np.errstate(invalid="ignore"):
        c_now = unit[0] - least * t_now
    while True:
        faster = np.flatnonzero(hours < t_now[job])
        j = job[faster]
        turn = (cost[faster] - c_now[j]) / (t_now[j] - hours[faster])
        at = least_by_job(J, j, turn)
        on = at < late
        price.append(np.where(on, at, late))
        with np.errstate(invalid="ignore"):
            unit.append(c_now + price[-1] * t_now)
        if not on.any():
            return np.stack(price, axis=1), np.stack(unit, axis=1)
        next_ = faster[(turn <= at[j]) & on[j]]
        t_now = np.where(on, least_by_job(J, job[next_], hours[next_]), t_now)
        c_now = np.where(on, unit[-1] - price[-1] * t_now, c_now)


def cost_to_go(price: Floats, unit: Floats, work: Floats, hours: Floats) -> Floats:
    """Return M(R, h), shape (n,).

    Parameters
    ----------
    price, unit : (n, I)
        lambda_i and phi(lambda_i) as of `cost_breakpoints`.
    work, hours : (n,)
        R >= 0, and h.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray((work[:, None] * unit - price * hours[:, None]).max(axis=1))


def hours_beyond_deadline(
    question: Ints, work: Floats, hours: Floats, takes: Floats, pause: Floats
) -> Floats:
    """Return the hours beyond the deadline at best, shape (n,): max(0, min_f pause + R t_f - h).

    Work of 0 is done; a question without pairs is never too late.

    Parameters
    ----------
    question, takes, pause : (m,)
        Pairs of a question and a sure option: index of the question, t_f, hours of pause.
    work, hours : (n,)
        R and h.
    """
    over = np.where(work[question] > 0, pause + work[question] * takes, 0.0) - hours[question]
    least = least_by_job(len(work), question, over)
    return np.maximum(0.0, np.where(np.isinf(least), 0.0, least))


def select_first_kind(start: Ints, *kinds: Bools) -> Bools:
    """Return for every job its options of the first of the kinds that it has any of, shape (n,).

    All options of a job that has none of any kind.

    Parameters
    ----------
    start : (J+1,)
        Where the options of a job begin.
    kinds : (n,)
        Whether an option is of each kind.
    """
    count, job = np.diff(start), np.repeat(np.arange(len(start) - 1), np.diff(start))
    left, out = np.ones(len(count), dtype=np.bool_), np.zeros(len(job), dtype=np.bool_)
    for kind in (*kinds, np.ones(len(job), dtype=np.bool_)):
        has = np.bincount(job[kind], minlength=len(count)) > 0
        out |= kind & (left & has)[job]
        left &= ~has
    return out


@measure_whole_jobs
def largest_term(c: Context) -> Floats:
    """Return the cost (J,) of all work at the dearest price, with all hours too late."""
    f = c.facts
    dearest = largest_by_job(np.ones_like(f.weight), c.job, c.cost_per_hour)
    hours = (f.startup_s[c.pool] + c.remaining / c.rate / f.availability[c.pool]) / HOUR
    slowest = largest_by_job(np.ones_like(f.weight), c.job, hours)
    spare = (np.abs(np.nan_to_num(due_in_s(c))) + f.interval_s + f.restart_s) / HOUR
    return dearest * (1.0 + 2.0 * LATE * f.weight) * (slowest + spare)


OBJECTIVE = Objective(
    "cost", value, counts_dollars=True, counts_deadlines=True, largest_term=largest_term
)
