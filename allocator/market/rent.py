"""A rental plan for classes of jobs, with its price, its curve, and the cost of simpler rules.

The rules are those of docs/reference/rules.md, R54.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.errors import Infeasible, Relaxation
from allocator.market.classes import RentalClasses
from formulations.rental.simple_rules import (
    curve,
    equal_spend,
    equal_widths,
    plan_by_rule,
    response_h,
)
from formulations.rental.widths import (
    BudgetCurve,
    BudgetTooSmall,
    RentalPlan,
    plan,
    restrict_to_whole_gpus,
)

SCHEMA_VERSION = 1
POINTS = 100  # least number of points of the curve


@dataclass(frozen=True)
class RentResult:
    """State the plan of a budget.

    Attributes
    ----------
    classes : RentalClasses
        The classes.
    plan : RentalPlan
        The best plan.
    unit : str
        Unit of the budget: "gpus" or "dollars_per_hour".
    whole : bool
        Whether widths are whole numbers of GPUs.
    more : RentalPlan
        The plan for one more unit of budget.
    rules : mapping of str to RentalPlan
        Plans of the same budget by other rules, by name.
    least_budget : float
        Least budget at which the classes are stable.
    curve : BudgetCurve, optional
        None unless it was asked for.
    """

    classes: RentalClasses
    plan: RentalPlan
    unit: str
    whole: bool
    more: RentalPlan
    rules: Mapping[str, RentalPlan]
    least_budget: float
    curve: BudgetCurve | None

    @property
    def saved_h(self) -> float:
        """Hours of (weighted) mean response time that one more unit of budget saves."""
        return self.plan.weighted_h - self.more.weighted_h

    @property
    def wider_share(self) -> float:
        """Share of the split class that takes its wider width, 0 where no class is split."""
        return wider_share(self.plan)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a document for JSON."""
        p = self.plan
        return {
            "schema_version": SCHEMA_VERSION,
            "budget": p.budget,
            "unit": self.unit,
            "whole": self.whole,
            "mu": p.mu,
            "wider_share": self.wider_share,
            "mean_response_h": p.response_h,
            "weighted_response_h": p.weighted_h,
            "mean_gpus": p.gpus,
            "sd_gpus": p.sd_gpus,
            "spend": p.spend,
            "mean_jobs": float(p.jobs.sum()),
            "mean_weighted_jobs": p.weighted,
            "least_budget": self.least_budget,
            "saved_h_by_one_more": self.saved_h,
            "comparison": {
                name: {
                    "mean_response_h": r.response_h,
                    "weighted_response_h": r.weighted_h,
                    "spend": r.spend,
                }
                for name, r in self.rules.items()
            },
            "classes": self.rows(),
        } | ({} if self.curve is None else {"curve": self.curve_rows()})

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per class.

        width is that of the mean job (whole GPUs: the mean of the options by shares).
        """
        p = self.plan
        c = self.classes
        width = p.by_class(p.share * p.width)
        time = p.by_class(p.share * p.time)
        jobs = p.by_class(p.jobs)
        gpus = p.by_class(p.jobs * p.width)
        spend = p.by_class(p.jobs * p.width * p.classes.paid[p.row])
        return [
            {
                "class_id": name,
                "width": float(width[i]),
                "mean_response_h": float(time[i] * c.mean_work_gpu_hours[i]),
                "mean_jobs": float(jobs[i]),
                "mean_gpus": float(gpus[i]),
                "spend": float(spend[i]),
                "options": [self._option(int(o)) for o in np.flatnonzero(p.of == i)],
            }
            for i, name in enumerate(c.class_id)
        ]

    def crowded(self) -> list[tuple[str, float, float]]:
        """Return (name, GPUs, mean GPUs in use) of free pools with more GPUs in use than exist."""
        p = self.plan
        rented = self.classes.rented
        if rented is None or self.unit == "gpus":
            return []
        pool = np.array([self.classes.pool(int(row)) for row in p.row])
        used = np.bincount(pool, p.jobs * p.width, minlength=len(rented.pool))
        return [
            (rented.pool[i], float(rented.gpus[i]), float(used[i]))
            for i in np.flatnonzero((rented.price <= 0) & (used > rented.gpus)).tolist()
        ]

    def _option(self, o: int) -> dict[str, Any]:
        row = int(self.plan.row[o])
        pool = self.classes.pool(row)
        rented = self.classes.rented
        name = None if rented is None or pool < 0 else rented.pool[pool]
        gpu_type = self.classes.gpu_type[row] or (
            "" if rented is None or pool < 0 else rented.gpu_type[pool]
        )
        return {
            "pool": name,
            "gpu_type": gpu_type or None,
            "width": float(self.plan.width[o]),
            "share": float(self.plan.share[o]),
        }

    def curve_rows(self) -> list[dict[str, float]]:
        """Return one row per point of the curve.

        The rules are compared where a budget is above the least.
        """
        if self.curve is None:
            return []
        c = self.curve
        model = self.plan.classes
        budget = np.maximum(c.spend, max(self.least_budget, 1e-6))  # free GPUs: none is needed
        columns = {
            "budget": c.spend,
            "mean_response_h": c.response_h,
            "mu": c.mu,
            "mean_gpus": c.gpus,
            "sd_gpus": c.sd_gpus,
            "mean_weighted_jobs": c.weighted,
            "equal_widths_h": response_h(model, equal_widths(model, budget)),
            "equal_spend_h": response_h(model, equal_spend(model, budget)),
        }
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*(v.tolist() for v in columns.values()), strict=True)
        ]


def wider_share(p: RentalPlan) -> float:
    """Return the share of the split class that takes its wider width, 0 without a split class."""
    split = np.flatnonzero(p.share < 1.0 - 1e-12)
    return float(p.share[split[p.width[split].argmax()]]) if len(split) else 0.0


def rent(
    classes: RentalClasses,
    budget: float,
    *,
    whole: bool = False,
    dollars: bool = False,
    with_curve: bool = False,
) -> RentResult:
    """Return the best plan for a long-run mean of `budget` GPUs, or dollars per hour.

    Raises Infeasible, with the smallest sufficient budget, if the classes cannot be stable.
    """
    model = classes.model(dollars)
    unit = "dollars_per_hour" if dollars else "gpus"
    chosen = restrict_to_whole_gpus(model) if whole else model
    try:
        best = plan(chosen, budget)
    except BudgetTooSmall as why:
        raise _infeasible(classes, budget, why, dollars) from None
    budgets = np.array([budget])
    least = model.cheapest
    shape = curve(chosen, budget, POINTS) if with_curve else None
    rules = {"fractional_widths": plan(model, budget)} if whole else {}
    rules |= {
        "equal_widths": plan_by_rule(model, budget, equal_widths(model, budgets)[0]),
        "equal_spend": plan_by_rule(model, budget, equal_spend(model, budgets)[0]),
    }
    return RentResult(
        classes,
        best,
        unit,
        whole,
        plan(chosen, budget + 1.0),
        rules,
        float(
            (
                least.load * least.paid * least.speed.least / least.speed.speed(least.speed.least)
            ).sum()
        ),
        shape,
    )


def _infeasible(
    classes: RentalClasses, budget: float, why: BudgetTooSmall, dollars: bool
) -> Infeasible:
    unit = "dollars per hour" if dollars else "GPUs"
    need = _just_above(why.least)
    many = len(classes.class_id)
    return Infeasible(
        [
            f"a budget of {budget:g} {unit} for {many} class{'es' if many > 1 else ''} of jobs",
            (
                f"their work alone keeps {why.least:g} {unit} busy at the narrowest widths: with no"
                f" more than that, jobs wait ever longer; {need:g} {unit} give a mean response time"
                f" of {why.response_h:.4g} h"
            ),
        ],
        [Relaxation("budget", "", budget, need)],
    )


def _just_above(value: float) -> float:
    """Return a number of six digits, a little above a positive one, that can be given as shown."""
    step = 10.0 ** (math.floor(math.log10(value)) - 5)
    return float(f"{(math.floor(value / step * (1 + 1e-9)) + 1) * step:g}")
