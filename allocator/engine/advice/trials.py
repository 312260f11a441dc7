"""Inputs with some values changed, decided by the user's command, and what one job then gets.

A decision is deterministic unless its time runs out. So the result of a trial is what the same
command gives once the same cells are written into the files. A trial that ran out of time proves
nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from allocator.domain.changes import changed, text_at
from allocator.domain.plan import Plan
from allocator.domain.problem import Bools, Floats, Problem, join_names, other_jobs
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import CONFIG, RULE, TABLES
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.change import BUDGET_OPTION
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round, explain_decision, override_settings
from allocator.errors import AllocatorError
from allocator.policies.base import AnyPolicy
from allocator.solvers.base import SolveLimits

Values = Mapping[str, str]
MORE = 1e-9  # relative: values with a smaller difference count as equal


@dataclass(frozen=True)
class SolveCommand:
    """The user's options of `allocator solve`.

    `budget` is in US dollars per hour, `horizon` in intervals.
    """

    policy: AnyPolicy = "mip"
    objective: str | None = None
    budget: float | None = None
    horizon: int | None = None
    solver: str = "auto"
    limits: SolveLimits = field(default_factory=SolveLimits)

    def problem(self, snapshot: Snapshot, values: Values) -> Problem:
        """Return the checked problem of the snapshot with these values.

        Raises InvalidInput and UsageError.
        """
        cells = {place: value for place, value in values.items() if place != BUDGET_OPTION}
        budget = float(values[BUDGET_OPTION]) if BUDGET_OPTION in values else self.budget
        problem = validate(changed(snapshot, cells) if cells else snapshot)
        return override_settings(problem, self.objective, budget, self.horizon)

    def decide(self, problem: Problem) -> Decision:
        """Return the audited decision.

        Raises UsageError, Infeasible, NoPlanInTime, AuditFailure.
        """
        return decide_round(problem, policy=self.policy, solver=self.solver, limits=self.limits)

    def plan(self, problem: Problem, decision: Decision, whose: Bools | None = None) -> Plan:
        """Return the plan of a decision, with reasons of all jobs or of those of `whose` (J,)."""
        how: dict[str, Any] = {"policy": self.policy, "solver": self.solver, "limits": self.limits}
        return explain_decision(problem, decision, whose=whose, **how)


@dataclass(frozen=True)
class JobOutcome:
    """What a decision gives one job, with its speed and value; pool "" and gpus 0 = nothing."""

    gpus: int
    pool: str
    shared_with: str | None
    work_per_s: float
    value: float

    @classmethod
    def of(cls, decision: Decision, j: int) -> JobOutcome:
        """Return what job number j gets."""
        problem = decision.round.problem
        got = decision.allocation
        others = other_jobs(got.secondary)[j]
        pool = int(got.pool[j])
        return cls(
            int(got.gpus[j]),
            problem.pools.pool[pool] if pool >= 0 else "",
            join_names(problem.jobs.job_id[i] for i in others) or None,
            float(decision.witness.rate[j]),
            float(decision.witness.value[j]),
        )

    @property
    def place(self) -> tuple[str, int, str | None]:
        """Its pool, its number of GPUs, and the job it shares them with."""
        return self.pool, self.gpus, self.shared_with


class OutOfTries(Exception):
    """No decision is left."""


class Trials:
    """Trials for one job of a snapshot.

    `decisions` counts them; each set of values is decided only once. After `seconds` there are no
    more.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        command: SolveCommand,
        j: int,
        now: Decision,
        seconds: float = math.inf,
    ) -> None:
        self._end_s = time.monotonic() + seconds
        self.snapshot = snapshot
        self.command = command
        self.decisions = 0
        self.late = 0
        self.best: tuple[Values, JobOutcome, Floats] | None = None
        self._end = 0
        self._j = j
        self._share = JobOutcome.of(now, j)
        self._known: dict[tuple[tuple[str, str], ...], tuple[JobOutcome, Floats] | None] = {}

    def allow(self, most: int) -> None:
        """Allow so many more decisions, of a new search."""
        self._end = self.decisions + most
        self.best = None

    def helps(self, values: Values) -> bool:
        """Return whether the job gets more with these values.

        The last values that helped are kept as `best`, with what it gets and what all jobs cost.
        Raises OutOfTries where a decision would be one too many.
        """
        key = tuple(sorted(values.items()))
        if key not in self._known:
            if self.decisions >= self._end or self.is_out_of_time():
                raise OutOfTries
            self.decisions += 1
            self._known[key] = self._decide(values)
        share = self._known[key]
        if share is not None:
            self.best = values, *share
        return share is not None

    def is_out_of_time(self) -> bool:
        """Return whether the time for trials is over."""
        return time.monotonic() >= self._end_s

    def before(self, place: str) -> str:
        """Return the text of a cell, or of its default."""
        table, _, rest = place.partition(".")
        name, _, column = rest.rpartition(".")
        if place == BUDGET_OPTION:
            return f"{self.command.budget:.15g}"
        if not name:
            given = self.snapshot.config.get(place)
            default = next(c.default for c in CONFIG if c.name == place)
            return str(default if given is None else given)
        text = text_at(self.snapshot, table, name, column)
        default = TABLES[f"{table}.csv"].column(column).default
        if text or default in (None, RULE):
            return text
        return f"{default:g}" if isinstance(default, float) else str(default).lower()

    def _decide(self, values: Values) -> tuple[JobOutcome, Floats] | None:
        try:
            decision = self.command.decide(self.command.problem(self.snapshot, values))
        except AllocatorError:
            return None
        if decision.proposal.termination == "time_limit":
            self.late += 1
            return None
        share = JobOutcome.of(decision, self._j)
        return (share, decision.witness.cost) if self._is_better(decision, share) else None

    def _is_better(self, decision: Decision, share: JobOutcome) -> bool:
        """Return whether the job gets more than now, as the changed round values both.

        A higher weight alone is no gain.
        """
        old = self._share
        m = decision.round.option_table
        if not old.gpus or not share.gpus or old.place == share.place:
            return not old.gpus and share.gpus > 0
        pools = decision.round.problem.pools.pool
        pool = pools.index(old.pool) if old.pool in pools else -1
        same = np.flatnonzero(
            (m.job == self._j) & (m.pool == pool) & (m.gpus == old.gpus) & (m.primary < 0)
        )
        if old.shared_with or share.shared_with or not len(same):
            return share.work_per_s > old.work_per_s * (1 + MORE)
        before = float(m.value[same[0]])
        return share.value > before + MORE * max(1.0, abs(before))
