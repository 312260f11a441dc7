"""Read from the queue what the rules of stability (loop/stability.py) need."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from allocator.domain.problem import Problem
from allocator.domain.schema.columns import JOBS
from allocator.domain.snapshot import Snapshot
from allocator.engine.decided import Decision
from allocator.loop.gpu_places import find_groups
from allocator.loop.stability import (
    Stability,
    estimate_change_interval_s,
    find_resting_jobs,
    find_unpaid_changes,
)
from allocator.queue.database.bulk import as_columns, query
from allocator.queue.database.schema import OPEN

RECENT = 500  # number of allocations from which the time to the next change is estimated


AllocationStarts = Mapping[str, tuple[float, bool]]
"""By job: when its open allocation was ordered, and whether it had an allocation before that."""

# generations count on where a name is used again: earlier ones were of another job of that name
_SINCE = (
    "SELECT a.job_id, a.ordered_s, a.generation > j.first_generation FROM allocations a"
    f" JOIN jobs j ON j.job_id = a.job_id WHERE a.phase IN {OPEN}"
)
# seconds of each, and whether a stop ended it
_RECENT = (
    "SELECT COALESCE(stop_ordered_s, ended_s, observed_s, running_s, ordered_s)"
    " - COALESCE(running_s, ordered_s), stop_ordered_s IS NOT NULL FROM allocations"
    f" ORDER BY ordered_s DESC LIMIT {RECENT}"
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
    seconds, stops = as_columns(query(connection, _RECENT), 2)
    held_s = sum(max(0.0, held_s) for held_s in seconds)
    until_s = estimate_change_interval_s(held_s, sum(stops), problem.interval_s)
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
    if not names:
        return snapshot, problem
    table, jobs = snapshot.tables[JOBS.file], problem.jobs
    known = set(names)
    pairs = zip(table.texts("job_id"), table.texts("preemptible"), strict=True)
    snapshot = snapshot.with_columns(
        JOBS.file, preemptible=["false" if job_id in known else cell for job_id, cell in pairs]
    )
    is_free = np.array([job_id not in known for job_id in jobs.job_id], dtype=np.bool_)
    jobs = replace(jobs, preemptible=jobs.preemptible & is_free)
    return snapshot, replace(problem, jobs=jobs, digest=snapshot.digest)
