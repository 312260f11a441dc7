"""The horizon: every job follows one plan, and all plans share the rows of each interval.

A plan gives the option that a job holds in each of H intervals of D seconds, or none. Pauses, work,
the moment of finishing and the resulting value are exact. The letters are those of
formulations/README.md, section "The horizon".

    gain = sum_h work_h done_h + sum_h held_oh busy_h
           + [the job finishes in interval h, t seconds into it] (finish_h + slope_h t)

The gain is the value of a plan beyond the value of holding nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from formulations.model.choices import ChoiceModel
from formulations.model.linear import (
    AT_MOST_ONE,
    Bools,
    Floats,
    Ints,
    RowFamily,
    SparseRows,
    ragged,
    starts,
)

INTERVAL = "interval"  # kind of the coupling rows of a horizon model
ENOUGH = 1.0 - 1e-12  # a job is done when this share of its remaining work is done


@dataclass(frozen=True)
class Horizon:
    """J jobs, n options job by job, R coupling rows in each of H intervals.

    Attributes
    ----------
    start : (J+1,)
        Options of job j are start[j] .. start[j+1].
    rate : (n,)
        Work per second.
    switch_s, startup_s : (n,)
        Seconds without work when a running job changes to the option, and when a job starts with
        it. A pause longer than the interval continues in the next one.
    matrix : (n, R)
        Use of the rows, >= 0, the same in every interval.
    high : (H, R)
        Capacity of the rows.
    low : (R,)
        Least use in the first interval (guarantees, limit on changes), -inf = none.
    current : (J,)
        Option held before the first interval, -1 = none.
    mandatory : (J,)
        True where the job holds an option until it is done.
    remaining : (J,)
        Work left, > 0.
    work : (J, H)
        Value of a unit of work.
    finish, slope : (J, H)
        Value of finishing in interval h is finish + slope t, t seconds into it.
    held : (n, H)
        Value <= 0 of a second in which the option is held: minus the price of money.

    Notes
    -----
    Finishing earlier never has less value: slope <= 0, finish_h + slope_h D >= finish_{h+1}, and
    the last one >= 0. A job that must run holds an option now.
    """

    start: Ints
    rate: Floats
    switch_s: Floats
    startup_s: Floats
    matrix: sparse.csr_matrix
    high: Floats
    low: Floats
    current: Ints
    mandatory: Bools
    remaining: Floats
    interval_s: float
    work: Floats
    finish: Floats
    slope: Floats
    held: Floats
    jobs: Sequence[str]
    rows: Sequence[str]

    @property
    def J(self) -> int:
        """Number of jobs."""
        return len(self.remaining)

    @property
    def H(self) -> int:
        """Number of intervals."""
        return len(self.high)

    @property
    def R(self) -> int:
        """Coupling rows of one interval."""
        return int(self.high.shape[1])

    @property
    def n(self) -> int:
        """Number of options."""
        return len(self.rate)

    @cached_property
    def job(self) -> Ints:
        """Job of every option, (n,)."""
        return np.repeat(np.arange(self.J), np.diff(self.start))


@dataclass(frozen=True)
class PlanOutcomes:
    """The outcomes of N plans.

    Attributes
    ----------
    gain : (N,)
        Value beyond that of holding nothing.
    end : (N,)
        Seconds from now to the end of the job, inf if it does not end within the horizon.
    left : (N,)
        Work left after the horizon.
    plan : (N, H)
        The plans; after its end a job holds nothing.
    """

    gain: Floats
    end: Floats
    left: Floats
    plan: Ints


def follow(x: Horizon, job: Ints, plan: Ints) -> PlanOutcomes:
    """Follow plans (N, H) of option numbers, -1 = none, and return their outcomes.

    Plan i is a plan of job[i]; job has the shape (N,).
    """
    D = x.interval_s
    N = len(job)
    left = x.remaining[job].copy()
    gain = np.zeros(N)
    end = np.full(N, np.inf)
    before = x.current[job].copy()
    pause = np.zeros(N)
    cut = np.full((N, x.H), -1)
    if not x.n:
        return PlanOutcomes(gain, end, left, cut)
    for h in range(x.H):
        o = np.where(np.isfinite(end), -1, plan[:, h])
        on = o >= 0
        k = np.maximum(o, 0)
        fresh = on & (o != before)
        pause = np.where(fresh, np.where(before >= 0, x.switch_s[k], x.startup_s[k]), pause)
        able = np.where(on, x.rate[k] * np.maximum(0.0, D - pause), 0.0)
        ends = on & (able >= left * ENOUGH)
        did = np.where(ends, left, able)
        busy = np.where(ends, pause + left / x.rate[k], np.where(on, D, 0.0))
        gain += did * x.work[job, h] + busy * x.held[k, h]
        gain += np.where(ends, x.finish[job, h] + x.slope[job, h] * busy, 0.0)
        left = np.where(ends, 0.0, left - did)
        end = np.where(ends, h * D + busy, end)
        pause, before, cut[:, h] = np.maximum(0.0, pause - D), o, o
    return PlanOutcomes(gain, end, left, cut)


def has_idle_interval(x: Horizon, followed: PlanOutcomes) -> Bools:
    """Find the plans that hold nothing in an interval before the job is done, (N,).

    Jobs that must run may not have such a plan.
    """
    last = np.where(
        np.isfinite(followed.end), np.floor(followed.end / x.interval_s - 1e-9), x.H - 1
    )
    return np.asarray(
        ((followed.plan < 0) & (np.arange(x.H) <= last[:, None])).any(axis=1), np.bool_
    )


def use(x: Horizon, plan: Ints) -> sparse.csr_matrix:
    """Return what plans (N, H) use of all rows, (N, H R); row r of interval h is h R + r."""
    i, h = np.nonzero(plan >= 0)
    o = plan[i, h]
    owner, entry = ragged(x.matrix.indptr[o], x.matrix.indptr[o + 1])
    column = (h * x.R)[owner] + x.matrix.indices[entry]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(i[owner], minlength=len(plan)))]).astype(
        np.int64
    )
    return sparse.csr_matrix((x.matrix.data[entry], column, indptr), shape=(len(plan), x.H * x.R))


def bounds(x: Horizon) -> tuple[Floats, Floats]:
    """Return low and high of all rows, (H R,) each; only the first interval has lower bounds."""
    low = np.full((x.H, x.R), -np.inf)
    low[0] = x.low
    return low.reshape(-1), x.high.reshape(-1)


def plan_model(x: Horizon, job: Ints, gain: Floats, plan: Ints) -> ChoiceModel:
    """Build the model that chooses one of the given plans for each job: max sum_c gain_c z_c.

    Parameters
    ----------
    job : (N,)
        Job of each plan, ascending.
    gain : (N,)
        Gain of each plan.
    plan : (N, H)
        The plans.

    Returns
    -------
    model : ChoiceModel
        Its rows are at_most_one (= 1 where the job must run), then the H R rows of the intervals.
    """
    a = use(x, plan)
    low, high = bounds(x)
    names = [f'{row}" in interval "{h}' for h in range(x.H) for row in x.rows]
    return ChoiceModel.of(
        gain,
        np.concatenate([np.where(x.mandatory, 1.0, -np.inf), low]),
        np.concatenate([np.ones(x.J), high]),
        (RowFamily(AT_MOST_ONE, 0, x.jobs), RowFamily(INTERVAL, x.J, names)),
        starts(job, x.J),
        job,
        SparseRows(a.data, a.indices, a.indptr, a.shape),
    )


def feasible(x: Horizon, plan: Ints) -> bool:
    """Return whether one plan per job, (J, H), keeps every row, and jobs that must run do run."""
    followed = follow(x, np.arange(x.J), plan)
    own = plan < 0
    own |= x.job[np.maximum(plan, 0)] == np.arange(x.J)[:, None] if x.n else False
    total = np.asarray(use(x, followed.plan).sum(axis=0)).reshape(-1)
    low, high = bounds(x)
    slack = 1e-9 * np.maximum(1.0, np.abs(np.where(np.isfinite(high), high, 1.0)))
    return bool(
        own.all()
        and not (has_idle_interval(x, followed) & x.mandatory).any()
        and (total <= high + slack).all()
        and (total >= low - slack).all()
    )
