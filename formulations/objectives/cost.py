"""Objective `cost`: dollars saved against a round of waiting, to the end of the job.

    v_o = C(R_j, h_j | nothing) - m_o B_o / 3600 - C(R_j - done_o, h_j + (D - b_o)/3600 | o)
          + L_j/1000 x hours of requested speed done, only where m_o = 0

The last term lets GPUs that cost nothing work. C is the cost of finishing the work R in h hours:

    C(R, h | o) = M(R, h) + L_j too_late(R, h | o)
    M(R, h) = min  sum_f c_f z_f + L late - l spare
              s.t. sum_f z_f = R,  sum_f t_f z_f + spare = h + late,  all >= 0
            = max  R phi(lambda) - lambda h    over  l <= lambda <= L
    phi(lambda) = min_f (c_f + lambda t_f)
    c_f = m_f / (3600 r_f)                       dollars per unit of work
    t_f = 1 / (3600 r_f availability_f)          hours per unit of work

z_f is the work done at option f, lambda the value of an hour to the job, and phi(lambda) the value
of a unit of its work. phi is concave and piecewise linear, so the maximum is at one of its
breakpoints (LP duality), and M is the largest of a few linear functions.

Hours too late, only with a deadline:

    too_late = max(0, min over sure f of (a_f + R' t_f) + restart - h)
    a_f = 0 if f is o, else start-up and restart
    R'  = R; on spot GPUs R_j and the work that they did since a checkpoint
    h_j = hours from the end of the round to the deadline;
          without one, to when R_j is done at the requested speed
    L_j = 10 W_j x the dearest m_f of the job, at least 10 W_j: dollars per hour too late
    l_j = L_j / 200: dollars per spare hour

Sure options are those in on-demand pools. A job without options there has those in reserved pools,
and a job with neither has all its options.

Work that is done cheaply now need not be bought later, and time that is lost may have to be bought
back. M is the least cost of a mix of options that ends in time. So a job is narrow and on spot GPUs
while there is time, and wider or on demand as time runs out. In M, spot GPUs count with the share
of time in which they are available. Whether the deadline can still be kept is judged as if they
were lost. A spare hour has the value l_j; without it a job would rather wait than work at the least
price (measured in docs/results.md). For stages of a pipeline the deadline is their share of
the time to it (formulations/deadlines/pipelines.py).

Spread pauses (context.py) count in M, where later rounds make up for them. Dollars are paid and
deadlines missed in real time: B_o and too_late have the real pause.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats, Ints, ragged, starts
from formulations.objectives import Objective
from formulations.objectives.context import (
    HOUR,
    Context,
    due_in_s,
    largest_by_job,
    least_by_job,
    measure_whole_jobs,
)

# an hour late costs as much as ten hours of the job's dearest option, more than any saving
LATE = 10.0
# share of that: value of a spare hour, because spot GPUs may not be available when needed
SPARE = 0.005
# share of that: value of an hour of requested work on GPUs that cost nothing
EARLY = 1e-3


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    f = c.facts
    job = c.job
    late = late_price(c)
    pace = c.requested_work / f.interval_s * HOUR
    done = np.minimum(c.done, c.remaining)
    until = hours_left(c)
    # a job that is done early has the rest of the round
    after = until[job] + (f.interval_s - c.busy_s) / HOUR
    price, unit = prices_of_time(c)
    saved = (
        cost_to_go(price, unit, f.remaining_work, until)[job]
        - c.dollars
        - cost_to_go(price[job], unit[job], c.remaining - done, after)
    )
    left = np.maximum(0.0, c.remaining - c.work_now)
    sooner, waiting = hours_too_late(c, left, after, until)
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
    f = c.facts
    due = due_in_s(c)
    pace = c.requested_work / f.interval_s * HOUR
    return np.where(np.isnan(due), f.remaining_work / pace, due / HOUR) - f.interval_s / HOUR


@measure_whole_jobs
def prices_of_time(c: Context) -> tuple[Floats, Floats]:
    """Return the breakpoints lambda_i of phi, and phi(lambda_i), each (J, I)."""
    late = late_price(c)
    per_hour = c.rate * HOUR
    cost = c.cost_per_hour / per_hour
    hours = 1.0 / (per_hour * c.facts.availability[c.pool])
    return cost_breakpoints(c.job, cost, hours, SPARE * late, late)


def hours_too_late(c: Context, work: Floats, after: Floats, until: Floats) -> tuple[Floats, Floats]:
    """Return too_late of the options (n,), and of waiting (J,).

    Parameters
    ----------
    work, after : (n,)
        Work left after each option, and hours left.
    until : (J,)
        h_j.
    """
    f = c.facts
    o = c.offer
    w = c.everything
    J = len(until)
    n = len(o.job)
    # one question for every option, then one for every job that waits
    owner = np.append(o.job, np.arange(J))
    start = starts(w.job, J)
    question, option = ragged(start[owner], start[owner + 1])
    asked = sure(w)[option] & ~np.isnan(due_in_s(c))[owner[question]]
    question = question[asked]
    option = option[asked]
    pool = w.offer.pool[option]
    gpus = w.offer.gpus[option]
    restart = np.where(question < n, f.restart_s[w.job[option]], 0.0)
    now = np.minimum(question, n)
    stays = (np.append(o.pool, -1)[now] == pool) & (np.append(o.gpus, 0)[now] == gpus)
    pause = np.where(stays, 0.0, f.startup_s[pool] + restart)
    # spot GPUs may be revoked at any moment
    every = f.checkpoint_every_s[o.job]
    undone = c.rate * np.where(np.isnan(every), f.interval_s, every)
    gone = np.minimum(c.remaining + undone, f.total_work[o.job])
    worst = np.append(np.where(f.spot[c.pool], gone, work), f.remaining_work)
    # one unforeseen restart
    hours = np.append(after, until) - f.restart_s[owner] / HOUR
    takes = 1.0 / (w.rate * HOUR)[option]
    ends = np.where(worst[question] > 0, pause / HOUR + worst[question] * takes, 0.0)
    least = least_by_job(len(worst), question, ends - hours[question])
    over = np.maximum(0.0, np.where(np.isinf(least), 0.0, least))
    return over[:n], over[n:]


@measure_whole_jobs
def sure(c: Context) -> Bools:
    """Return whether an option (n,) is in the first market that its job has options in.

    The markets, in this order: on demand, reserved, any.
    """
    f = c.facts
    left = np.ones(len(f.weight), np.bool_)
    out = np.zeros(len(c.job), np.bool_)
    for kind in (f.on_demand[c.pool], f.reserved[c.pool], ~out):
        has = np.bincount(c.job[kind], minlength=len(left)) > 0
        out |= kind & (left & has)[c.job]
        left &= ~has
    return out


def cost_breakpoints(
    job: Ints, cost: Floats, hours: Floats, least: Floats, late: Floats
) -> tuple[Floats, Floats]:
    """Return the breakpoints lambda_i of phi, and phi(lambda_i), each (J, I).

    The last one is lambda = L, which is repeated to fill the row. A job without options has phi =
    inf.

    Parameters
    ----------
    job, cost, hours : (n,)
        Jobs of the options, c_f, and t_f > 0.
    least, late : (J,)
        Smallest and largest lambda.
    """
    J = len(late)
    # The best option at the smallest lambda comes first, the fastest of several. As lambda rises,
    # faster options become the best, one after the other.
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
