"""What the rules of stability (control/stability.py) need to know of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.control.stability import Stability, expected_s, resting, unpaid
from allocator.decision import Decided
from allocator.domain.problem import Problem
from allocator.queue.schema import IS_OPEN, allocations, jobs

RECENT = 500  # allocations from which the time to the next change is estimated


@dataclass(frozen=True)
class Since:
    """at_s: when the open allocation of a job was ordered, by job_id; changed: jobs that held
    something before it.
    """

    at_s: Mapping[str, float]
    changed: frozenset[str]


NOTHING = Since({}, frozenset())
_SINCE = sa.select(allocations.c.job_id, allocations.c.ordered_s, allocations.c.generation).where(
    IS_OPEN
)


def since(connection: Connection) -> Since:
    """Since when jobs hold what they hold."""
    rows = connection.execute(_SINCE).all()
    return Since(
        {name: at_s for name, at_s, _ in rows},
        frozenset(name for name, _, number in rows if number > 1),
    )


def alone(problem: Problem, known: Since, rules: Stability) -> frozenset[str]:
    """Jobs that cooldown and minimum run time leave alone."""
    if not rules.rests:
        return frozenset()
    names = problem.jobs.job_id
    at_s = np.array([known.at_s.get(name, -np.inf) for name in names], dtype=np.float64)
    changed = np.array([name in known.changed for name in names], dtype=np.bool_)
    return frozenset(
        names[j] for j in np.flatnonzero(resting(problem, at_s, changed, rules)).tolist()
    )


def held_back(connection: Connection, problem: Problem, decided: Decided) -> frozenset[str]:
    """Jobs whose change does not pay for its pause before the next change is expected; of jobs that
    are or shall be alone on their GPUs."""
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
    until_s = expected_s(
        held_s, sum(r.stop_ordered_s is not None for r in rows), problem.interval_s
    )
    plan = decided.allocation
    judged = unpaid(problem, plan.pool, plan.gpus, until_s)
    for host in (plan.host, problem.jobs.host):  # `unpaid` knows the speeds of jobs alone
        judged &= host < 0
        judged[host[host >= 0]] = False
    where = np.flatnonzero(judged)
    return frozenset(problem.jobs.job_id[j] for j in where.tolist())
