"""Whether the reasons of a plan are true: limits are lifted in the problem, and the round is
decided again.

Shares nothing with allocator/engine/causes.py: limits are lifted one pool at a time too, to large
numbers instead of none, and decisions are exact.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Set
from typing import Any

import numpy as np

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.engine.decision import decide, decide_round, explain_decision, run_policy
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.mip import mip
from allocator.solvers.base import SolveLimits

MUCH = 10**6
Key = tuple[frozenset[str], int, int]  # limits, tenant, pool


class Checker:
    """One round, decided once, and decided again without limits as often as its reasons ask for
    it."""

    def __init__(self, problem: Problem, limits: SolveLimits, gap: float = 0.0) -> None:
        self.exact = dataclasses.replace(limits, gap=gap)
        decision = decide_round(problem, limits=limits)
        self.result = explain_decision(problem, decision, policy="mip", limits=limits)
        self.problem = decision.round.problem
        self._known: dict[Key, Plan | None] = {}

    def counts(self) -> Counter[tuple[str, bool]]:
        """(code, whether it is true) of every reason that can be checked."""
        return Counter(
            (code, self.is_true(j))
            for j, code in enumerate(self.result.jobs["reason"])
            if code not in (None, "held", "not_evaluated")
        )

    def is_true(self, j: int) -> bool:
        """Whether the reason of job j is."""
        code, detail = self.result.jobs["reason"][j], str(self.result.jobs["detail"][j])
        if code in ("budget", "quota"):
            return self.agrees(j, {code})
        if code == "capacity":
            return any(self.agrees(j, {"GPUs"}, pool=p) for p in range(-1, len(self.problem.pools)))
        if code == "outranked":
            alone = [{"budget"}, {"quota"}]
            said = detail.partition("; it lacks ")[2].partition("; ")[0]
            if not said:
                return all(self.agrees(j, s, more=False) for s in alone)
            named = said.removesuffix(" together").replace(" and ", ", ").split(", ")
            fewer = (itertools.combinations(named, n) for n in range(1, len(named)))
            proper = list(map(set, itertools.chain(*fewer))) or alone
            is_enough = self.agrees(j, set(named))
            return is_enough and all(self.agrees(j, s, more=False) for s in proper)
        if code in ("protected", "exceeds_quota", "exceeds_cluster"):
            return not self._can_have_more(j)
        return self.agrees(j, {"GPUs", "budget", "quota"}, more=False)  # no_matching_gpu_type

    def agrees(self, j: int, limits: set[str], more: bool = True, pool: int = -1) -> bool:
        """Whether job j gets more value, or does not, in a best plan without some limits; pool: the
        one with more GPUs, -1 = all.

        More is counted by the values of the lifted round: other limits may change the value of
        work. Where best plans tie, to the rounding that reasons promise, any of them will do.
        """
        key, found = self._without(limits, j, pool)
        if found is None:
            return not more
        round_ = compile_round(without(self.problem, *key), prunes=False)
        i, now = round_.instance, self._value_of_job(round_, j)
        now += 1e-9 * max(1.0, abs(now)) * bool(self.result.jobs["gpus"][j])
        if (found.jobs["value"][j] > now) == more:
            return True
        is_more = (i.job == j) & (i.value > now)
        if more:
            other = round_.with_forced_job(j, np.flatnonzero(is_more))
        else:
            never = dataclasses.replace(i, value=np.where(is_more, -float(MUCH), i.value))
            other = dataclasses.replace(round_, instance=never)
        best, least = self._best_value(round_), self._best_value(other)
        size = max(abs(best), abs(sum(self.result.jobs["value"])))
        return bool(least >= best - (1e-7 + 2 * self.exact.gap) * size)

    def _best_value(self, round_: CompiledRound) -> float:
        try:
            task, proposal = run_policy(round_, mip, None, self.exact, np.inf)
        except (Infeasible, NoPlanInTime):  # the analysis of conflicts does not know this rule
            return -np.inf
        return float(task.round.instance.value[proposal.choice[proposal.choice >= 0]].sum())

    def _value_of_job(self, round_: CompiledRound, j: int) -> float:
        """Return the value of what job j got, in a lifted round."""
        pool, gpus, shared, value = (
            self.result.jobs[name][j] for name in ("pool", "gpus", "shared_with", "value")
        )
        if not gpus or shared is not None:
            return float(value)
        m = round_.option_table
        own = (m.job == j) & (m.pool == self.problem.pools.pool.index(pool)) & (m.gpus == gpus)
        return float(m.value[own & (m.primary < 0)][0])

    def _without(self, limits: set[str], j: int, pool: int) -> tuple[Key, Plan | None]:
        key = (
            frozenset(limits),
            int(self.problem.jobs.tenant[j]) if "quota" in limits else -1,
            pool,
        )
        if key not in self._known:
            try:
                self._known[key] = decide(without(self.problem, *key), limits=self.exact)
            except AllocatorError:
                self._known[key] = None
        return key, self._known[key]

    def _can_have_more(self, j: int) -> bool:
        """Whether any plan that keeps the rules, good or bad, gives job j more."""
        round_ = compile_round(self.problem, prunes=False)
        i = round_.instance
        better = (i.job == j) & (i.value > self.result.jobs["value"][j] + 1e-12)
        return self._best_value(round_.with_forced_job(j, np.flatnonzero(better))) > -np.inf


def without(problem: Problem, limits: Set[str], tenant: int, pool: int = -1) -> Problem:
    """The problem in which some limits are so large that nobody notices them."""
    if "budget" in limits:
        problem = dataclasses.replace(problem, budget_per_hour=float(MUCH))
    if "max_changes" in limits:
        problem = dataclasses.replace(problem, max_changes=len(problem.jobs))
    if "quota" in limits:
        tenants, quotas = problem.tenants, problem.quotas
        line = [q for q in tenants.ancestors[:, tenant] if q >= 0]
        lifted: dict[str, Any] = {}
        for name in (*tenants.OF_TREE, *tenants.OF_OWN_JOBS):
            own = np.isin(np.arange(len(tenants)), line if name in tenants.OF_TREE else tenant)
            much = math.inf if "share" in name else float(MUCH)  # a share of no guarantee is no GPU
            lifted[name] = np.where(own, much, getattr(tenants, name))
        most = np.where(np.isin(quotas.tenant, line), float(MUCH), quotas.max_gpus)
        problem = dataclasses.replace(
            problem,
            tenants=dataclasses.replace(tenants, **lifted),
            quotas=dataclasses.replace(
                quotas, max_gpus=most, lend_gpus=np.full(len(quotas), float(MUCH))
            ),
        )
    if "GPUs" in limits:
        gpus = problem.pools.gpus.copy()
        gpus[slice(None) if pool < 0 else slice(pool, pool + 1)] += problem.jobs.max_gpus.sum()
        problem = dataclasses.replace(
            problem, pools=dataclasses.replace(problem.pools, gpus=gpus), kept=()
        )
    return problem
