"""Solve a model of choices by decomposition: prices for the coupling rows, and a small exact rest.

    dual at one temperature -> round and fill -> knapsacks -> LP by column generation -> dive
    -> small MIPs

The few coupling rows get prices, and at these prices each group takes its best option on its own.
The method needs a model made of choices (formulations/model/choices.py); other models go to HiGHS
unchanged. Each step runs only while the gap is not reached.

The bound is the Lagrangian one, computed from the model alone (float64, outward rounding). If a MIP
over all columns that a better plan may use closes the gap, its bound counts; `detail` says which.
Rounds with colocation have their own method (decomposition/pairs.py). A warm start needs only the
prices of the last round.

Measurements: docs/results.md; Dantzig and Wolfe 1960, Geoffrion 1974.
"""

from __future__ import annotations

import math
import time

import numpy as np

from allocator.solvers import highs
from allocator.solvers.base import ReportProgress, SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.decomposition import pairs
from allocator.solvers.decomposition.branch import (
    BranchResult,
    Neighbourhood,
    find_surviving_columns,
    neighbourhood,
    solve_neighbourhood,
)
from allocator.solvers.decomposition.pricing import Relaxation, solve_relaxation
from allocator.solvers.decomposition.primal import dive_for_plan
from formulations.bounds.knapsacks import tighten_bound
from formulations.bounds.lagrangian import Dual, group_max, minimise_dual
from formulations.colocation.prices import has_pair_rows
from formulations.model.choices import Choices, NotChoices, choices
from formulations.model.linear import Ints, LinearModel
from formulations.primal.restriction import NearTies, focus_on_near_ties
from formulations.primal.rounding import fill, repair, round_dual

FULL_GROUPS = 3000  # up to so many groups HiGHS searches the rest without a limit of nodes
CLOSE = 0.01  # relative gap at which the prices are good enough to start the LP
COLDEST = 1e-3  # temperature of the prices before the LP
COLDEST_OF_MANY, MANY = 2.5e-4, 20_000  # the same from MANY groups on, where the LP costs more
# times the asked gap: a repaired plan with a larger gap is not filled
FAR = 4.0
KNAP = 4.0  # times the asked gap: knapsacks do not close a larger gap
# (groups, looks): up to so many groups, so many looks without a better plan end the dive
VAIN = ((1_000, 2), (FULL_GROUPS, 3))
PASSES = 6  # passes of one filling
ROUNDING = 1e-8  # relative gaps below this are rounding errors of the certificate
LAGRANGIAN = "Lagrangian"
KNAPSACKS = "Lagrangian with the knapsacks of rows that concern few groups"
SEARCHED = "HiGHS on the columns left by the reduced-cost test"
# (near ties, nodes) of the MIPs of models with more than FULL_GROUPS groups
SMALL = ((300, 200), (1000, 400), (2500, 400), (6000, 1000))


def version() -> str:
    """Return the version of the HiGHS that solves the small models; this loads the library."""
    return f"highs {highs.version()}"


def solve(
    model: LinearModel, limits: SolveLimits, hint: WarmStart, report: ReportProgress
) -> SolverResult:
    """Solve by decomposition, see base.Backend.

    The search is deterministic: `seed` and `threads` have no effect.
    """
    until = time.monotonic() + limits.time_s
    try:
        view = choices(model)
    except NotChoices as lack:
        answer = highs.solve(model, limits, hint, report)
        why = f"no structure of choices ({lack.reason}): solved by HiGHS as one model"
        return _with_detail(answer, f"{why}; {answer.detail}" if answer.detail else why)
    if has_pair_rows(model):
        return pairs.solve(view, limits, hint, report)
    search = Search(view, limits.gap, until, report, limits.log)
    search.start(hint)
    search.close_gap()
    search.finish()
    if search.plan is None:
        answer = highs.solve(model, _remaining_limits(limits, until), hint, report)
        return _with_detail(answer, "no plan by rounding: solved by HiGHS as one model")
    return search.answer()


