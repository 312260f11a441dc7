"""The causes that keep a job from more: limits without which a new decision gives it more.

Limits are lifted one at a time, then in pairs, then all three. The first set that gives a job more
is its cause. So lifting all limits that are named gives the job more, and lifting only some of them
does not. A lifted limit is absent:

    budget        no budget_per_hour of the round
    quota         no limit of its tenant, no max_gpus, budget_per_hour or gpu_hours_per_month of
                  the tenants above it, and no GPUs that tenants do not lend
    GPUs          every pool has GPUs for all jobs
    max_changes   tried last, if the other three together do not help

No limit at all is tried first, where the plan is not the best one: a job that gets more then was
left out by the asked gap.

All jobs of a round are treated at once, so the number of new decisions depends on the limits and
not on the jobs. `PlanSearch` searches the best plans of the lifted round from the known one, for
`mip`. `DecisionSearch` decides again by any policy. `PriceSearch` is for all else: the prices of
the lifted round show which jobs would get more. If a job's gain or loss at these prices is less
than MARGIN of its value, the job may or may not get more. It is reported as outranked, without a
cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Protocol

import numpy as np

from allocator.domain.problem import (
    NO_NODES,
    NO_PLACEMENTS,
    NO_RESERVATIONS,
    Bools,
    Floats,
    Ints,
    Problem,
    Tenants,
)
from allocator.engine.decided import Decision
from allocator.errors import Infeasible
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.options.option_table import OptionTable
from allocator.options.quotas import quota_table
from allocator.policies.base import Memory
from allocator.policies.hard_rules import BUDGET, CHANGES, GPUS, QUOTA, kinds_of
from allocator.solvers.highs import LinearRelaxation
from formulations.bounds.lagrangian import (
    evaluate,
    group_max,
    minimise_dual,
    project_prices,
    sample_of_choices,
    spread_prices,
)
from formulations.colocation.prices import solve_paired_dual
from formulations.model.choices import Choices, choices
from formulations.model.relaxed_rules import without_rows
from formulations.primal.closing import Search

# reasons concern the best plan without a limit, not any plan within the gap
REASONS_GAP = 1e-7
# share of a job's value: a job that loses more where its quota has no price is taken to get no
# more without the quota, and nothing is searched
NEAR = 0.5
SMALL = 30  # rounds of at most so many jobs are searched without each quota
EFFORT = 4e6  # of a search for plans: columns times steps of the simplex method
# share of a job's value: a smaller gain or loss at the prices of a lifted round proves nothing
MARGIN = 0.01
SAMPLE_MARGIN = 0.03  # the same at prices that come from a sample
MOST_PRICED = 10  # largest number of sets of limits for which prices are found
ROUNDING = 1e-9  # a value that is more by less is no gain, relative to the value or to 1
CLOSE = 1e-3  # relative improvement of a bound that does not matter
COARSE = 9e-4  # temperature at which the search for prices ends
FEW = 150  # up to this number of jobs plans of lifted rounds are searched; with more, prices tell
# With more jobs, prices come from a sample of them; the second number replaces MOST_PRICED.
LARGE = 3000
MOST_LARGE = 6
SAMPLE, SAMPLE_COARSE = 1000, 4e-3  # jobs of the sample, and the temperature for it


# Without these limits a job competes with no other job, but for max_changes.
APART = (BUDGET, QUOTA, GPUS)


class SearchFailed(Exception):
    """A lifted round was not decided: no time is left, or no plan was proven."""


@dataclass(frozen=True)
class Causes:
    """The causes of jobs.

    Attributes
    ----------
    limits : (J,)
        Cause of each job, empty where none was found.
    pool, gpus : (J,)
        What the job gets once these limits are lifted, -1 and 0 without a cause.
    is_sure : (J,)
        False where a set of limits could not be tried, or may or may not be the cause.
    """

    limits: list[tuple[str, ...]]
    pool: Ints
    gpus: Ints
    is_sure: Bools


@dataclass(frozen=True)
class GainingJobs:
    """The jobs that get more, with their pools and GPUs; `near` are jobs that possibly get more."""

    jobs: Ints
    pool: Ints
    gpus: Ints
    near: Ints


NOBODY = GainingJobs(*[np.zeros(0, np.int64)] * 4)


class CauseSearch(Protocol):
    """Finds which of some jobs get more in a new decision without some limits."""

    def find_without(self, limits: tuple[str, ...], tenant: int, asked: Ints) -> GainingJobs:
        """Return which of the jobs `asked` get more without these limits.

        `tenant` is the tenant whose quota is lifted, -1 = none. Raises SearchFailed, and Infeasible
        if it is proven that the lifted round has no plan.
        """


def find_causes(problem: Problem, asked: Bools, *searches: CauseSearch) -> Causes:
    """Return the causes of the jobs `asked` (J,); where one search fails, the next one is tried."""
    tenants = problem.tenants
    owner = problem.jobs.tenant
    J = len(problem.jobs)
    quotas = quota_table(problem)
    limits_of = np.isfinite(quotas.max_gpus) | np.isfinite(quotas.budget_per_hour)
    limits_of |= quotas.is_common
    limited = np.append(limits_of, False)[quotas.accounts].any(axis=(0, 2)) | tenants.is_limited
    exists = {
        BUDGET: np.full(J, bool(np.isfinite(problem.budget_per_hour))),
        QUOTA: limited[owner],
        GPUS: np.ones(J, bool),
        CHANGES: np.full(J, problem.max_changes >= 0),
    }
    causes: list[tuple[str, ...]] = [()] * J
    pool = np.full(J, -1)
    gpus = np.zeros(J, np.int64)
    is_open = asked.copy()
    is_sure = np.ones(J, bool)
    for limits in _limit_sets():
        able = is_open & np.all([exists[name] for name in limits], axis=0)
        whose = [-1]
        if QUOTA in limits:
            count = np.bincount(owner[able], minlength=len(tenants))
            whose = np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist()
        for q in whose:
            jobs = np.flatnonzero(able if q < 0 else able & (owner == q))
            if not len(jobs):
                continue
            answer = None
            # of more GPUs, more may be guaranteed than a budget of the tenant allows
            with suppress(Infeasible):
                for search in searches:
                    with suppress(SearchFailed):
                        answer = search.find_without(limits, q, jobs)
                        break
            if answer is None:
                is_sure[jobs] = False
                continue
            pool[answer.jobs], gpus[answer.jobs] = answer.pool, answer.gpus
            is_open[answer.jobs] = is_open[answer.near] = is_sure[answer.near] = False
            for j in answer.jobs.tolist():
                causes[j] = limits
    return Causes(causes, pool, gpus, is_sure)


def _limit_sets() -> Iterator[tuple[str, ...]]:
    """Yield sets of limits, small ones first, and those with max_changes last."""
    yield ()
    yield from ((limit,) for limit in APART)
    yield from ((BUDGET, GPUS), (BUDGET, QUOTA), (QUOTA, GPUS), APART)
    for size in (0, 1, 2, 3):
        yield from ((*limits, CHANGES) for limits in combinations(APART, size))


def lift_limits(problem: Problem, limits: tuple[str, ...], tenant: int) -> Problem:
    """Return the problem without some limits; `tenant` is the tenant whose quota is lifted."""
    if BUDGET in limits:
        problem = replace(problem, budget_per_hour=np.inf)
    if CHANGES in limits:
        problem = replace(problem, max_changes=-1)
    if QUOTA in limits:
        line = problem.tenants.ancestors[:, tenant]
        line = line[line >= 0]
        whose = dict.fromkeys(Tenants.OF_TREE, line) | dict.fromkeys(Tenants.OF_OWN_JOBS, tenant)
        raised = {name: getattr(problem.tenants, name).copy() for name in whose}
        for name, column in raised.items():
            column[whose[name]] = np.inf
        quotas = problem.quotas
        quotas = replace(
            quotas,
            max_gpus=np.where(np.isin(quotas.tenant, line), np.inf, quotas.max_gpus),
            lend_gpus=np.full(len(quotas), np.inf),
        )
        tenants = replace(problem.tenants, **raised)
        problem = replace(problem, tenants=tenants, quotas=quotas)
    if GPUS in limits:
        enough = int(np.maximum(problem.jobs.max_gpus, problem.jobs.gpus).sum())
        problem = replace(
            problem,
            pools=replace(problem.pools, gpus=problem.pools.gpus + enough),
            nodes=NO_NODES,
            placements=NO_PLACEMENTS,
            kept=(),
            reservations=NO_RESERVATIONS,
        )
    return problem


Decide = Callable[[Problem, float], Decision | None]
"""(problem, seconds) -> decision by the same policy, None if there is none within the gap.

