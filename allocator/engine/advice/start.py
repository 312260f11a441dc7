"""An estimate of when a waiting job may start; it is not a promise.

It assumes that no job is submitted, and that running jobs keep the GPUs and the speed of the plan
until they end. Their GPUs then go to the waiting jobs in the order of what these offer above the
price of what they would use. Each takes the best of its options that fits. A start is counted from
the first round in which the GPUs are free.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.engine.decision import Decision
from allocator.engine.reasons import price_to_beat
from allocator.options.headroom import headroom_in_force
from allocator.options.option_table import find_blocked_jobs

FARTHEST_S = 30 * 86_400.0  # a later start counts as unknown
LOOKS = 100_000  # most options that are considered
TRIED = 8  # most options of a waiting job that are tried, the best first


@dataclass(frozen=True)
class StartEstimate:
    """An estimated start: in `in_s` seconds, with a number of GPUs of a pool.

    `after` has the jobs that end by then and leave what the job needs, in the order of their ends.
    """

    in_s: float
    gpus: int
    pool: str
    after: tuple[str, ...]


def estimate_start(decision: Decision, usage_cost: Floats, j: int) -> StartEstimate | None:
    """Estimate the start of a job that got nothing.

    Parameters
    ----------
    decision : Decision
        The plan.
    usage_cost : (n,)
        Price of what each option of the option table uses.
    j : int
        Index of the job.

    Returns
    -------
    estimate : StartEstimate or None
        None if nothing that is known of the plan lets the job start.
    """
    state = _Forecast(decision, usage_cost)
    if find_blocked_jobs(decision.round.problem)[j] or not len(state.options(j)):
        return None
    waiting = state.waiting_ahead_of(j)
    left: list[str] = []
    while state.ends and state.looks < LOOKS:
        now = state.end_next(left)
        if now > FARTHEST_S:
            break
        waiting = [w for w in waiting if state.start(w, now) is None]
        option = state.start(j, now)
        if option is not None:
            return state.describe_start(option, now, left)
    return None


class _Forecast:
    """The free GPUs, and when each job ends."""

    def __init__(self, decision: Decision, usage_cost: Floats) -> None:
        round_, plan = decision.round, decision.allocation
        problem = round_.problem
        self._round = round_
        self._problem = problem
        self._option_table = round_.option_table
        self._usage_cost = usage_cost
        self._chosen = round_.chosen(decision.proposal.choice)
        held, on = plan.held, np.flatnonzero(plan.pool >= 0)
        self._pool = plan.pool.copy()
        self._held = held.copy()
        self._cost = decision.witness.cost.copy()
        pools, i = problem.pools, round_.instance
        self._free = pools.gpus - np.bincount(plan.pool[on], held[on], len(pools))
        self._free = self._free - headroom_in_force(problem, round_.instance.mandatory)
        self._dollars = problem.budget_per_hour - float(self._cost.sum())
        self._quota, self._tenant_dollars = i.quota.copy(), i.tenant_budget.copy()
        for k in on.tolist():
            self._count(k, -1)
        rate, pause = decision.witness.rate, self._option_table.pause_s[self._chosen[on]]
        with np.errstate(divide="ignore"):
            ends = pause + problem.jobs.remaining_work[on] / rate[on]
        self.ends = [(float(t), int(k)) for t, k in zip(ends, on, strict=True) if math.isfinite(t)]
        heapq.heapify(self.ends)
        self.looks = 0
        self._known: dict[int, Ints] = {}

    def options(self, j: int) -> Ints:
        """Return the options of a job that have value, the largest surplus first."""
        if j not in self._known:
            m = self._option_table
            mine = np.arange(m.start[j], m.start[j + 1])
            mine = mine[(m.value[mine] > 0) & (m.primary[mine] < 0)]
            order = np.argsort(-(m.value - self._usage_cost)[mine], kind="stable")
            self._known[j] = mine[order[:TRIED]]
        return self._known[j]

    def waiting_ahead_of(self, j: int) -> list[int]:
        """Return the waiting jobs that offer at least as much above the price as job j.

        The one that offers most comes first.
        """
        _, offers, needs = price_to_beat(self._round, self._chosen, self._usage_cost)
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where(needs > 0, offers / needs, np.inf)
        waits = (self._pool < 0) & ~find_blocked_jobs(self._problem) & np.isfinite(offers)
        first = np.lexsort((self._problem.jobs.submitted_s, -over))
        return [int(w) for w in first if waits[w] and w != j and over[w] >= over[j]]

    def end_next(self, left: list[str]) -> float:
        """End the next jobs that end within one round; return the time of the round after that.

        `left` collects the names of jobs that have ended.
        """
        interval = self._problem.interval_s
        first, _ = self.ends[0]
        now = max(1.0, math.ceil(first / interval - 1e-9)) * interval
        while self.ends and self.ends[0][0] <= now + 1e-9:
            _, k = heapq.heappop(self.ends)
            self._free[self._pool[k]] += self._held[k]
            self._dollars += self._cost[k]
            self._count(k, 1)
            left.append(self._problem.jobs.job_id[k])
        return now

    def _quotas(self, j: int, pool: int) -> Ints:
        """Return the quotas that a job counts for in a pool."""
        i = self._round.instance
        rows = i.account_of(self._problem.jobs.tenant[[j]], np.array([pool]))[:, 0]
        return rows[rows >= 0]

    def _count(self, j: int, sign: int) -> None:
        """Add what a job holds to what its quotas leave, or subtract it."""
        rows = self._quotas(j, int(self._pool[j]))
        self._quota[rows] += sign * self._held[j]
        self._tenant_dollars[rows] += sign * self._cost[j]

    def start(self, j: int, now: float) -> int | None:
        """Start a job if one of its options fits; return the option, None if it keeps waiting."""
        m, rounding = self._option_table, 1e-9
        for o in self.options(j).tolist():
            self.looks += 1
            pool, gpus, cost = m.pool[o], m.gpus[o], m.cost[o]
            rows = self._quotas(j, int(pool))
            if (
                gpus <= self._free[pool]
                and cost <= self._dollars + rounding
                and (gpus <= self._quota[rows]).all()
                and (cost <= self._tenant_dollars[rows] + rounding).all()
            ):
                self._free[pool] -= gpus
                self._dollars -= cost
                self._pool[j], self._held[j], self._cost[j] = pool, gpus, cost
                self._count(j, -1)
                done = now + m.pause_s[o] + self._problem.jobs.remaining_work[j] / m.rate[o]
                heapq.heappush(self.ends, (float(done), j))
                return int(o)
        return None

    def describe_start(self, option: int, now: float, left: list[str]) -> StartEstimate:
        """Describe the start of a job with an option.

        It names the jobs that left GPUs of the option's pool, or else any jobs that ended.
        """
        m, pools = self._option_table, self._problem.pools.pool
        number = {name: k for k, name in enumerate(self._problem.jobs.job_id)}
        here = [name for name in left if self._pool[number[name]] == m.pool[option]]
        return StartEstimate(now, int(m.gpus[option]), pools[m.pool[option]], tuple(here or left))
