"""Read from the queue what the rules of stability (loop/stability.py) need."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.loop.gpu_places import find_groups
from allocator.loop.stability import (
    Stability,
    estimate_change_interval_s,
    find_resting_jobs,
    find_unpaid_changes,
)
from allocator.queue.database.schema import IS_OPEN, allocations, jobs

RECENT = 500  # number of allocations from which the time to the next change is estimated


AllocationStarts = Mapping[str, tuple[float, bool]]
"""By job: when its open allocation was ordered, and whether it had an allocation before that."""

# generations count on where a name is used again: earlier ones were of another job of that name
_SINCE = (
    sa.select(
        allocations.c.job_id,
        allocations.c.ordered_s,
        (allocations.c.generation > jobs.c.first_generation).label("is_changed"),
    )
    .join(jobs, jobs.c.job_id == allocations.c.job_id)
    .where(IS_OPEN)
)


def read_allocation_starts(connection: Connection) -> AllocationStarts:
    """Return since when jobs hold what they hold."""
    return {name: (at_s, is_changed) for name, at_s, is_changed in connection.execute(_SINCE)}


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
    begin = sa.func.coalesce(allocations.c.running_s, allocations.c.ordered_s)
    end = sa.func.coalesce(
        allocations.c.stop_ordered_s, allocations.c.ended_s, allocations.c.observed_s, begin
    )
    recent = (
        sa.select((end - begin).label("held_s"), allocations.c.stop_ordered_s, jobs.c.request)
        .join(jobs, jobs.c.job_id == allocations.c.job_id)
        .order_by(allocations.c.ordered_s.desc())
        .limit(RECENT)
    )
    rows = connection.execute(recent).all()
    held_s = sum(max(0.0, r.held_s) for r in rows)
    until_s = estimate_change_interval_s(
        held_s, sum(r.stop_ordered_s is not None for r in rows), problem.interval_s
    )
    plan = decision.allocation
    judged = find_unpaid_changes(problem, plan.pool, plan.gpus, until_s)
    # `find_unpaid_changes` knows the speeds of jobs that run alone only
    for sharing in (plan, problem.jobs):
        judged &= (sharing.primary < 0) & (sharing.secondary < 0)
    where = np.flatnonzero(judged)
    return frozenset(problem.jobs.job_id[j] for j in where.tolist())
