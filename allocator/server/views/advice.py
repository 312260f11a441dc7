"""Advice on the present round, decided in a child process: why a job waits and what would admit it,
and who gains and loses by other values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from allocator.domain.problem import Floats
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.explain import explain
from allocator.engine.whatif import compare, measure_work_h
from allocator.server.views.answer import Answer, Form
from allocator.server.views.cluster import OTHERS

SEARCH = 0.4  # part of the limit in which a search for changes makes new decisions


class ExplanationAnswer(Answer):
    """Why a job has what it has, and what would change it; every change was verified."""

    job_id: str
    summary: str
    reason: str | None
    detail: str | None
    changes: list[str]
    places: list[dict[str, str]]
    """the changes as `values` of a what-if"""
    losers: list[str]
    """who would lose if it had to be served"""
    untried: list[str]
    """kinds of changes for which the time was too short"""
    is_late: bool
    """a decision was cut off by the limit, and is not counted"""
    limit_s: float
    """seconds that the answer could take"""

    def seen_by_member(self, others: Collection[str]) -> ExplanationAnswer:
        """Return the explanation without the names of other tenants' jobs, which are given."""

        def conceal(found: Any) -> Any:
            if isinstance(found, list):
                return list(map(conceal, found))
            if isinstance(found, dict):
                return {conceal(place): value for place, value in found.items()}
            for name in sorted((n for n in others if n in (found or "")), key=len, reverse=True):
                found = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", OTHERS, found)
            return found

        names = ("summary", "detail", "changes", "places", "losers")
        return self.model_copy(update={name: conceal(getattr(self, name)) for name in names})


def explain_job(
    snapshot: Snapshot, command: SolveCommand, limit_s: float, job_id: str
) -> ExplanationAnswer:
    """Explain a job, in the child. Raises UsageError if the round does not have it."""
    found = explain(snapshot, job_id, command, seconds=SEARCH * limit_s)
    return ExplanationAnswer(
        job_id=job_id,
        summary=found.summary,
        reason=found.got["reason"],
        detail=found.got["detail"],
        changes=[str(change) for change in found.changes],
        places=[dict(change.values) for change in found.changes],
        losers=list(found.losers),
        untried=list(found.untried),
        is_late=found.is_late,
        limit_s=limit_s,
    )


class ChangedJob(Form):
    """A job that gets something else with the other values; dollars are per hour."""

    job_id: str
    tenant: str
    what: str
    """starts, stops, grows, shrinks or moves"""
    pool_before: str
    gpus_before: int
    pool_after: str
    gpus_after: int
    left_h_before: float | None
    """hours for its remaining work at this speed; null while it waits"""
    left_h_after: float | None
    dollars_before: float
    dollars_after: float


class ChangedTenant(Form):
    """What a tenant gains by the other values."""

    tenant: str
    gaining: int
    """jobs that gain"""
    losing: int
    """jobs that lose"""
    gpus: int
    work_h: float
    """hours of work"""
    dollars_per_hour: float


class WhatIfAnswer(Answer):
    """The round as it is and with the other values, (before, after) each."""

    values: dict[str, str]
    work_h: tuple[float, float]
    """hours of work that the round does"""
    dollars: tuple[float, float]
    """US dollars per hour"""
    gpus: tuple[int, int]
    running: tuple[int, int]
    sentences: list[str]
    jobs: list[ChangedJob]
    """jobs that get something else"""
    tenants: list[ChangedTenant]
    """who gains and who loses"""
    limit_s: float
    """seconds that the answer could take"""

    def seen_by(self, tenant: str | None) -> WhatIfAnswer:
        """Return what a member of a tenant may see of it; None: all."""
        if tenant is None:
            return self
        # limits of other tenants that bind
        hidden = re.compile(rf"\btenants\.(?!{re.escape(tenant)}\.)")
        return self.model_copy(
            update={
                "jobs": [job for job in self.jobs if job.tenant == tenant],
                "tenants": [row for row in self.tenants if row.tenant == tenant],
                "sentences": [text for text in self.sentences if not hidden.search(text)],
            }
        )


def compare_changes(
    snapshot: Snapshot, command: SolveCommand, limit_s: float, values: Mapping[str, str]
) -> WhatIfAnswer:
    """Decide the round as it is and with other values, in the child.

    `values` are by place, as in `allocator whatif --set`. Raises UsageError if a place or a value
    is not valid, or the rules cannot all hold.
    """
    after = command.decide(command.problem(snapshot, values))
    before = command.decide(command.problem(snapshot, {}))
    found = compare(before, after, values)
    jobs, tenants = after.round.problem.jobs, after.round.problem.tenants.tenant
    owners = {name: tenants[k] for name, k in zip(jobs.job_id, jobs.tenant, strict=True)}
    costs = [
        dict(zip(one.round.problem.jobs.job_id, one.witness.cost.tolist(), strict=True))
        for one in (before, after)
    ]
    changed = [
        ChangedJob(
            tenant=owners[one.job_id],
            pool_before=one.before.pool,
            gpus_before=one.before.gpus,
            pool_after=one.after.pool,
            gpus_after=one.after.gpus,
            dollars_before=costs[0].get(one.job_id, 0.0),
            dollars_after=costs[1].get(one.job_id, 0.0),
            **vars(one),
        )
        for one in found.jobs
    ]
    return WhatIfAnswer(
        values=dict(values),
        work_h=found.work_h,
        dollars=found.dollars,
        gpus=found.gpus,
        running=found.running,
        sentences=list(found.lines()),
        jobs=changed,
        tenants=_sum_tenants(changed, before, after),
        limit_s=limit_s,
    )


def _sum_tenants(jobs: list[ChangedJob], before: Decision, after: Decision) -> list[ChangedTenant]:
    """Return the tenants for which something changes, in the order of the rounds."""
    gains: dict[str, Floats] = {}
    for sign, decision in ((-1, before), (1, after)):
        problem = decision.round.problem
        names = problem.tenants.tenant
        columns = (decision.allocation.held, measure_work_h(decision), decision.witness.cost)
        sums = [np.bincount(problem.jobs.tenant, column, len(names)) for column in columns]
        for name, row in zip(names, np.transpose(sums), strict=True):
            gains[name] = gains.get(name, 0.0) + sign * row
    out = []
    for name, (gpus, work_h, dollars) in gains.items():
        whats = [job.what for job in jobs if job.tenant == name]
        if whats or np.abs([gpus, work_h, dollars]).max() > 1e-9:
            out.append(
                ChangedTenant(
                    tenant=name,
                    gaining=sum(what in ("starts", "grows") for what in whats),
                    losing=sum(what in ("stops", "shrinks") for what in whats),
                    gpus=round(gpus),
                    work_h=work_h,
                    dollars_per_hour=dollars,
                )
            )
    return out
