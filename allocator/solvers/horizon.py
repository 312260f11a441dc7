"""Look several intervals ahead by column generation over plans of jobs.

    simple plans -> [prices of the known plans -> best plan of every job at them, and the bound] ...
    -> rounding -> solver

A plan of a job has one option in each interval. Plans are priced by dynamic programming, and prices
come from the smooth dual of the choice among known plans. The bound is that of
formulations/horizon/pricing. It holds for the whole problem, whatever the solver claims.

Known plans are a model of choices. So the same parts serve as for a single round:
formulations/bounds/lagrangian (prices by Newton steps), formulations/primal/rounding (a plan from
prices), and any Solver for the rest.

References: Dantzig and Wolfe 1960; Lübbecke and Desrosiers 2005, "Selected topics in column
generation". Measurements: docs/results.md.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import numpy as np

from allocator.solvers.base import SolveLimits, Solver, WarmStart
from formulations.bounds.lagrangian import Dual, evaluate, minimise_dual
from formulations.horizon.intervals import Horizon, feasible, follow, has_idle_interval, plan_model
from formulations.horizon.pricing import Pricing
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints
from formulations.primal.rounding import round_dual

# grids of pricing, as (units, decisions): while prices are far off, and for the certificate
ROUGH, FINE = (48, 50), (192, 400)
CLOSE = 0.1  # relative distance of bound and known plans at which the fine grid is used
TEMPERATURE = 1e-3  # coldest temperature of the smooth dual of known plans
# a plan is kept if it loses at most this share of the mean value of a job at the prices
KEPT = 0.2
FEW = 3000  # plans are forgotten only if at least so many are known
# if there are at most so many plans in all, all of them are used, and the result is exact
ALL = 3000
# calls of the solver; prices tried between two calls, and the deviation of their logarithms
TURNS, NEARBY, SPREAD = 6, 4, 0.1
LEAST_S = 1.0  # least seconds of one call of the solver
ROUNDS = 40  # largest number of passes of pricing
PART = 0.15  # share of the asked gap that the missing plans may cost
# share of the best prices in the next ones while they are far off (Wentges 1997)
STEADY = 0.7
# a step begins only if the time left is this many times the longest step and last rounding
RESERVE = 1.5


@dataclass(frozen=True)
class HorizonStart:
    """State what an earlier look ahead found; either part may be missing.

    Attributes
    ----------
    plan : (J, H)
        Plans, as present option numbers.
    prices : (H, R)
        Prices of the rows.
    """

    plan: Ints | None = None
    prices: Floats | None = None


@dataclass(frozen=True)
class HorizonResult:
    """State the result of a look ahead.

    Attributes
    ----------
    plan : (J, H) or None
        Option in every interval, -1 = none. None: no plan was found that keeps all rows.
    gain : float
        Value of the plan beyond that of holding nothing.
    bound : float
        No plan gains more.
    prices : (H, R)
        Value of one more unit of every row.
    seconds : float
        Wall seconds.
    """

    plan: Ints | None
    gain: float
    bound: float
    prices: Floats
    seconds: float

    @property
    def gap(self) -> float:
        """Relative gap (bound - gain) / max(|gain|, 1e-9), inf without a plan."""
        return (
            (self.bound - self.gain) / max(abs(self.gain), 1e-9)
            if self.plan is not None
            else math.inf
        )


def look_ahead(
    x: Horizon,
    limits: SolveLimits,
    start: HorizonStart | None = None,
    solver: Solver | None = None,
) -> HorizonResult:
    """Return the best plans found within limits.time_s, or as soon as limits.gap is proven.

    Parameters
    ----------
    start : HorizonStart, optional
        If its plan keeps all rows, the answer gains at least as much.
    solver : Solver, optional
        Solves what rounding leaves open; None: rounding only.
    """
    search = _Search(x, limits, solver)
    search.begin(start or HorizonStart())
    search.price()
    search.find_plan()
    return search.answer()


def all_plans(x: Horizon) -> tuple[Ints, Ints]:
    """Return every plan of every job: job (N,) and plan (N, H)."""
    jobs, plans = list[int](), list[tuple[int, ...]]()
    for j in range(x.J):
        plans_of_job = [*itertools.product((-1, *range(x.start[j], x.start[j + 1])), repeat=x.H)]
        jobs += [j] * len(plans_of_job)
        plans += plans_of_job
    return np.array(jobs, np.int64), np.array(plans, np.int64).reshape(-1, x.H)


class _Columns:
    """The plans known so far, and the model of choosing among them.

    job (N,), gain (N,) and plan (N, H) are ascending by job.
    """

    def __init__(self, x: Horizon) -> None:
        self.x = x
        self.job, self.gain = np.zeros(0, dtype=np.int64), np.zeros(0)
        self.plan = np.zeros((0, x.H), dtype=np.int64)
        self._seen: set[bytes] = set()
        self._view: Choices | None = None

    def add(self, job: Ints, plan: Ints) -> int:
        """Add the plans that are new and have value; return how many."""
        followed = follow(self.x, job, plan)
        plan = followed.plan
        # where a row has a lower bound, plans of no value may be needed
        has_value = (followed.gain > 0) | self.x.mandatory[job] | np.isfinite(self.x.low).any()
        wanted = (
            has_value
            & (plan >= 0).any(axis=1)
            & ~(self.x.mandatory[job] & has_idle_interval(self.x, followed))
        )
        new = []
        for i, key in enumerate(self._keys(job, plan)):
            if wanted[i] and key not in self._seen:
                self._seen.add(key)
                new.append(i)
        if new:
            order = np.argsort(np.concatenate([self.job, job[new]]), kind="stable")
            self.job = np.concatenate([self.job, job[new]])[order]
            self.gain = np.concatenate([self.gain, followed.gain[new]])[order]
            self.plan = np.concatenate([self.plan, plan[new]])[order]
            self._view = None
        return len(new)

    def view(self) -> Choices:
        """Return the choice among known plans."""
        if self._view is None:
            self._view = plan_model(self.x, self.job, self.gain, self.plan).view
        return self._view

    def keep(self, dual: Dual) -> None:
        """Forget plans that lose much at the prices; pricing finds them again where they matter."""
        if len(self.job) < FEW:
            return
        view = self.view()
        reduced = view.value - view.matrix @ dual.prices[view.rows]
        loss = dual.reduced[self.job] - reduced
        stays = loss <= KEPT * max(float(dual.reduced.mean()), 1e-12)
        self._seen -= set(self._keys(self.job[~stays], self.plan[~stays]))
        self.job = self.job[stays]
        self.gain = self.gain[stays]
        self.plan = self.plan[stays]
        self._view = None

    def _keys(self, job: Ints, plan: Ints) -> list[bytes]:
        return [row.tobytes() for row in np.column_stack([job, plan])]

    def find(self, plan: Ints) -> Ints:
        """Return the columns (J,) of plans (J, H), -1 where a plan is unknown or holds nothing."""
        column = np.full(self.x.J, -1)
        same = np.flatnonzero((self.plan == plan[self.job]).all(axis=1))
        column[self.job[same]] = same
        return column


class _Search:
    """The state of one search: best plan, best bound, and the prices that gave it."""

    def __init__(self, x: Horizon, limits: SolveLimits, solver: Solver | None) -> None:
        self.x, self.limits, self.solver = x, limits, solver
        self.begun = time.monotonic()
        self.until = self.begun + limits.time_s
        self.columns = _Columns(x)
        self.plan: Ints | None = None
        self.gain, self.bound = -math.inf, math.inf
        self.prices, self.known = np.zeros(x.H * x.R), math.inf
        self.grids = {fine: Pricing(x, *(ROUGH, FINE)[fine]) for fine in (False, True)}
        self.all_known = x.H == 1  # every plan is an option
        # seconds of the longest pass of pricing, and of the last rounding
        self._longest = self._rounding = 0.0

    def begin(self, start: HorizonStart) -> None:
        """Find first prices and a first plan, from simple plans and an earlier look ahead."""
        x, every = self.x, np.arange(self.x.J)
        stay = np.repeat(x.current[:, None], x.H, axis=1)
        plans = [stay] if start.plan is None else [start.plan, stay]
        for plan in plans:
            self.columns.add(every, plan)
            self._offer_plan(follow(x, every, plan).plan)
        if self.plan is not None and not self._has_time():
            return
        steady = np.repeat(np.arange(x.n)[:, None], x.H, axis=1)
        self.columns.add(x.job, steady)
        if ((np.diff(x.start) + 1.0) ** x.H).sum() <= ALL:
            self.columns.add(*all_plans(x))
            self.all_known = True
        else:
            self._move_when_rows_change()
        given = None
        if start.prices is not None and start.prices.shape == (x.H, x.R):
            given = self.prices = np.where(np.isfinite(start.prices), start.prices, 0.0).reshape(-1)
        dual = self._master()
        self.prices = dual.prices[x.J :]
        self._round_dual(dual)
        if self.all_known or not self._has_time():
            return
        if start.plan is None or start.prices is None:
            self.columns.keep(dual)
            steady = self.columns.plan[(self.columns.plan >= 0).any(axis=1)].max(axis=1)
            for late in range(x.H // 4, x.H, max(1, x.H // 4)):
                later = np.repeat(steady[:, None], x.H, axis=1)
                later[:, :late] = -1
                self.columns.add(x.job[steady], later)
            dual = self._master()
            self.prices = dual.prices[x.J :]
        self.columns.keep(dual)
        if given is not None:
            self.prices = given  # these are closer than the prices of simple plans

    def _move_when_rows_change(self) -> None:
        """Add plans in which a job does not change until a limit changes, and then moves.

        Prices alone may ask for such a plan for a fraction of a job only.
        """
        x, o = self.x, np.flatnonzero(self.x.current[self.x.job] >= 0)
        changes = 1 + np.flatnonzero((x.high[1:] != x.high[:-1]).any(axis=1))
        for h in changes.tolist():
            plan = np.repeat(o[:, None], x.H, axis=1)
            plan[:, :h] = x.current[x.job[o], None]
            self.columns.add(x.job[o], plan)

    def price(self) -> None:
        """Generate columns until the missing plans cost less than a part of the asked gap."""
        x, every, fine = self.x, np.arange(self.x.J), False
        dual: Dual | None = None
        prices, enough = self.prices, PART * max(self.limits.gap, 1e-6)
        for _ in range(ROUNDS):
            if not self._has_time():
                break
            begun = time.monotonic()
            fine = fine or self.bound - self.known <= CLOSE * abs(self.bound)
            slack = (
                0.1 * enough * abs(self.known) / max(1, x.J) if math.isfinite(self.known) else 0.0
            )
            priced = self.grids[fine].price(prices, slack, self.until)
            if priced is None:
                break
            if priced.bound < self.bound:
                self.bound, self.prices = priced.bound, prices
                if dual is not None and not self.all_known:
                    self.columns.keep(dual)
            new = self.columns.add(every, priced.plan)
            near = self.bound - self.known <= enough * abs(self.bound)
            if fine and (near or not new):
                break
            fine = fine or not new
            dual = self._master()
            prices, self.known = dual.prices[x.J :], dual.bound
            if not fine:
                prices = STEADY * self.prices + (1 - STEADY) * prices
            self._longest = max(self._longest, time.monotonic() - begun)

    def find_plan(self) -> None:
        """Round at the best prices, then use the solver on more and more plans.

        It ends when the gap is reached, or more plans do not help.
        """
        if time.monotonic() < self.until:
            self._round_dual(evaluate(self.columns.view(), self._prices_of_all_rows(self.prices)))
        rng = np.random.default_rng(self.limits.seed)
        for _ in range(TURNS):
            if self._is_done() or self.solver is None or not self._has_time():
                return
            before = self.gain
            self._solve(self.solver)
            if self._is_done() or self.all_known or (not self._widen(rng) and self.gain <= before):
                return

    def _solve(self, solver: Solver) -> None:
        """Choose among the known plans with a solver, for at most the time that the search took.

        If all plans are known, the solver has all the time that is left.
        """
        view, now = self.columns.view(), time.monotonic()
        dual = evaluate(view, self._prices_of_all_rows(self.prices))
        values = view.to_x(self.columns.find(self.plan)) if self.plan is not None else None
        missing = max(0.0, self.bound - dual.bound) / max(abs(self.bound), 1e-9)
        gap = (
            self.limits.gap
            if self.all_known
            else max(0.2 * self.limits.gap, 0.9 * (self.limits.gap - missing))
        )
        left = (
            self.until - now
            if self.all_known
            else min(self.until - now, max(LEAST_S, now - self.begun))
        )
        answer = solver.solve(
            view.model,
            SolveLimits(left, gap, self.limits.threads, self.limits.seed),
            WarmStart(values, dual.prices),
        )
        if answer.values is not None:
            self._take_choice(view, view.from_x(answer.values))
        if self.all_known and math.isfinite(answer.bound):
            self.bound = min(self.bound, answer.bound)

    def _widen(self, rng: np.random.Generator) -> int:
        """Add the best plans at prices around the best prices; return how many are new."""
        new = 0
        for _ in range(NEARBY):
            if not self._has_time():
                break
            prices = self.prices * np.exp(SPREAD * rng.standard_normal(len(self.prices)))
            priced = self.grids[True].price(prices, until=self.until)
            if priced is not None:
                new += self.columns.add(np.arange(self.x.J), priced.plan)
        return new

    def answer(self) -> HorizonResult:
        """Return what was found."""
        x = self.x
        return HorizonResult(
            self.plan,
            self.gain,
            max(self.bound, self.gain),
            self.prices.reshape(x.H, x.R),
            time.monotonic() - self.begun,
        )

    def _master(self) -> Dual:
        deadline = None if math.isinf(self.until) else self.until
        warm = self._prices_of_all_rows(self.prices) if self.prices.any() else None
        return minimise_dual(self.columns.view(), warm, deadline, coldest=TEMPERATURE)

    def _prices_of_all_rows(self, p: Floats) -> Floats:
        return np.concatenate([np.zeros(self.x.J), p])

    def _round_dual(self, dual: Dual) -> None:
        begun, view = time.monotonic(), self.columns.view()
        choice = round_dual(view, dual, self.until if self.plan is not None else math.inf)
        if choice is not None:
            self._take_choice(view, choice)
        self._rounding = time.monotonic() - begun

    def _take_choice(self, view: Choices, choice: Ints) -> None:
        if view.feasible(choice):
            nothing = np.full((1, self.x.H), -1)
            self._offer_plan(np.concatenate([self.columns.plan, nothing])[choice])

    def _offer_plan(self, plan: Ints) -> None:
        gain = float(follow(self.x, np.arange(self.x.J), plan).gain.sum())
        if gain > self.gain and feasible(self.x, plan):
            self.plan, self.gain = plan, gain

    def _has_time(self) -> bool:
        return time.monotonic() + RESERVE * (self._longest + self._rounding) < self.until

    def _is_done(self) -> bool:
        return self.plan is not None and self.bound - self.gain <= self.limits.gap * max(
            abs(self.gain), 1e-9
        )
