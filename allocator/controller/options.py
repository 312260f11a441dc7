"""How a controller works: every choice in one value."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from allocator.domain.settings import checked_horizon
from allocator.errors import UsageError
from allocator.loop.stability import Stability
from allocator.policies import registry as policies
from allocator.queue.jobs.states import Retries
from allocator.solvers import registry as solvers
from allocator.solvers.effort import GAP

SHARE = 0.5  # of an interval that a decision may take unless told otherwise
LEASE = 1.5  # intervals that a lease lasts
LEAST_LEASE_S = 3.0
LONGEST_POLL_S = 1.0
GRACE_S = 2.0  # seconds beyond its time limit after which a decision counts as hung


@dataclass(frozen=True)
class ControllerOptions:
    """Values of one controller.

    every_s: seconds between rounds; None: interval_s of the queue's settings. react_s: arrivals,
    ends and changes of the cluster cause early rounds, at least so long after the one before; inf:
    ticks only. poll_s: seconds between two looks at the machines. policy, solver, gap,
    time_limit_s, seed, threads: effort of each decision (api.solve); horizon: intervals that the
    policy `horizon` plans, None: as the queue's settings say; time_limit_s None: half of the
    interval. warm: start from the prices of the round before. learn: correct rates by what is
    observed. stall_s: a job that reports no progress for so long is stopped and counts as failed;
    None: ten intervals, at least ten minutes; inf: never. keep_rounds: rounds whose snapshot and
    plan are kept; keep_observations: of each allocation. settle_s: how long a single round (once)
    is followed until it is carried out.
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
        """Seconds that a decision may take."""
        return self.time_limit_s if self.time_limit_s is not None else SHARE * interval_s

    def lease_s(self, interval_s: float) -> float:
        """Seconds that the lease lasts: long enough for a decision, and over within two
        intervals.
        """
        limit = self.limit_s(interval_s)
        longest = limit + GRACE_S if math.isfinite(limit) else 0.0
        return max(LEAST_LEASE_S, LEASE * interval_s, LEASE * longest)

    def poll_interval_s(self, interval_s: float) -> float:
        """Seconds between two looks at the machines."""
        return self.poll_s if self.poll_s is not None else min(LONGEST_POLL_S, interval_s / 10)

    def patience_s(self, interval_s: float) -> float:
        """Seconds without progress after which a job counts as stuck."""
        return self.stall_s if self.stall_s is not None else max(600.0, 10 * interval_s)

    def decision(self) -> dict[str, Any]:
        """What of these a decision depends on, for the journal."""
        names = ("solver", "gap", "seed", "threads")
        return {name: value for name, value in asdict(self).items() if name in names}
