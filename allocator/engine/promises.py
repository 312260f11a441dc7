"""Which deadlines of a snapshot can be promised together, why others cannot, and the alternatives.

A promise is based on a plan (formulations/deadlines/joint_promises.py): sizes over time for every
promised job, within GPUs, quotas and budgets. So all promises can be kept together as long as
speeds are right, no GPUs are lost, and nothing that the plan needs is given away. Running jobs are
promised first, then jobs by submission, so a later job never costs an earlier one its promise. A
linear programme bounds how many deadlines could be kept if all were planned again
(formulations/deadlines/kept_bound.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Floats, Problem
from allocator.options.configure import job_number
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.options.option_table import find_blocked_jobs
from allocator.options.promises import accept_promises, build_reservations, extend_reservations
from allocator.performance.pipelines import due_s
from allocator.performance.table import RateTable
from formulations.deadlines.joint_promises import ReservationPlan
from formulations.deadlines.kept_bound import DatedJobs, bound_kept_deadlines
from formulations.deadlines.satisfactory_shares import reservation

NAMED = 3  # conflicting jobs that a refusal names


@dataclass(frozen=True)
class DeadlineAnswer:
    """The answer for one job; times are on the clock of now_s.

    Attributes
    ----------
    due_s : float or None
        Its deadline, None = none. For a stage of a pipeline see allocator/performance/pipelines.py.
    promised : bool or None
        Whether the deadline is promised, None without a deadline.
    pool, gpus_now, most_gpus, done_s
        Those of the plan that keeps the promise.
    earliest_s : float or None
        Earliest deadline that could be promised in addition to all promises made. None: none was
        found, or it is not needed.
    reason : str
        Why it is not promised.
    """

    job_id: str
    tenant: str
    due_s: float | None
    promised: bool | None
    pool: str | None = None
    gpus_now: int | None = None
    most_gpus: int | None = None
    done_s: float | None = None
    earliest_s: float | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of FIELDS."""
        return asdict(self)


FIELDS = tuple(field.name for field in fields(DeadlineAnswer))


@dataclass(frozen=True)
class Promises:
    """An answer for each job in file order, and counts of deadlines.

    `wanted` is the number of deadlines, `kept` the number of those promised. No plan keeps more
    than `most` of them.
    """

    jobs: tuple[DeadlineAnswer, ...]
    wanted: int
    kept: int
    most: int


def promises(problem: Problem) -> Promises:
    """Return the answers for all jobs of a snapshot."""
    everyone = np.ones(len(problem.jobs), bool)
    answers, round_, plan, fixed = _answer_jobs(problem, everyone, range(len(problem.jobs)))
    wanted = sum(a.promised is not None for a in answers)
    sure = sum(a.promised is True for a in answers)
    most = max(sure, _bound_kept(round_, plan, fixed, answers))
    return Promises(tuple(answers), wanted, sure, most)


def promise(problem: Problem, job_id: str) -> DeadlineAnswer:
    """Return the answer for one job.

    This takes less time than `promises`, because only this job and jobs with deadlines are
    considered.

    Raises
    ------
    UsageError
        The job is unknown.
    """
    j = job_number(problem, job_id)
    who = (np.arange(len(problem.jobs)) == j) | ~np.isnan(due_s(problem))
    return _answer_jobs(problem, who, [j])[0][0]


