"""Choose the jobs that a round leaves alone, so that the cluster does not keep restarting jobs.

Each of the three rules makes a job non-preemptible for the round, so that the audit and the journal
need no rules of their own:

    cooldown   after a change of its allocation a job is not changed again for cooldown_s
    minimum    a job that was started runs at least min_run_s before it may be paused or changed
    payback    a change that raises the rate of a job from r to r' and pauses it for c seconds is
               held back unless r' (T - c) > r T: it does not pay before the next change

T is the time until the next change is expected: the seconds that recent allocations held GPUs,
divided by the number of them that a change ended. This is the estimate of the rate of an
exponential law with censoring (Kalbfleisch and Prentice 2002, ch. 3). T is at most the time that
the job still needs at r', and at least one interval.

A job that is left alone keeps exactly what it holds, unless machines are lost. Payback judges only
changes that speed a job up. A change that slows a job down makes space for another job, and is no
longer wanted when that other job is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from allocator.controller.options import Stability
from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.domain.schema.columns import JOBS
from allocator.domain.snapshot import Snapshot
from allocator.engine.decided import Decision
from allocator.loop.gpu_places import find_groups
from allocator.performance.lost_time import choose_modes, restart_s
from allocator.performance.sizes import estimate_sizes
from allocator.performance.table import RateTable
from allocator.queue.database.rows import query
from allocator.queue.database.schema import OPEN

RECENT = 500  # number of allocations from which the time to the next change is estimated


AllocationStarts = Mapping[str, tuple[float, bool]]
"""By job: when its open allocation was ordered, and whether it had an allocation before that."""

# generations count on where a name is used again: earlier ones were of another job of that name
_SINCE = (
    "SELECT a.job_id, a.ordered_s, a.generation > j.first_generation FROM allocations a"
    f" JOIN jobs j ON j.job_id = a.job_id WHERE a.phase IN {OPEN}"
)
# the seconds of the latest ones, and how many a stop ended
_RECENT = (
    "SELECT COALESCE(SUM(CASE WHEN held_s > 0 THEN held_s END), 0), COUNT(stop_ordered_s) FROM ("
    "SELECT COALESCE(stop_ordered_s, ended_s, observed_s, running_s, ordered_s)"
    " - COALESCE(running_s, ordered_s) AS held_s, stop_ordered_s FROM allocations"
    f" ORDER BY ordered_s DESC LIMIT {RECENT}) AS recent"
)


def read_allocation_starts(connection: Connection) -> AllocationStarts:
    """Return since when jobs hold what they hold."""
    return {name: (at_s, bool(later)) for name, at_s, later in query(connection, _SINCE)}


def jobs_left_alone(problem: Problem, known: AllocationStarts, rules: Stability) -> frozenset[str]:
    """Return the jobs that the cooldown and the minimum run time leave alone.

    Jobs that share with jobs of other sizes are not among them: these have to be preemptible.
    """
    names = problem.jobs.job_id
    starts = [known.get(name, (-np.inf, False)) for name in names]
    at_s, changed = np.array(starts, dtype=np.float64).reshape(-1, 2).T
    resting = find_resting_jobs(problem, at_s, changed > 0, rules)
    secondary = problem.jobs.secondary
    for g in find_groups(np.arange(len(names)), problem.jobs.gpus, secondary):
        resting[g] = resting[secondary == g] = False
    return frozenset(names[j] for j in np.flatnonzero(resting).tolist())


def find_changes_to_hold_back(
    connection: Connection, problem: Problem, decision: Decision
) -> frozenset[str]:
    """Return the jobs whose change does not pay for its pause before the next change is expected.

    Only jobs that are alone on their GPUs now and in the plan are considered.
    """
    ((held_s, stops),) = query(connection, _RECENT)
    # the seconds until the next change of a job
    until_s = max(problem.interval_s, held_s / stops) if stops else math.inf
    plan = decision.allocation
    judged = find_unpaid_changes(problem, plan.pool, plan.gpus, until_s)
    # `find_unpaid_changes` knows the speeds of jobs that run alone only
    for sharing in (plan, problem.jobs):
        judged &= (sharing.primary < 0) & (sharing.secondary < 0)
    where = np.flatnonzero(judged)
    return frozenset(problem.jobs.job_id[j] for j in where.tolist())


def make_non_preemptible(
    snapshot: Snapshot, problem: Problem, names: Collection[str]
) -> tuple[Snapshot, Problem]:
    """Return the snapshot and its problem with these jobs made non-preemptible."""
    table, jobs = snapshot.tables[JOBS.file], problem.jobs
    known = set(names)
    pairs = zip(table.texts("job_id"), table.texts("preemptible"), strict=True)
    snapshot = snapshot.with_columns(
        JOBS.file, preemptible=["false" if job_id in known else cell for job_id, cell in pairs]
    )
    is_free = np.array([job_id not in known for job_id in jobs.job_id], dtype=np.bool_)
    jobs = replace(jobs, preemptible=jobs.preemptible & is_free)
    return snapshot, replace(problem, jobs=jobs, digest=snapshot.digest)


def find_resting_jobs(problem: Problem, since_s: Floats, changed: Bools, rules: Stability) -> Bools:
    """Find the running jobs that the cooldown or the minimum run time leaves alone.

    Best-effort jobs are never left alone.

    Parameters
    ----------
    since_s : (J,)
        Times in seconds at which the present allocations began.
    changed : (J,)
        The present allocation followed another one, so that it was a change.

    Returns
    -------
    (J,)
        True for the jobs that are left alone.
    """
    held_s = problem.now_s - since_s
    running = (problem.jobs.state == State.RUNNING) & ~problem.jobs.best_effort
    return np.asarray(
        running & ((changed & (held_s < rules.cooldown_s)) | (held_s < rules.min_run_s))
    )


def find_unpaid_changes(problem: Problem, pool: Ints, gpus: Ints, until_s: float) -> Bools:
    """Find the running jobs whose change speeds them up without paying for the pause.

    Parameters
    ----------
    pool, gpus : (J,)
        The plan.
    until_s : float
        Seconds within which a change has to pay.

    Returns
    -------
    (J,)
        True for the jobs whose change does not pay.
    """
    problem = estimate_sizes(problem)
    jobs, pools = problem.jobs, problem.pools
    out = np.zeros(len(jobs), dtype=np.bool_)
    moved = np.flatnonzero(
        (jobs.state == State.RUNNING) & (pool >= 0) & ((pool != jobs.pool) | (gpus != jobs.gpus))
    )
    if not len(moved):
        return out
    table = RateTable.of(problem)
    before, after = jobs.pool[moved], pool[moved]
    held = np.ones(len(moved), dtype=bool)
    old, _ = table.rate_in_pools(pools, jobs.model[moved], before, jobs.gpus[moved], held)
    new, _ = table.rate_in_pools(pools, jobs.model[moved], after, gpus[moved])
    old *= choose_modes(problem, moved, before, jobs.gpus[moved]).pace
    new *= choose_modes(problem, moved, after, gpus[moved]).pace
    pause = restart_s(problem, moved, pool[moved], gpus[moved])
    with np.errstate(invalid="ignore", divide="ignore"):
        last = np.maximum(problem.interval_s, np.minimum(until_s, jobs.remaining_work[moved] / new))
        out[moved] = (new > old) & (new * (last - pause) <= old * last)
    return out