Raises Infeasible.
"""


@dataclass(frozen=True)
class DecisionSearch:
    """Decides lifted rounds by the policy that made the plan.

    `until` is the latest end (time.monotonic), and `is_exact` says that no decision within the same
    limits is better.
    """

    decide: Decide
    problem: Problem
    decision: Decision
    until: float
    is_exact: bool

    def find_without(self, limits: tuple[str, ...], tenant: int, asked: Ints) -> GainingJobs:
        """Return which jobs get more, see `CauseSearch`."""
        if self.is_exact and not limits:
            return NOBODY
        seconds = self.until - time.monotonic()
        if seconds <= 0:
            raise SearchFailed
        decision = self.decide(lift_limits(self.problem, limits, tenant), seconds)
        if decision is None:
            raise SearchFailed
        old, new = self.decision.allocation, decision.allocation
        least = _least_gain(decision.round.option_table, self.decision)
        other = (new.pool != old.pool) | (new.gpus != old.gpus) | (new.primary != old.primary)
        more = other & (new.pool >= 0) & (decision.witness.value > least)
        jobs = asked[more[asked]]
        return GainingJobs(jobs, new.pool[jobs], new.gpus[jobs], asked[:0])


class PriceSearch:
    """Finds the prices of lifted rounds.

    With more GPUs, sizes and values may change, so the round is compiled again. In rounds of more
    than LARGE jobs it is the same round without the rows of its pools. Prices then come from a
    sample of the jobs, except for the round without a budget.
    """

    prunes = True  # options that cost more than the budget are left out

    def __init__(self, decision: Decision, seconds: float) -> None:
        round_ = decision.round
        self._decision = decision
        self._until = time.monotonic() + seconds
        self._large = len(round_.problem.jobs) > LARGE and not round_.model.has_pairs
        self._left = MOST_LARGE if self._large else MOST_PRICED
        self._prices: dict[tuple[str, ...], Floats] = {}

    def find_without(self, limits: tuple[str, ...], tenant: int, asked: Ints) -> GainingJobs:
        """Return which jobs get more, see `CauseSearch`."""
        if not limits:
            return NOBODY
        share = SAMPLE_MARGIN if self._large and limits != (BUDGET,) else MARGIN
        at, prices = self.context(limits), self._lifted_prices(limits, tenant)
        if QUOTA in limits and limits[:3] != APART:
            if (prices == self._lifted_prices(limits, -1)).all():
                return NOBODY  # the quota has no price
            if not len(at.find_gaining(prices, share, asked).jobs):
                return NOBODY  # or a very small one
            prices = self._solve_prices(at, limits, tenant, prices)
        return at.find_gaining(prices, share, asked)

    def _lifted_prices(self, limits: tuple[str, ...], tenant: int) -> Floats:
        """Return prices of the lifted round, where the quota of a tenant leaves them as they are.

        Raises SearchFailed.
        """
        at, others = self.context(limits), tuple(x for x in limits if x != QUOTA)
        if others and others not in self._prices:
            alike = [x for x in self._prices if {*x} <= {*limits} and self.context(x) is at]
            start = self._prices[max(alike, key=len)] if alike else at.prices
            self._prices[others] = self._solve_prices(at, others, -1, start)
        prices = self._prices.get(others, at.prices)
        return np.where(lifted_rows(at.round, limits, tenant), 0.0, prices)

    def context(self, limits: tuple[str, ...]) -> _PlanContext:
        """Return the round in which these limits are lifted."""
        return self._with_more_gpus if GPUS in limits and not self._large else self._unchanged

    @cached_property
    def _unchanged(self) -> _PlanContext:
        round_ = self._decision.round
        return _PlanContext.of(round_ if self.prunes else round_.unpruned, self._decision)

    @cached_property
    def _with_more_gpus(self) -> _PlanContext:
        problem = lift_limits(self._decision.round.problem, (GPUS,), -1)
        return _PlanContext.of(compile_round(problem, self.prunes), self._decision)

    def _solve_prices(
        self,
        at: _PlanContext,
        limits: tuple[str, ...],
        tenant: int,
        start: Floats,
    ) -> Floats:
        """Return the prices of a lifted round, found from those of a similar one.

        Raises SearchFailed.
        """
        self._left -= 1
        if self._left < 0 or time.monotonic() >= self._until:
            raise SearchFailed
        gone = lifted_rows(at.round, limits, tenant)
        model = at.round.model
        if model.has_pairs:
            c = choices(without_rows(model, np.flatnonzero(gone)))
            return solve_paired_dual(c, deadline=self._until, close=CLOSE).prices
        c = _without_row_bounds(at.choices, gone, at.round.instance.mandatory)
        if not self._large:
            return minimise_dual(c, start, self._until, COARSE, CLOSE).prices
        few, there = self._sample_jobs
        move = (
            minimise_dual(
                _without_row_bounds(few, gone, few.mandatory),
                deadline=self._until,
                coldest=SAMPLE_COARSE,
            ).prices
            - there
        )
        # The change of prices in the sample is added to the prices of all jobs, so that most of the
        # errors of the sample cancel.
        prices = spread_prices(c, project_prices(c, np.where(gone, 0.0, at.prices + move)))
        if limits == (BUDGET,):
            return minimise_dual(c, prices, self._until, COARSE).prices
        return prices

    @cached_property
    def _sample_jobs(self) -> tuple[Choices, Floats]:
        """Return a sample of the jobs and the prices (m,) of the sample alone."""
        few = sample_of_choices(self._unchanged.choices, SAMPLE)
        return few, minimise_dual(few, deadline=self._until, coldest=SAMPLE_COARSE).prices


class PlanSearch(PriceSearch):
    """Finds the best plans of lifted rounds by branch and bound, for the policy `mip`.

    A search begins from the best plan that is known with more limits, at the prices of the linear
    relaxation. In rounds of more than SMALL jobs a quota is not lifted if its jobs all lose more
    than NEAR where its own price becomes 0. Where it has no price, a better plan would be one of
    the round within the quota, so only plans that break the quota are searched. For rounds whose
    jobs do not share GPUs, in pools without nodes.
    """

    prunes = False

    def __init__(self, decision: Decision, seconds: float, is_exact: bool) -> None:
        super().__init__(decision, seconds)
        self._is_exact = is_exact  # no plan within the same limits is better
        self._plans: dict[tuple[tuple[str, ...], int], Ints] = {}
        # what jobs gain where their quota has no price, (J,)
        self._gains: dict[tuple[str, ...], Floats] = {}

    def find_without(self, limits: tuple[str, ...], tenant: int, asked: Ints) -> GainingJobs:
        """Return which jobs get more in the best plan, see `CauseSearch`."""
        at, round_ = self.context(limits), self._decision.round
        if QUOTA in limits:
            owed = quota_table(round_.problem).guaranteed_gpus[: len(round_.repairs.usable)]
            if (round_.repairs.usable < owed).any():
                raise SearchFailed  # without the quota, more of what is guaranteed may be usable
            if limits not in self._gains:
                gone = at.round.model.rows_of(*kinds_of(*limits))
                prices = np.where(gone, 0.0, self._lifted_prices(limits, -1))
                self._gains[limits] = at.gain(prices)[1]
            if len(at.plan) > SMALL and (self._gains[limits][asked] < -NEAR).all():
                return NOBODY
        gone = lifted_rows(at.round, limits, tenant)
        c = _without_row_bounds(at.choices, gone, at.round.instance.mandatory)
        # what is known with one limit more, of the same round
        keys = [
            (tuple(x for x in limits if x != kept), tenant if kept != QUOTA else -1)
            for kept in limits
            if kept != GPUS
        ]
        plan = max((self._plans.get(key, at.plan) for key in keys), key=c.value_of, default=at.plan)
        if not c.feasible(plan):
            raise SearchFailed
        self._plans[limits, tenant] = plan = self._find_best(at, c, plan, limits, tenant, asked)
        jobs = asked[(plan[asked] >= 0) & at.is_better[plan[asked]]]
        return at.describe(jobs, plan[jobs], asked[:0])

    def _find_best(
        self,
        at: _PlanContext,
        c: Choices,
        plan: Ints,
        limits: tuple[str, ...],
        tenant: int,
        asked: Ints,
    ) -> Ints:
        """Return the best plan, or a known one if no better one has more for the jobs `asked`.

        Only groups count that rows tie to these jobs. Where a relaxation has no parts of columns,
        it is the best plan of all groups that rows tie together. Raises SearchFailed.
        """
        if not limits and self._is_exact:
            return plan
        fits, open_, cases = c.fitting_columns(), asked, [c]
        if not limits or QUOTA in limits:
            prices = self._lifted_prices(limits, tenant)
            within = tuple(x for x in limits if x != QUOTA), -1
            if limits and within in self._plans and (prices == self._lifted_prices(*within)).all():
                # a better plan breaks the quota: one that keeps it would have been found before
                cases = at.break_rows(c, lifted_rows(at.round, (QUOTA,), tenant))
        else:
            relaxed = at.relaxation.solve(c, fits, self._until)
            if relaxed is None:
                raise SearchFailed
            x, prices = relaxed
            self._prices[limits] = prices
            parts = np.bincount(c.group[np.abs(x - 0.5) < 0.5 - ROUNDING], minlength=c.J) > 0
            plan = np.where(c.tied_groups(np.flatnonzero(parts)), plan, c.from_x(x))
            open_ = np.flatnonzero(parts & c.tied_groups(asked))
        for case in cases:
            own = np.flatnonzero(fits & case.tied_groups(open_)[c.group])
            part, number = case.take(own), np.full(c.n + 1, -1)
            number[own] = np.arange(len(own))
            dual = evaluate(part, prices)
            search = Search(part, dual, number[plan], REASONS_GAP, self._until, dual.bound)
            search.take(dual.choice)
            near = own[search.losses.leaves(search.value)[0]]
            served = c.group[near[at.is_better[near]]]
            if not search.is_closed() and np.isin(asked, served).any():
                if not search.may_go_on():
                    raise SearchFailed
                if case is c and len(near) > 2 * c.J:
                    search.search(*search.losses.least(c.J, search.plan), EFFORT)
                search.prove(EFFORT)
            plan = np.where(np.diff(part.start) > 0, np.append(own, -1)[search.plan], plan)
        return plan


def _without_row_bounds(c: Choices, gone: Bools, mandatory: Bools) -> Choices:
    """Return the choices without the bounds of some rows (m,).

    A row may be what makes groups mandatory. So `mandatory` (J,) is given as it is without them.
    """
    low, high = np.where(gone[c.rows], [[-np.inf], [np.inf]], [c.low, c.high])
    return replace(c, low=low, high=high, mandatory=mandatory)


@dataclass(frozen=True)
class _PlanContext:
    """A round seen from a plan.

    Attributes
    ----------
    decision : Decision
        The plan.
    is_better : (n,)
        True for columns of this round with GPUs of their own and more value here than what their
        job has in the plan, by more than the gap that is proven.
    """

    round: CompiledRound
    decision: Decision
    choices: Choices
    is_better: Bools

    @classmethod
    def of(cls, round_: CompiledRound, decision: Decision) -> _PlanContext:
        """Build the context of the plan of a decision."""
        i = round_.instance
        least = _least_gain(round_.option_table, decision) + REASONS_GAP * abs(decision.value)
        better = is_more(i.value, least[i.job]) & (i.primary < 0)
        return cls(round_, decision, round_.choices, better)

    @cached_property
    def plan(self) -> Ints:
        """The columns of this round that are the plan, (J,), -1 where there is none."""
        old = self.decision.allocation
        return self.round.columns_at(np.arange(len(old.pool)), old.pool, old.gpus)

    def break_rows(self, c: Choices, rows: Bools) -> list[Choices]:
        """Return, for each of some rows (m,), the choices whose plans exceed its upper bound here.

        In c the bounds of these rows are lifted.
        """
        high = self.choices.high
        parts = c.matrix.indices[c.matrix.data % 1 != 0]
        is_whole = np.bincount(parts, minlength=c.R) == 0
        low = np.where(is_whole, np.floor(high) + 1, high)
        at = np.flatnonzero(rows[c.rows])
        return [replace(c, low=np.where(np.arange(c.R) == r, low, c.low)) for r in at]

    @cached_property
    def relaxation(self) -> LinearRelaxation:
        """The linear relaxation of this round."""
        try:
            return LinearRelaxation(self.choices)
        except ImportError as error:  # the caller has loaded OR-Tools, and one process holds one
            raise SearchFailed from error

    @cached_property
    def prices(self) -> Floats:
        """The prices of the decision, (m,), 0 for rows that it does not have."""
        known = Memory.of("", self.decision.round.model, self.decision.prices)
        return known.row_prices(self.round.model)[0]

    def gain(self, prices: Floats) -> tuple[Ints, Floats]:
        """Return the better column of each job that is best at these prices, (J,), -1 = none.

        Also return how much the job gains by it, as a share of its value.
        """
        c, better = self.choices, self.is_better
        surplus = c.value - c.matrix @ prices[c.rows]
        best = group_max(c, np.where(better, surplus, -np.inf), -np.inf)
        kept = group_max(c, np.where(better, -np.inf, surplus), -np.inf)
        kept = np.maximum(kept, np.where(c.mandatory, -1e300, 0.0))
        at = np.flatnonzero(better & (surplus >= best[c.group]))[::-1]
        column = np.full(c.J, -1)
        column[c.group[at]] = at
        value = np.abs(np.append(c.value, 0.0)[column])
        return column, (best - kept) / np.where(value > 0, value, 1.0)

    def find_gaining(self, prices: Floats, share: float, asked: Ints) -> GainingJobs:
        """Return the jobs that gain by a better column at these prices.

        `near` are those whose gain or loss is less than this share of its value.
        """
        column, gain = self.gain(prices)
        some = asked[column[asked] >= 0]
        jobs = some[gain[some] > share]
        return self.describe(jobs, column[jobs], some[np.abs(gain[some]) <= share])

    def describe(self, jobs: Ints, columns: Ints, near: Ints) -> GainingJobs:
        """Return the jobs that get columns of this round, (k,) each."""
        m, option = self.round.option_table, self.round.option[columns]
        return GainingJobs(jobs, m.pool[option], m.gpus[option], near)


def _least_gain(m: OptionTable, decision: Decision) -> Floats:
    """Return the value above which each job of a plan gets more in a lifted round, (J,).

    The option that a job has may have another value there; `m` are the options of that round.
    """
    old = decision.allocation
    same = m.at(np.arange(len(old.pool)), old.pool, old.gpus)
    alone = (same >= 0) & (old.primary < 0)
    now = np.where(alone, np.append(m.value, 0.0)[same], decision.witness.value)
    return np.where(old.pool >= 0, now + ROUNDING * np.maximum(1.0, np.abs(now)), 0.0)


def is_more(value: Floats, than: Floats) -> Bools:
    """Return whether values exceed others by more than rounding, (n,)."""
    return value > than + 1e-12 * np.abs(than)


def lifted_rows(round_: CompiledRound, limits: tuple[str, ...], tenant: int) -> Bools:
    """Return the rows of the round's model that belong to some limits, (m,).

    `tenant` is the tenant whose quota is lifted.
    """
    model = round_.model
    of_tenant = (round_.problem.jobs.tenant == tenant)[round_.instance.job]  # columns
    own = np.zeros(model.m, bool)
    own[model.index[of_tenant[model.entry_column]]] = True
    out = model.rows_of(*kinds_of(*limits))
    return out & (own | ~model.rows_of(*kinds_of(QUOTA)))
