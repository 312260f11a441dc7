"""A job that is not there yet: the round with it, against the round as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.domain.changes import changed
from allocator.domain.findings import join_words
from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.schema.columns import JOBS
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.expected import forecast
from allocator.engine.expected_words import format_duration
from allocator.engine.explain import Explanation, explain_decided
from allocator.engine.whatif import Comparison, compare

SAME_S = 1.0  # starts that differ by less are the same
SHOWN = 8  # jobs that are listed
NAMED = 3  # jobs that a sentence names


@dataclass(frozen=True)
class LaterStart:
    """A job that waits in both plans and starts later with the new job.

    `before_s` and `after_s` count from now; None: it is no longer known.
    """

    job_id: str
    before_s: float
    after_s: float | None


@dataclass(frozen=True)
class Submission:
    """What submitting a job does.

    Attributes
    ----------
    job_id : str
        The new job.
    explanation : Explanation
        What it gets, when it is expected to start, and what would make it start sooner.
    comparison : Comparison
        The plan without it and the plan with it.
    later : tuple of LaterStart
        Jobs that start later, the most delayed first.
    plan : Plan
        The plan with it, and reasons of the jobs in `comparison`.
    """

    job_id: str
    explanation: Explanation
    comparison: Comparison
    later: tuple[LaterStart, ...]
    plan: Plan

    @property
    def answer(self) -> str:
        """Return the answer in one line: when it starts, and whom it pushes away."""
        clauses = [
            _name([job.job_id for job in self.comparison.jobs if job.what in what], does)
            for what, does in (
                (("stops", "shrinks"), ("loses GPUs", "lose GPUs")),
                (("moves",), ("moves", "move")),
            )
        ]
        clauses.append(_name([job.job_id for job in self.later], ("starts later", "start later")))
        effects = ", ".join(filter(None, clauses))
        effect = (
            f"Of the others, {effects}." if effects else "No other job loses GPUs or starts later."
        )
        return f"{self.explanation.summary} {effect}"

    def lines(self) -> Iterator[str]:
        """Return what would make it start sooner, and who starts later, in sentences."""
        explanation = self.explanation
        if explanation.changes:
            yield "what would give it more (each verified by deciding again):"
            yield from (f"  {change}" for change in explanation.changes)
        if self.later:
            yield "who starts later:"
            for job in self.later[:SHOWN]:
                after = "not known" if job.after_s is None else f"in {format_duration(job.after_s)}"
                yield f"  {job.job_id}: {after}, not in {format_duration(job.before_s)}"
            if len(self.later) > SHOWN:
                yield f"  and {len(self.later) - SHOWN} more"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON.

        Returns
        -------
        dict
            The attributes, and the answer.
        """
        return {
            "job_id": self.job_id,
            "answer": self.answer,
            "explanation": self.explanation.to_dict(),
            "comparison": self.comparison.to_dict(),
            "later": [dataclasses.asdict(job) for job in self.later],
        }


def with_job(snapshot: Snapshot, row: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot with one more job; `row` has columns of jobs.csv, not yet checked.

    It is the last row of jobs.csv.
    """
    name = row["job_id"]
    required = {column.name for column in JOBS.columns if column.required} - {"job_id"}
    return changed(
        snapshot,
        {
            f"jobs.{name}.{column}": value
            for column, value in row.items()
            if column != "job_id" and (value is not None or column in required)
        },
    )


def submit(
    problem: Problem, other: Snapshot, with_other: Problem, command: SolveCommand
) -> tuple[Submission, Decision, Decision]:
    """Decide a round as it is and with one more job, and compare both plans.

    Parameters
    ----------
    problem : Problem
        The round without the job.
    other, with_other : Snapshot and Problem
        The round with the job, which is the last of its jobs (`with_job`).
    command : SolveCommand
        Who decides, and how.

    Returns
    -------
    submission : Submission
        What the job gets, and what becomes of the others.
    before, after : Decision
        Both decisions.

    Raises
    ------
    Infeasible, NoPlanInTime
        As of `solve`, for either round.
    """
    before = command.decide(problem)
    after = command.decide(with_other)
    name = with_other.jobs.job_id[-1]
    comparison = compare(before, after)
    whose = np.isin(with_other.jobs.job_id, [name, *(job.job_id for job in comparison.jobs)])
    plan = command.plan(with_other, after, whose)
    explanation = explain_decided(
        other, with_other, name, command, after, trusts_assumed=True, result=plan
    )
    jobs = tuple(sorted(comparison.jobs, key=lambda job: job.job_id != name))  # it comes first
    comparison = dataclasses.replace(comparison, jobs=jobs)
    later = tuple(_find_later(before, after))
    return Submission(name, explanation, comparison, later, plan), before, after


def _find_later(before: Decision, after: Decision) -> list[LaterStart]:
    """Return the jobs that wait in both plans, and start later in the second."""
    old, new = (_expect_starts(decision) for decision in (before, after))
    later = [
        LaterStart(name, begin, new[name])
        for name, begin in old.items()
        if begin is not None and name in new and ((at := new[name]) is None or at > begin + SAME_S)
    ]
    return sorted(
        later, key=lambda job: -(np.inf if job.after_s is None else job.after_s - job.before_s)
    )


def _expect_starts(decision: Decision) -> dict[str, float | None]:
    """Return the expected start of every job that waits, None = not known."""
    start = forecast(decision, trusts_assumed=True).start_s
    names = decision.round.problem.jobs.job_id
    waits = np.flatnonzero(decision.allocation.gpus == 0).tolist()
    return {names[j]: None if np.isnan(start[j]) else float(start[j]) for j in waits}


def _name(jobs: list[str], does: tuple[str, str]) -> str:
    """Return who does something: "a and b move", "5 jobs move (a, b, c ...)"; "" for nobody."""
    if not jobs:
        return ""
    if len(jobs) <= NAMED:
        return f"{join_words(jobs)} {does[len(jobs) > 1]}"
    return f"{len(jobs)} jobs {does[1]} ({', '.join(jobs[:NAMED])} ...)"