def _answer_jobs(
    problem: Problem, who: Bools, jobs: Iterable[int]
) -> tuple[list[DeadlineAnswer], CompiledRound, ReservationPlan, Collection[int]]:
    """Answer some jobs in a round in which promises are made to the jobs of `who` (J,).

    Return also the compiled round, the promises, and the jobs that keep what they hold.
    """
    round_ = compile_round(problem, prunes=False)
    i, m, problem = round_.instance, round_.option_table, round_.problem
    # a speed is assumed where the model has no given rate
    model, gpu_type = problem.jobs.model[m.job], problem.pools.gpu_type[m.pool]
    assumed = RateTable.of(problem).is_assumed(model, gpu_type, m.gpus)
    guessed = np.bincount(m.job, assumed, len(problem.jobs)) > 0
    plan = build_reservations(round_, who & ~guessed)
    empty = plan.left
    present = round_.unchanged_choice()
    fixed = set(np.flatnonzero(i.mandatory & (present >= 0)).tolist())
    accept_promises(plan, round_)
    kept = dict(zip(plan.jobs, plan.made, strict=True))
    stopped = find_blocked_jobs(problem)
    # what the promises leave, including the time after the last deadline
    after_last_deadline = cache(lambda: extend_reservations(plan, round_))

    def answer(j: int) -> DeadlineAnswer:
        due = float(plan.due[j]) + problem.now_s if math.isfinite(plan.due[j]) else None
        about = DeadlineAnswer(
            problem.jobs.job_id[j],
            problem.tenants.tenant[problem.jobs.tenant[j]],
            due,
            None if due is None else False,
        )
        if j in kept:
            p = kept[j]
            return replace(
                about,
                promised=True,
                pool=problem.pools.pool[p.place.pool],
                gpus_now=int(p.reservation.size[0]),
                most_gpus=int(p.reservation.size.max()),
                done_s=problem.now_s + p.reservation.done_s,
            )
        if guessed[j]:
            reason = "its speed is assumed, not measured; nothing can be promised on it"
            return replace(about, reason=reason)
        if j in fixed:
            column = present[j]
            seconds = float(problem.jobs.remaining_work[j] / m.rate[round_.option[column]])
            done_s = problem.now_s + seconds
            in_time = None if due is None else bool(seconds <= plan.due[j])
            return replace(
                about,
                promised=in_time,
                pool=problem.pools.pool[i.pool[column]],
                gpus_now=int(i.gpus[column]),
                most_gpus=int(i.gpus[column]),
                done_s=done_s,
                earliest_s=None if in_time else done_s,
                reason="it keeps what it holds, and that is too slow" if in_time is False else "",
            )
        if stopped[j]:
            return replace(about, reason="it is held or waits for other jobs")
        if not plan.places[j]:
            return replace(about, reason="no pool has GPUs that it can use")
        soonest = plan.soonest(j)
        soonest = soonest if math.isfinite(soonest) else after_last_deadline().soonest(j)
        return replace(
            about,
            earliest_s=problem.now_s + soonest if math.isfinite(soonest) else None,
            reason="" if due is None else _explain_refusal(plan, empty, j, problem),
        )

    return [answer(j) for j in jobs], round_, plan, fixed


def _explain_refusal(plan: ReservationPlan, empty: Floats, j: int, problem: Problem) -> str:
    """Return why a deadline is refused: too late even alone, or which promises conflict."""
    places = plan.places[j]
    if all(reservation(p.need, p.free(empty), plan.slot_s) is None for p in places):
        fastest = max(float(p.need.rate.max()) for p in places)
        hours = problem.jobs.remaining_work[j] / fastest / 3600.0
        return (
            f"even alone it needs {hours:.3g} h at its fastest, and"
            f" {max(0.0, plan.due[j]) / 3600.0:.3g} h are left"
        )
    slots = max(1, math.ceil(plan.due[j] / plan.slot_s))
    rows = {int(r) for p in places for r in p.rows}
    rivals = sorted(
        (-float(promise.reservation.size[:slots].sum()), other)
        for other, promise in zip(plan.jobs, plan.made, strict=True)
        if rows & set(promise.place.rows.tolist()) and promise.reservation.size[:slots].any()
    )
    names = ", ".join(problem.jobs.job_id[k] for _, k in rivals[:NAMED])
    more = len(rivals) - NAMED
    return (
        "earlier promises take what it needs until then"
        + (f": {names}" if names else "")
        + (f" and {more} more" if more > 0 else "")
    )


def _bound_kept(
    round_: CompiledRound,
    plan: ReservationPlan,
    fixed: Collection[int],
    answers: Sequence[DeadlineAnswer],
) -> int:
    """Return an upper bound on the number of deadlines that any plan keeps."""
    able = np.isfinite(plan.due) & (plan.due > 0)
    jobs = np.array([j for j in np.flatnonzero(able).tolist() if plan.places[j]], np.int64)
    given = sum(answers[j].promised is True for j in fixed)
    job: list[int] = []
    row: list[int] = []
    option: list[int] = []
    rate: list[float] = []
    amount: list[float] = []
    for n, j in enumerate(jobs.tolist()):
        for p in plan.places[j]:
            for gpus, speed in zip(p.need.sizes.tolist(), p.need.rate.tolist(), strict=True):
                row += p.rows.tolist()
                amount += (p.per_gpu * gpus).tolist()
                option += [len(job)] * len(p.rows)
                job.append(n)
                rate.append(speed)
    high = plan.whole.max(axis=1)  # fixed jobs end at different times
    bound = bound_kept_deadlines(
        DatedJobs(
            np.ones(len(jobs)),
            round_.problem.jobs.remaining_work[jobs],
            plan.due[jobs],
            np.array(job, np.int64),
            np.array(rate),
            np.array(row, np.int64),
            np.array(option, np.int64),
            np.array(amount),
            high,
        )
    )
    return given + math.floor(bound + 1e-6)
