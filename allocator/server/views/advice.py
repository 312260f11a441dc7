"""Advice on the present round, decided in a child process: why a job waits and what would admit it,
and who gains and loses by other values.

Both decide the present round again, several times. So that no request waits longer than stated, and
no fault of a decision harms the service, a child does it: it gets the function, the snapshot and
what else it asks for on standard input, and answers on standard output.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection

from allocator.controller import profiling, spending
from allocator.domain.problem import Floats
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.settings import has_trials
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.explain import explain
from allocator.engine.whatif import compare, measure_work_h
from allocator.errors import AllocatorError, NoPlanInTime, UsageError
from allocator.loop.live_rental import LiveRental
from allocator.market.books import RENTAL_TABLE as RENTAL
from allocator.objects import Record
from allocator.queue import round_journal
from allocator.queue.snapshot import build_snapshot
from allocator.server.views.answer import Answer, Form
from allocator.server.views.cluster import OTHERS
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP

SEARCH = 0.4  # part of the limit in which a search for changes makes new decisions
T = TypeVar("T")
SHARE = 0.15  # part of the limit of an answer that one decision may take
ERRORS: Mapping[int, type[AllocatorError]] = {
    2: UsageError,
    3: UsageError,
    4: UsageError,
    NoPlanInTime.exit_code: NoPlanInTime,
}


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

        def conceal(part: Any) -> Any:
            if isinstance(part, list):
                return list(map(conceal, part))
            if isinstance(part, dict):
                return {conceal(place): value for place, value in part.items()}
            for name in sorted((n for n in others if n in (part or "")), key=len, reverse=True):
                part = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", OTHERS, part)
            return part

        names = ("summary", "detail", "changes", "places", "losers")
        return self.model_copy(update={name: conceal(getattr(self, name)) for name in names})


def explain_job(
    limit_s: float, snapshot: Snapshot, command: SolveCommand, job_id: str
) -> ExplanationAnswer:
    """Explain a job, in the child. Raises UsageError if the round does not have it."""
    explanation = explain(snapshot, job_id, command, seconds=SEARCH * limit_s)
    return ExplanationAnswer(
        job_id=job_id,
        summary=explanation.summary,
        reason=explanation.got["reason"],
        detail=explanation.got["detail"],
        changes=[str(change) for change in explanation.changes],
        places=[dict(change.values) for change in explanation.changes],
        losers=list(explanation.losers),
        untried=list(explanation.untried),
        is_late=explanation.is_late,
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
    limit_s: float, snapshot: Snapshot, command: SolveCommand, values: Mapping[str, str]
) -> WhatIfAnswer:
    """Decide the round as it is and with other values, in the child.

    `values` are by place, as in `allocator whatif --set`. Raises UsageError if a place or a value
    is not valid, or the rules cannot all hold.
    """
    after = command.decide(command.problem(snapshot, values))
    before = command.decide(command.problem(snapshot, {}))
    comparison = compare(before, after, values)
    jobs, tenants = after.round.problem.jobs, after.round.problem.tenants.tenant
    owners = {name: tenants[k] for name, k in zip(jobs.job_id, jobs.tenant, strict=True)}
    costs = [
        dict(zip(plan.round.problem.jobs.job_id, plan.witness.cost.tolist(), strict=True))
        for plan in (before, after)
    ]
    changed = [
        ChangedJob(
            tenant=owners[job.job_id],
            pool_before=job.before.pool,
            gpus_before=job.before.gpus,
            pool_after=job.after.pool,
            gpus_after=job.after.gpus,
            dollars_before=costs[0].get(job.job_id, 0.0),
            dollars_after=costs[1].get(job.job_id, 0.0),
            **vars(job),
        )
        for job in comparison.jobs
    ]
    return WhatIfAnswer(
        values=dict(values),
        work_h=comparison.work_h,
        dollars=comparison.dollars,
        gpus=comparison.gpus,
        running=comparison.running,
        sentences=list(comparison.lines()),
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


def ask_child(answer: Callable[..., T], limit_s: float, *question: Any) -> T:
    """Return what a function answers to the limit and a question, in a child.

    Raises
    ------
    NoPlanInTime
        If the child did not answer within the limit.
    UsageError
        If the question cannot be answered, with the reason.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import answer_parent; answer_parent()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a solver of its own dies with it
    )
    try:
        out, _ = child.communicate(pickle.dumps((answer, limit_s, question)), limit_s)
    except subprocess.TimeoutExpired:
        raise NoPlanInTime(
            f"no answer within {limit_s:g} s: the round is too large to be decided"
            " several times in that time"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if not out:
        raise AllocatorError("the process that decides ended without an answer")
    reply: T | AllocatorError = pickle.loads(out)
    if isinstance(reply, AllocatorError):
        raise reply
    return reply


def answer_parent() -> None:
    """Answer the question of `ask_child`, in the child."""
    answer, limit_s, question = pickle.load(sys.stdin.buffer)
    seconds = int(limit_s) + 2  # of CPU: the child ends even if nobody kills it
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        reply = answer(limit_s, *question)
    except AllocatorError as error:
        reply = ERRORS.get(error.exit_code, AllocatorError)(str(error))
    pickle.dump(reply, sys.stdout.buffer)


def read_question(
    connection: Connection, now_s: float, limit_s: float
) -> tuple[Snapshot, SolveCommand]:
    """Return the present round of a queue, and how the controller decided the last one.

    `limit_s` are the seconds that the whole answer may take, of which one decision gets a share.
    The prices and limits of long-run budgets, and the speeds that trials have shown, are those that
    the controller would take now.
    """
    snapshot = build_snapshot(connection, now_s)
    if has_trials(snapshot.config):
        snapshot = profiling.use_fits(snapshot, profiling.read(connection))
    has_books = spending.report(connection) or spending.report_months(connection)
    if has_books or "average_per_hour" in snapshot.config.get(RENTAL, {}):
        problem = validate(snapshot)
        snapshot, _, _ = spending.apply_budgets(connection, snapshot, problem, LiveRental())
    last = round_journal.history(connection, limit=1)
    options: Record = last[0].options if last else {}
    return snapshot, SolveCommand(
        last[0].policy if last else "mip",
        solver=options.get("solver", "auto"),
        limits=SolveLimits(SHARE * limit_s, options.get("gap", GAP), 1, options.get("seed", 0)),
    )
