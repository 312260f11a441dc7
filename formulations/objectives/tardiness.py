"""Objective `tardiness`: hours late, and a week more for every deadline that is missed.

Jobs in time, which have an option with a risk below 1:

    v_o  = 168 W_j (risk(R_j, nothing) - risk(R_j - done_o, o))

All other jobs:

    v_o  = as of `completion`, with B_j among the jobs that are not in time

    risk(R, o) = min(1, R / (S_j h_j)) ** 2
    S_j  = speed at the job's fastest option
    h_j  = time from the end of the round to the deadline, less restart_s

The risk is 1 where h_j <= 0 or there is no deadline. If o ends the job in this round, the risk is 0
in time and 1 late.

A job that is late already, or has no deadline, counts its hours to the end. R / (S h) is the share
of the time left in which the job may not wait even at its fastest. Its square stands for the risk
of missing the deadline, because other jobs arrive and GPUs are not free when they are needed. Of
two jobs the more urgent one gains more from the same work. A job that waiting would make late gains
most. A job that can no longer be in time gains hours only. Measured in docs/results.md.

The risk is a forecast, so done_o may have a spread pause (context.py). Whether o ends the job in
this round, and in time, has the same answer with the real pause.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats
from formulations.objectives import Objective, completion, response
from formulations.objectives.context import (
    HOUR,
    Context,
    due_in_s,
    fastest,
    least_by_job,
    measure_whole_jobs,
)

MISSED = 168.0  # hours: a missed deadline counts as one more week of lateness
# A larger risk counts as a missed deadline, and a larger share of the work as all of it.
SURE = 1.0 - 1e-9


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    in_time = can_be_in_time(c)
    late = response.hours_saved(c, late_work_price(c), c.done)
    safer = MISSED * c.weight * (risk_of_waiting(c)[c.job] - risk_after(c))
    return np.where(in_time[c.job], safer, late)


@measure_whole_jobs
def can_be_in_time(c: Context) -> Bools:
    """Return whether some option leaves each job's deadline within reach, shape (J,)."""
    return least_by_job(len(c.facts.weight), c.job, risk_after(c)) < SURE


@measure_whole_jobs
def late_work_price(c: Context) -> Floats:
    """Return V_j (J,) among the jobs that are not in time."""
    return completion.work_price_among(c, ~can_be_in_time(c))


@measure_whole_jobs
def risk_of_waiting(c: Context) -> Floats:
    """Return the risk (J,) of missing the deadline after a round of waiting, 1 without one."""
    f = c.facts
    hours = (due_in_s(c) - f.interval_s - f.restart_s) / HOUR
    waiting = deadline_risk(f.remaining_work, fastest(c) * HOUR, hours)
    return np.where(np.isnan(hours), 1.0, waiting)


def risk_after(c: Context) -> Floats:
    """Return the risk (n,) of missing the deadline after this round, 1 without one."""
    f = c.facts
    due = due_in_s(c)[c.job]
    left = c.remaining - np.minimum(c.done, c.remaining)
    hours = (due - f.interval_s - f.restart_s[c.job]) / HOUR
    later = deadline_risk(left, fastest(c)[c.job] * HOUR, hours)
    ends = left <= (1.0 - SURE) * c.remaining
    ended = (c.busy_s > due).astype(np.float64)
    return np.where(np.isnan(due), 1.0, np.where(ends, ended, later))


def deadline_risk(work: Floats, fastest: Floats, hours: Floats) -> Floats:
    """Return min(1, R / (S h)) ** 2, shape (n,): 0 for work of 0, 1 without time.

    Parameters
    ----------
    work, fastest, hours : (n,)
        R, work left; S, work per hour at the fastest option; h, hours left.
    """
    with np.errstate(all="ignore"):
        share = np.where(hours > 0, work / (fastest * hours), np.inf)
    return np.where(work > 0, np.minimum(1.0, share) ** 2, 0.0)


def largest_term(c: Context) -> Floats:
    """Return an upper bound (J,) of the terms of which values are differences."""
    return MISSED * c.facts.weight


OBJECTIVE = Objective("tardiness", value, counts_deadlines=True, largest_term=largest_term)
