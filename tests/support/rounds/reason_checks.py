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
from allocator.options.instance_building import compile_round
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
            return self.gets_more(j, {code})
        if code == "capacity":
            return any(self.gets_more(j, {"GPUs"}, p) for p in range(-1, len(self.problem.pools)))
        if code == "outranked":
            alone = [{"budget"}, {"quota"}]
            said = detail.partition("; it lacks ")[2].partition("; ")[0]
            if not said:
                return not any(self.gets_more(j, s) for s in alone)
            named = said.removesuffix(" together").replace(" and ", ", ").split(", ")
            fewer = (itertools.combinations(named, n) for n in range(1, len(named)))
            proper = list(map(set, itertools.chain(*fewer))) or alone
            return self.gets_more(j, set(named)) and not any(self.gets_more(j, s) for s in proper)
        if code in ("protected", "exceeds_quota", "exceeds_cluster"):
            return not self._can_have_more(j)
        return not self.gets_more(j, {"GPUs", "budget", "quota"})  # no_matching_gpu_type

    def gets_more(self, j: int, limits: set[str], pool: int = -1) -> bool:
        """Whether job j gets more than it got without some limits; pool: the one with more GPUs, -1
        = all.

        More is counted by the values of the lifted round: other limits may change the value of
        work.
        """
        key, found = self._without(limits, j, pool)
        if found is None:
            return False
        before, after = self.result.jobs, found.jobs
        if not after["gpus"][j] or not before["gpus"][j]:
            return bool(after["gpus"][j])
        now = self._value_of_job(key, j) if before["shared_with"][j] is None else before["value"][j]
        return bool(after["value"][j] > now + 1e-9 * max(1.0, abs(now)))

    def _value_of_job(self, key: Key, j: int) -> float:
        """Return the value of the option that job j got, in a lifted round."""
        m = compile_round(without(self.problem, *key), prunes=False).option_table
        pool, gpus = (self.result.jobs[name][j] for name in ("pool", "gpus"))
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
        mine = np.arange(i.start[j], i.start[j + 1])
        better = mine[i.value[mine] > self.result.jobs["value"][j] + 1e-12]
        if not len(better):
            return False
        try:
            run_policy(round_.with_forced_job(j, better), mip, None, self.exact, np.inf)
        except (Infeasible, NoPlanInTime):  # the analysis of conflicts does not know this rule
            return False
        return True


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


def table(counts: Counter[tuple[str, bool]]) -> str:
    """Reasons that are true of all that were checked, a line per code."""
    codes = sorted({code for code, _ in counts})
    return "\n".join(
        f"{code:21} {counts[code, True]:6} of {counts[code, True] + counts[code, False]:6}"
        for code in codes
    )
