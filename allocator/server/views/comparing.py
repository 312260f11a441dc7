"""What if: the present round with other values, and who gains and loses by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.whatif import JobChange, compare, measure_work_h
from allocator.server.views.deciding import Deciders, Effort

GAINS = ("starts", "grows")


@dataclass(frozen=True)
class ChangedJob:
    """A job that gets something else with the other values.

    `what` is starts, stops, grows, shrinks or moves. Hours are what its remaining work takes at
    the speed of each plan, None while it waits; dollars are per hour.
    """

    job_id: str
    tenant: str
    what: str
    pool_before: str
    gpus_before: int
    pool_after: str
    gpus_after: int
    left_h_before: float | None
    left_h_after: float | None
    dollars_before: float
    dollars_after: float


@dataclass(frozen=True)
class ChangedTenant:
    """What a tenant gains by the other values: jobs, GPUs, hours of work, dollars per hour."""

    tenant: str
    gaining: int
    losing: int
    gpus: int
    work_h: float
    dollars_per_hour: float


@dataclass(frozen=True)
class WhatIf:
    """The round as it is, and with other values: (before, after) each.

    Attributes
    ----------
    values : dict
        What was changed, by place.
    work_h, dollars : tuple of float
        Hours of work that the round does, and US dollars per hour.
    gpus, running : tuple of int
        GPUs in use, and jobs that hold some.
    sentences : tuple of str
        The comparison in words.
    jobs, tenants
        Who gets something else.
    """

    values: Mapping[str, str]
    work_h: tuple[float, float]
    dollars: tuple[float, float]
    gpus: tuple[int, int]
    running: tuple[int, int]
    sentences: tuple[str, ...]
    jobs: tuple[ChangedJob, ...]
    tenants: tuple[ChangedTenant, ...]
    limit_s: float

    def seen_by(self, tenant: str | None) -> WhatIf:
        """Return what a member of a tenant may see of it; None: all."""
        if tenant is None:
            return self
        jobs = tuple(job for job in self.jobs if job.tenant == tenant)
        tenants = tuple(row for row in self.tenants if row.tenant == tenant)
        # limits of other tenants that bind
        hidden = re.compile(rf"\btenants\.(?!{re.escape(tenant)}\.)")
        sentences = tuple(text for text in self.sentences if not hidden.search(text))
        return replace(self, jobs=jobs, tenants=tenants, sentences=sentences)


def ask_what_if(
    snapshot: Snapshot, effort: Effort, values: Mapping[str, str], deciders: Deciders
) -> WhatIf:
    """Decide a round with other values in a child process, and compare.

    Parameters
    ----------
    values : mapping of str to str
        New values by place, as `allocator whatif --set`: "pools.a100.gpus", "budget_per_hour",
        "tenants.red.max_gpus", "jobs.bert-1.weight", "nodes.n1.state".

    Raises
    ------
    UsageError
        If a place or a value is not valid, or the rules cannot all hold.
    NoPlanInTime, QueueUnavailable
        If the time is too short, or other questions are being decided.
    """
    question = {"ask": "compare", "arguments": {"values": dict(values)}}
    found = deciders.ask(snapshot, effort, question)
    pairs = {name: tuple(found[name]) for name in ("work_h", "dollars", "gpus", "running")}
    return WhatIf(
        dict(values),
        **pairs,
        sentences=tuple(found["sentences"]),
        jobs=tuple(ChangedJob(**job) for job in found["jobs"]),
        tenants=tuple(ChangedTenant(**row) for row in found["tenants"]),
        limit_s=deciders.limit_s,
    )


def compare_changes(
    snapshot: Snapshot, effort: Effort, values: Mapping[str, str]
) -> dict[str, Any]:
    """Decide the round as it is and with other values, in the child."""
    command = SolveCommand(effort.policy, solver=effort.solver, limits=effort.limits)
    after = command.decide(command.problem(snapshot, values))
    before = command.decide(command.problem(snapshot, {}))
    found = compare(before, after, values)
    jobs = _list_jobs(found.jobs, before, after)
    return {
        "work_h": found.work_h,
        "dollars": found.dollars,
        "gpus": found.gpus,
        "running": found.running,
        "sentences": list(found.lines()),
        "jobs": [asdict(job) for job in jobs],
        "tenants": [asdict(row) for row in _sum_tenants(jobs, before, after)],
    }


def _list_jobs(
    changes: tuple[JobChange, ...], before: Decision, after: Decision
) -> list[ChangedJob]:
    owners = _owners(after)
    costs = (_costs(before), _costs(after))
    return [
        ChangedJob(
            one.job_id,
            owners[one.job_id],
            one.what,
            one.before.pool,
            one.before.gpus,
            one.after.pool,
            one.after.gpus,
            one.left_h_before,
            one.left_h_after,
            *(cost.get(one.job_id, 0.0) for cost in costs),
        )
        for one in changes
    ]


def _owners(decision: Decision) -> dict[str, str]:
    problem = decision.round.problem
    names = problem.tenants.tenant
    return {job: names[k] for job, k in zip(problem.jobs.job_id, problem.jobs.tenant, strict=True)}


def _costs(decision: Decision) -> dict[str, float]:
    jobs = decision.round.problem.jobs.job_id
    return dict(zip(jobs, decision.witness.cost.tolist(), strict=True))


def _sum_tenants(jobs: list[ChangedJob], before: Decision, after: Decision) -> list[ChangedTenant]:
    """Return the tenants for which something changes, in the order of the rounds."""
    totals = [_totals(decision) for decision in (before, after)]
    out = []
    for name in dict.fromkeys((*totals[0], *totals[1])):
        gains = [
            float(new - old)
            for old, new in zip(*(total.get(name, np.zeros(3)) for total in totals), strict=True)
        ]
        mine = [job for job in jobs if job.tenant == name]
        if mine or any(abs(gain) > 1e-9 for gain in gains):
            gaining = sum(job.what in GAINS for job in mine)
            losing = sum(job.what in ("stops", "shrinks") for job in mine)
            out.append(ChangedTenant(name, gaining, losing, round(gains[0]), gains[1], gains[2]))
    return out


def _totals(decision: Decision) -> dict[str, Any]:
    """Return GPUs, hours of work and dollars per hour by tenant."""
    problem = decision.round.problem
    columns = (decision.allocation.held, measure_work_h(decision), decision.witness.cost)
    count = len(problem.tenants.tenant)
    sums = [np.bincount(problem.jobs.tenant, column, count) for column in columns]
    return {
        name: np.array([column[k] for column in sums])
        for k, name in enumerate(problem.tenants.tenant)
    }
