"""GPU-hours of tenants in a calendar month (UTC), for gpu_hours_per_month of tenants.csv (R69).

GPU-hours so far, those held since then  ->  GPU-hours of the present month     add_held()
Problem, GPU-hours                       ->  Problem with gpu_hours_used        with_used()
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from allocator.domain.problem import Problem
from allocator.domain.times import month_start_s


@dataclass(frozen=True)
class MonthlyUse:
    """GPU-hours of the jobs of each tenant from the start of the month of at_s to at_s."""

    at_s: float = -math.inf
    gpu_hours: Mapping[str, float] = field(default_factory=dict)

    def since_s(self, now_s: float) -> float:
        """Return from when on GPU-hours are missing: at_s, or the start of the present month."""
        return max(self.at_s, month_start_s(now_s))


def is_limited(problem: Problem) -> bool:
    """Return whether a tenant has a limit of GPU-hours."""
    return bool(np.isfinite(problem.tenants.gpu_hours_per_month).any())


def add_held(use: MonthlyUse, now_s: float, hours: Mapping[str, float]) -> MonthlyUse:
    """Return the use at now_s, with the GPU-hours by tenant held since `use.since_s(now_s)`."""
    before = use.gpu_hours if use.at_s >= month_start_s(now_s) else {}
    names = {*before, *hours}
    return MonthlyUse(
        max(now_s, use.at_s), {name: before.get(name, 0.0) + hours.get(name, 0.0) for name in names}
    )


def with_used(problem: Problem, use: MonthlyUse) -> Problem:
    """Return the problem with the GPU-hours of each tenant and of the tenants below it."""
    tenants = problem.tenants
    own = np.array([use.gpu_hours.get(name, 0.0) for name in tenants.tenant])
    total = np.zeros(len(tenants))
    for line in tenants.ancestors:
        np.add.at(total, line[line >= 0], own[line >= 0])
    return replace(problem, tenants=replace(tenants, gpu_hours_used=total))


def report(problem: Problem) -> dict[str, dict[str, Any]]:
    """Return the limit, the use and the forecast of every tenant with a limit, as JSON values.

    runs_out_s is when the limit is reached at the mean rate of the month so far, None if that is
    after the month.
    """
    t = problem.tenants
    start_s, end_s = month_start_s(problem.now_s), month_start_s(problem.now_s, 1)
    out = {}
    for name, most, used in zip(
        t.tenant, t.gpu_hours_per_month.tolist(), t.gpu_hours_used.tolist(), strict=True
    ):
        if math.isfinite(most):
            gone_s = start_s + (problem.now_s - start_s) * most / used if used > 0 else math.inf
            out[name] = {
                "gpu_hours_per_month": most,
                "gpu_hours_used": used,
                "runs_out_s": gone_s if gone_s < end_s else None,
            }
    return out


def to_json(use: MonthlyUse) -> dict[str, Any]:
    """Return the use as JSON values."""
    return {"at_s": use.at_s, "gpu_hours": dict(use.gpu_hours)}


def from_json(value: Mapping[str, Any] | None) -> MonthlyUse:
    """Return the use of `to_json`."""
    return MonthlyUse(**value) if value else MonthlyUse()
