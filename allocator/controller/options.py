"""The options of a controller."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from allocator.domain.settings import checked_horizon
from allocator.errors import UsageError
from allocator.objects import Json
from allocator.policies import base as policies
from allocator.queue.holdings import Retries
from allocator.solvers import registry as solvers
from allocator.solvers.effort import GAP

SHARE = 0.5  # share of an interval that a decision may take by default
LEASE = 1.5  # length of a lease in intervals
LEAST_LEASE_S = 3.0
LONGEST_POLL_S = 1.0
GRACE_S = 2.0  # seconds beyond its time limit after which a decision counts as hung


@dataclass(frozen=True)
class Stability:
    """Rules that keep running jobs from being changed too often.

    A job is left alone for `cooldown_s` seconds after a change, and for `min_run_s` seconds after
    its start; 0 turns a rule off. With `payback` a change has to gain more than its pause costs.
    """

    cooldown_s: float = 0.0
    min_run_s: float = 0.0
    payback: bool = False

    def __post_init__(self) -> None:
        for name in ("cooldown_s", "min_run_s"):
            if not getattr(self, name) >= 0 or math.isinf(getattr(self, name)):
                raise UsageError(
                    f"{name} {getattr(self, name)} must be a number of seconds, 0 or more"
                )

    @property
    def has_rest_rules(self) -> bool:
        """Whether jobs may be left alone because of the time of their last change."""
        return self.cooldown_s > 0 or self.min_run_s > 0


@dataclass(frozen=True)
class ControllerOptions:
    """The options of one controller.

    Parameters
    ----------
    every_s : float, optional
        Seconds between rounds. Default: interval_s of the queue's settings.
    react_s : float
        Submissions, ends of jobs and changes of the cluster cause early rounds, at least so many
        seconds after the round before. inf: rounds at ticks only.
    poll_s : float, optional
        Seconds between two polls of the executor. Default: a tenth of the interval, at most
        LONGEST_POLL_S.
    policy : str
        The policy.
    horizon : int, optional
        Intervals that the policy `horizon` plans. Default: as the queue's settings say.
    solver, gap, time_limit_s, seed, threads
        Effort of each decision, as of `allocator.solve`. Default of time_limit_s: half of the
        interval.
    warm : bool
        Start from the prices of the round before.
    learn : bool
        Correct rates by observations.
    stall_s : float, optional
        A job that reports no progress for so many seconds is stopped and counts as failed; inf:
        never. Default: ten intervals, at least ten minutes.
    stability : Stability
        Rules that leave jobs alone.
    retries : Retries
        Pauses after failures.
    keep_rounds : int
        Rounds whose snapshot and plan are kept.
    keep_observations : int
        Observations that are kept of each allocation.
    settle_s : float
        Seconds for which a single round (--once) is followed until it is carried out.
    """

    every_s: float | None = None
    react_s: float = math.inf
    poll_s: float | None = None
    policy: str = "mip"
    horizon: int | None = None
    solver: str = "auto"
    gap: float = GAP
    time_limit_s: float | None = None
    seed: int = 0
    threads: int = 1
    warm: bool = True
    learn: bool = True
    stall_s: float | None = None
    stability: Stability = field(default_factory=Stability)
    retries: Retries = field(default_factory=Retries)
    keep_rounds: int = 1000
    keep_observations: int = 5
    settle_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("every_s", "react_s", "poll_s", "time_limit_s", "stall_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} {value} must be above 0")
        if self.every_s is not None and math.isinf(self.every_s):
            raise UsageError("every_s must be a number of seconds")
        if not 0 <= self.settle_s < math.inf:
            raise UsageError(f"settle_s {self.settle_s} must be a number of seconds")
        if not self.gap >= 0:
            raise UsageError(f"gap {self.gap} must not be negative")
        policies.policy(self.policy)
        if self.horizon is not None:
            checked_horizon(self.horizon)
        if self.solver != "auto":
            solvers.get(self.solver)

    def limit_s(self, interval_s: float) -> float:
        """Return the seconds that a decision may take."""
        return self.time_limit_s if self.time_limit_s is not None else SHARE * interval_s

    def lease_s(self, interval_s: float) -> float:
        """Return the seconds of the lease: longer than an interval and than a decision."""
        limit = self.limit_s(interval_s)
        longest = limit + GRACE_S if math.isfinite(limit) else 0.0
        return max(LEAST_LEASE_S, LEASE * interval_s, LEASE * longest)

    def poll_interval_s(self, interval_s: float) -> float:
        """Return the seconds between two polls of the executor."""
        return self.poll_s if self.poll_s is not None else min(LONGEST_POLL_S, interval_s / 10)

    def patience_s(self, interval_s: float) -> float:
        """Return the seconds without progress after which a job counts as stuck."""
        return self.stall_s if self.stall_s is not None else max(600.0, 10 * interval_s)

    def decision(self) -> Json:
        """Return the options that a decision depends on, for the journal."""
        return {name: getattr(self, name) for name in ("solver", "gap", "seed", "threads")}
