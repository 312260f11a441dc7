"""When a job that waits may start: an estimate from the plan, not a promise.

It assumes that nothing new is submitted, that the jobs which run keep the GPUs and the speed of the
plan until they are done, and that what they leave goes to the waiting jobs in the order of what
they offer over the price of what they would use, each taking the best of its options that fits.
Starts are counted from the first round that sees the GPUs free.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from allocator.decision import Decided
from allocator.domain.problem import Floats, Ints
from allocator.options.headroom import in_force
from allocator.options.menu import blocked
from allocator.reasons import price_to_beat

FARTHEST_S = 30 * 86_400.0  # a later start is called unknown
LOOKS = 100_000  # options looked at, at most
TRIED = 8  # options of a waiting job that are tried, the best first


@dataclass(frozen=True)
class Start:
    """An estimate of a start: in_s seconds from now with so many GPUs of a pool; after: jobs that
    end by then and leave what it needs, the last one last."""

    in_s: float
    gpus: int
    pool: str
    after: tuple[str, ...]


def expected_start(decided: Decided, charge: Floats, j: int) -> Start | None:
    """The estimate for a job that got nothing.

    Parameters
    ----------
    decided : Decided
        The plan.
    charge : (n,) array
        The price of what each option of the menu uses.
    j : int
        The job.

    Returns
    -------
    Start or None
        None where nothing that is known of the plan lets it start.
    """
    state = _State(decided, charge)
    if blocked(decided.round.problem)[j] or not len(state.options(j)):
        return None
    waiting = state.ahead_of(j)
    left: list[str] = []
    while state.ends and state.looks < LOOKS:
        now = state.end_next(left)
        if now > FARTHEST_S:
            break
        waiting = [w for w in waiting if state.start(w, now) is None]
        option = state.start(j, now)
        if option is not None:
            return state.told(option, now, left)
    return None


class _State:
    """What is free, and who ends when."""

    def __init__(self, decided: Decided, charge: Floats) -> None:
        round_, plan = decided.round, decided.allocation
        problem = round_.problem
        self._round, self._problem, self._menu, self._charge = round_, problem, round_.menu, charge
        self._chosen = round_.chosen(decided.decision.choice)
        held, on = plan.held, np.flatnonzero(plan.pool >= 0)
        self._pool, self._held, self._cost = (
            plan.pool.copy(),
            held.copy(),
            decided.witness.cost.copy(),
        )
        pools, tenants, owner = problem.pools, problem.tenants, problem.jobs.tenant
        self._free = pools.gpus - np.bincount(plan.pool[on], held[on], len(pools))
        self._free = self._free - in_force(problem, round_.instance.must)
        self._dollars = problem.budget_per_hour - float(self._cost.sum())
        self._quota = tenants.max_gpus - np.bincount(owner, held, len(tenants))
        self._purse = tenants.budget_per_hour - np.bincount(owner, self._cost, len(tenants))
        rate, pause = decided.witness.rate, self._menu.pause_s[self._chosen[on]]
        with np.errstate(divide="ignore"):
            ends = pause + problem.jobs.remaining_work[on] / rate[on]
        self.ends = [(float(t), int(k)) for t, k in zip(ends, on, strict=True) if math.isfinite(t)]
        heapq.heapify(self.ends)
        self.looks = 0
        self._known: dict[int, Ints] = {}

    def options(self, j: int) -> Ints:
        """Options of a job that are worth something, the largest surplus first."""
        if j not in self._known:
            m = self._menu
            mine = np.arange(m.start[j], m.start[j + 1])
            mine = mine[(m.value[mine] > 0) & (m.host[mine] < 0)]
            order = np.argsort(-(m.value - self._charge)[mine], kind="stable")
            self._known[j] = mine[order[:TRIED]]
        return self._known[j]

    def ahead_of(self, j: int) -> list[int]:
        """The waiting jobs that offer as much over the price as job j, the most first."""
        _, offers, needs = price_to_beat(self._round, self._chosen, self._charge)
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where(needs > 0, offers / needs, np.inf)
        waits = (self._pool < 0) & ~blocked(self._problem) & np.isfinite(offers)
        first = np.lexsort((self._problem.jobs.submitted_s, -over))
        return [int(w) for w in first if waits[w] and w != j and over[w] >= over[j]]

    def end_next(self, left: list[str]) -> float:
        """Let the next jobs end that do so in one round; the time from now of the round that sees
        it. left: names of jobs that have ended."""
        interval = self._problem.interval_s
        first, _ = self.ends[0]
        now = max(1.0, math.ceil(first / interval - 1e-9)) * interval
        while self.ends and self.ends[0][0] <= now + 1e-9:
            _, k = heapq.heappop(self.ends)
            q = self._problem.jobs.tenant[k]
            self._free[self._pool[k]] += self._held[k]
            self._dollars += self._cost[k]
            self._quota[q] += self._held[k]
            self._purse[q] += self._cost[k]
            left.append(self._problem.jobs.job_id[k])
        return now

    def start(self, j: int, now: float) -> int | None:
        """Start a job where one of its options fits: the option, None where it waits on."""
        m, q, most = self._menu, self._problem.jobs.tenant[j], 1e-9
        for o in self.options(j).tolist():
            self.looks += 1
            pool, gpus, cost = m.pool[o], m.gpus[o], m.cost[o]
            if (
                gpus <= self._free[pool]
                and cost <= self._dollars + most
                and gpus <= self._quota[q]
                and cost <= self._purse[q] + most
            ):
                self._free[pool] -= gpus
                self._dollars -= cost
                self._quota[q] -= gpus
                self._purse[q] -= cost
                self._pool[j], self._held[j], self._cost[j] = pool, gpus, cost
                done = now + m.pause_s[o] + self._problem.jobs.remaining_work[j] / m.rate[o]
                heapq.heappush(self.ends, (float(done), j))
                return int(o)
        return None

    def told(self, option: int, now: float, left: list[str]) -> Start:
        """The start of a job with an option; those that left GPUs of its pool, or whoever left."""
        m, pools = self._menu, self._problem.pools.pool
        number = {name: k for k, name in enumerate(self._problem.jobs.job_id)}
        here = [name for name in left if self._pool[number[name]] == m.pool[option]]
        return Start(now, int(m.gpus[option]), pools[m.pool[option]], tuple(here or left))