class Search:
    """The state of one search: best plan and value, best dual, best bound and its proof."""

    def __init__(
        self, view: Choices, gap: float, until: float, report: ReportProgress, log: bool = False
    ) -> None:
        self.view = view
        self.gap = max(0.0, gap)
        self.until = until
        self._report = report
        self._log = log
        self._begin = time.monotonic()
        self.plan: Ints | None = None
        self.value = -math.inf
        self.bound = math.inf
        self.proof = LAGRANGIAN
        self.dual: Dual | None = None
        self.steps: list[str] = []
        self.closed = False
        self._full: Ints | None = None  # the best plan, if filling has made it
        self._ties: tuple[Dual, NearTies | None] | None = None
        top = group_max(view, np.abs(view.value), 0.0)
        mean = float(top[view.filled].mean()) if len(view.filled) else 1.0
        self.value_scale = 2.0 ** math.frexp(mean)[1] if mean > 0 else 1.0

    def done(self) -> bool:
        """Return whether the gap is reached or the time is over."""
        return self.reached() or time.monotonic() >= self.until

    def reached(self) -> bool:
        """Return whether the gap is proven, by the numbers or by a search that ran to its end."""
        return self.closed or self.gap_now() <= max(self.gap, ROUNDING)

    def gap_now(self) -> float:
        """Return (bound - value) / max(|value|, 1e-9), inf without a plan."""
        return (
            (self.bound - self.value) / max(abs(self.value), 1e-9)
            if self.plan is not None
            else math.inf
        )

    def _gap_of(self, plan: Ints) -> float:
        value = self.view.value_of(plan)
        return (self.bound - value) / max(abs(value), 1e-9)

    def offer(self, plan: Ints | None, step: str) -> None:
        """Take a plan if it keeps the rows and is better."""
        if plan is None:
            return
        value = self.view.value_of(plan)
        if value > self.value and self.view.feasible(plan):
            self.plan = plan
            self.value = value
            if not self.steps or self.steps[-1] != step:
                self.steps.append(step)
            self._report(self.view.to_x(plan), self.bound)
            self._log_step(step)

    def prove(self, bound: float, proof: str) -> None:
        """Take a bound if it is tighter."""
        if bound < self.bound:
            self.bound = max(bound, self.value)
            self.proof = proof
            if self.plan is not None:
                self._report(None, self.bound)
            self._log_step(f"bound: {proof}")

    def _log_step(self, step: str) -> None:
        """Print a line of the log, which the worker captures (solvers/isolation/worker.py)."""
        if self._log:
            print(
                f"{time.monotonic() - self._begin:8.2f} s  value {self.value:.7g}  bound"
                f" {self.bound:.7g}  gap {self.gap_now():.3g}  {step}"
            )

    def price(self, dual: Dual) -> None:
        """Take a dual if its bound is the best so far."""
        if self.dual is None or dual.bound < self.dual.bound:
            self.dual = dual
            self.prove(dual.bound, LAGRANGIAN)

    def start(self, hint: WarmStart) -> None:
        """Find prices and a first plan."""
        view = self.view
        prices = hint.prices
        if prices is not None and (len(prices) != view.model.m or not np.isfinite(prices).all()):
            prices = None
        if (
            hint.values is not None
            and len(hint.values) == view.n
            and np.isfinite(hint.values).all()
        ):
            self.offer(view.from_x(hint.values), "hint")
        coldest = COLDEST if view.J < MANY else COLDEST_OF_MANY
        deadline = self._share(0.5)
        self.price(minimise_dual(view, prices, deadline=deadline, coldest=coldest))
        cut = deadline is not None and time.monotonic() >= deadline
        assert self.dual is not None
        # the larger the model, the cheaper is filling compared with the LP
        self._polish(self.dual.choice, "rounding", FAR * max(1.0, view.J / 10_000))
        # these prices are too far off to start the LP
        if self.gap_now() > max(self.gap, CLOSE) and not cut:
            self.price(minimise_dual(view, self.dual.prices, deadline=self._share(0.5)))
            self._polish(self.dual.choice, "rounding")
        if self.plan is None:
            self.offer(round_dual(view, self.dual), "rounding")
        self._knapsacks(1)

    def _polish(self, choice: Ints, step: str, far: float = math.inf) -> None:
        """Repair a choice, and fill it if its gap is at most `far` times the asked one."""
        assert self.dual is not None
        view = self.view
        prices = self.dual.prices
        if self._ties is None or self._ties[0] is not self.dual:
            self._ties = self.dual, focus_on_near_ties(view, prices)
        # a first plan is needed in any case, so it gets a pass of filling even when time is over
        first = self.plan is None
        plan = repair(view, choice, prices, math.inf if first else self.until, self._ties[1])
        self.offer(plan, step)
        late = time.monotonic() >= self.until
        if (
            plan is not None
            and not self.reached()
            and (first if late else self._gap_of(plan) <= far * max(self.gap, ROUNDING))
        ):
            self._fill(plan, step)

    def _fill(self, plan: Ints, step: str) -> None:
        assert self.dual is not None
        ties = self._ties[1] if self._ties is not None else None
        full = fill(self.view, plan, self.dual.prices, PASSES, self.until, ties)
        self.offer(full, step)
        if self.plan is full:
            self._full = full

    def finish(self) -> None:
        """Fill the best plan if the gap is not reached and the plan is not filled yet."""
        if self.plan is not None and self.plan is not self._full and not self.reached():
            self._fill(self.plan, "filling")

    def _knapsacks(self, turns: int = 3) -> None:
        """Tighten the bound by the rows of few groups, and put their best choices into the plan."""
        for _ in range(turns):
            before = self.gap_now()
            if (
                self.done()
                or self.plan is None
                or self.dual is None
                or before > KNAP * max(self.gap, ROUNDING)
            ):
                return
            tighter = tighten_bound(
                self.view, self.dual, self.plan, self.value + self.gap * abs(self.value), self.until
            )
            self.prove(tighter.bound, KNAPSACKS)
            if self.done():
                return
            self._polish(tighter.choice, "knapsacks")
            if self.gap_now() > 0.75 * before:  # the LP will gain more than another turn
                return

    def close_gap(self) -> None:
        """Run the LP, the dive and the MIPs, as far as needed."""
        assert self.dual is not None
        if self.done():
            return
        want = int(min(1_000, max(500, self.view.J / 3)) * (1 + self.view.R / 100))
        relaxation = solve_relaxation(
            self.view, self.dual, self.value_scale, 0.1 * max(self.gap, 1e-5), want
        )
        fractional = np.zeros(0, dtype=np.int64)
        if relaxation is not None:
            self.price(relaxation.dual)
            fractional = relaxation.fractional()
            self._dive(relaxation)
        if self.view.J > FULL_GROUPS and self.plan is not None:
            self._nearby(fractional)
        self._prove_by_search()

    def _dive(self, relaxation: Relaxation) -> None:
        assert self.dual is not None
        if self.done():
            return
        # the dive of a small model ends early, because an exact search follows
        vain = 0
        patience = next((looks for groups, looks in VAIN if groups >= self.view.J), math.inf)
        for candidate in dive_for_plan(relaxation, 0.4 * self.gap * abs(self.bound), self.until):
            before = self.value
            self._polish(candidate, "dive", FAR)
            if self.value > before:
                self._knapsacks()
            vain = 0 if self.value > before else vain + 1
            if self.done() or vain >= patience:
                return

    def _nearby(self, fractional: Ints) -> None:
        for want, nodes in SMALL:
            if self.done() or self.plan is None or self.dual is None:
                return
            field = neighbourhood(self.view, self.dual, self.plan, fractional, want)
            target = self.bound * (1 - 0.5 * self.gap) if self.bound > 0 else math.inf
            found = self._branch(field, self.plan, 0.0, target, nodes)
            self.offer(found.plan, f"MIP near {want}")

    def _prove_by_search(self) -> None:
        """Run HiGHS over all columns that a better plan may use, for the remaining time."""
        assert self.dual is not None
        if self.done() or (self.view.J > FULL_GROUPS and math.isinf(self.until)):
            return
        credit = None
        if self.plan is not None:
            tighter = tighten_bound(self.view, self.dual, self.plan, -math.inf, self.until)
            self.prove(tighter.bound, KNAPSACKS)
            credit = tighter.credit
            if self.done():
                return
        field = find_surviving_columns(self.view, self.dual, self.plan, credit)
        fallback = self.plan if self.plan is not None else self.dual.choice
        found = self._branch(
            field, self.dual.choice, self.gap * abs(self.value), math.inf, 2**31 - 1, fallback
        )
        self.offer(found.plan, "branch and cut")
        if self.plan is not None:
            self.prove(max(found.bound, self.value), SEARCHED)
            self.closed = found.status == "Optimal"

    def _branch(
        self,
        field: Neighbourhood,
        fallback: Ints,
        gap: float,
        target: float,
        nodes: int,
        start: Ints | None = None,
    ) -> BranchResult:
        def heard(plan: Ints, bound: float) -> None:
            if field.exact and self.plan is not None:
                self.prove(max(bound, self.value), SEARCHED)
            self.offer(plan, "branch and cut" if field.exact else "MIP nearby")

        return solve_neighbourhood(
            self.view,
            self.plan if start is None else start,
            fallback,
            field,
            self.value_scale,
            gap,
            target,
            nodes,
            self.until,
            heard,
        )

    def _share(self, part: float) -> float | None:
        now = time.monotonic()
        return None if math.isinf(self.until) else now + part * max(0.0, self.until - now)

    def answer(self) -> SolverResult:
        """Return what was found."""
        assert self.plan is not None and self.dual is not None
        reached = self.reached()
        detail = f"bound: {self.proof}; plan: {', '.join(self.steps)}"
        if not reached and time.monotonic() < self.until:
            detail += "; the search is exhausted short of the gap"
        return SolverResult(
            Termination.GAP if reached else Termination.TIME_LIMIT,
            self.view.to_x(self.plan),
            self.value,
            self.bound,
            self.dual.prices,
            "decomposition",
            detail=detail,
        )


def _remaining_limits(limits: SolveLimits, until: float) -> SolveLimits:
    return SolveLimits(
        max(0.0, until - time.monotonic()), limits.gap, limits.threads, limits.seed, limits.log
    )


def _with_detail(answer: SolverResult, detail: str) -> SolverResult:
    return SolverResult(
        answer.termination,
        answer.values,
        answer.objective,
        answer.bound,
        answer.prices,
        answer.solver,
        answer.version,
        answer.seconds,
        answer.log,
        detail,
    )
