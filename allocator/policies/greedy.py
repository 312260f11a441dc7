"""The published greedy baseline and its naive variant.

Source: design page systems.md section 2.2 (reconstruction of the baseline of Hu et al. 2021):
  1. FIFO: give each job its requested size; if it does not fit, halve down to min_gpus; else leave it queued.
  2. While GPUs are free, double the running job with the largest (s(2k) - s(k)) / k that stays within max_gpus;
     s = speed relative to the requested size.
Naive: running jobs are never shrunk; each arriving job takes as much as it may.

The baseline is stated for one kind of GPU. On several pools a job looks first at the pool it runs in, then at the
others from fast to slow; doubling stays in the pool. Jobs that may not move come first. Budget, quotas and tenant
budgets limit every step. Guarantees and the limit on changes cannot be kept by a rule that looks at one job at a
time: if the plan breaks them, it is repaired with the least loss of value (formulations/rounding.repair).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.rescue import keep_the_rules
from formulations.linear import Floats, Ints


def greedy(task: Task) -> Decision:
    """FIFO at the requested size, halved where needed, then doubling by marginal speed."""
    room = Room(task.round)
    choice = room.choice
    first_come = np.argsort(task.round.problem.jobs.submitted_s, kind="stable")
    for j in _protected_first(task.round, first_come):
        room.take_first(j, _halving(task.round, j))
    _double(task.round, room)
    return keep_the_rules(task, choice)


def greedy_naive(task: Task) -> Decision:
    """Running jobs keep what they hold; each waiting job, oldest first, takes the most GPUs that are free."""
    room = Room(task.round)
    stay = task.round.stay()
    first_come = np.argsort(task.round.problem.jobs.submitted_s, kind="stable")
    order = list(_protected_first(task.round, first_come))
    for j in order:
        if stay[j] >= 0:
            room.take_first(j, iter([int(stay[j])]))
    for j in order:
        if room.choice[j] < 0 and stay[j] < 0:
            room.take_first(j, _largest(task.round, j))
    return keep_the_rules(task, room.choice)


class Room:
    """What is left of every `at most` rule while a plan is being filled, and the plan so far."""

    def __init__(self, round_: Round) -> None:
        i = round_.instance
        self._i = i
        self.choice: Ints = np.full(len(i.must), -1)
        self._gpus = i.capacity.tolist()
        self._budget = float(i.budget)
        self._quota = i.quota.tolist()
        self._tenant_budget = i.tenant_budget.tolist()
        self._tenant = i.tenant.tolist()

    def _fits(self, j: int, o: int, old: int) -> bool:
        i, q = self._i, self._tenant[j]
        gpus, cost = int(i.gpus[o]), float(i.cost[o])
        extra, dollars = gpus - (int(i.gpus[old]) if old >= 0 else 0), cost - (float(i.cost[old]) if old >= 0 else 0.0)
        need = extra if old >= 0 and i.pool[old] == i.pool[o] else gpus
        return (need <= self._gpus[i.pool[o]] and extra <= self._quota[q]
                and dollars <= _slack(self._budget) and dollars <= _slack(self._tenant_budget[q]))

    def take(self, j: int, o: int) -> bool:
        """Give job j the option o instead of what it has, if it fits."""
        old = int(self.choice[j])
        if not self._fits(j, o, old):
            return False
        for option, sign in ((old, 1), (o, -1)):
            if option >= 0:
                i, q = self._i, self._tenant[j]
                self._gpus[i.pool[option]] += sign * int(i.gpus[option])
                self._quota[q] += sign * int(i.gpus[option])
                self._budget += sign * float(i.cost[option])
                self._tenant_budget[q] += sign * float(i.cost[option])
        self.choice[j] = o
        return True

    def take_first(self, j: int, options: Iterator[int]) -> None:
        """Give job j the first of the options that fits."""
        for o in options:
            if self.take(j, o):
                return


def _slack(left: float) -> float:
    return left + 1e-9 * max(1.0, abs(left))


def _protected_first(round_: Round, order: Ints) -> Iterator[int]:
    must = round_.instance.must[order]
    yield from (int(j) for j in order[must])
    yield from (int(j) for j in order[~must])


def _own(round_: Round, j: int) -> tuple[Ints, Ints]:
    """Options of job j and their order of preference: pool it runs in first, then faster, pool by pool."""
    i = round_.instance
    mine = np.arange(i.start[j], i.start[j + 1])
    rate = round_.menu.rate[round_.option[mine]]
    home = i.pool[mine] == round_.problem.jobs.pool[j]
    return mine, np.lexsort((i.pool[mine], -rate, ~home))


def _halving(round_: Round, j: int) -> Iterator[int]:
    """Options of job j at its requested size, then half of it, and so on down to min_gpus; what it must keep, first."""
    i, jobs = round_.instance, round_.problem.jobs
    mine, preferred = _own(round_, j)
    if i.must[j] or jobs.resizes_left[j] == 0:
        yield from mine[i.keep[mine]].tolist()
        if i.must[j]:
            return
    k = int(jobs.requested_gpus[j])
    while k >= max(1, int(jobs.min_gpus[j])):
        same = mine[preferred][i.gpus[mine[preferred]] == k]
        yield from same.tolist()
        k //= 2


def _largest(round_: Round, j: int) -> Iterator[int]:
    """Options of job j, most GPUs first, the fastest of equals first."""
    mine, preferred = _own(round_, j)
    order = preferred[np.argsort(-round_.instance.gpus[mine[preferred]], kind="stable")]
    yield from mine[order].tolist()


def _double(round_: Round, room: Room) -> None:
    """Step 2: a heap of possible doublings by gain per GPU; a job re-enters with its next doubling."""
    rate = round_.menu.rate[round_.option] if len(round_.option) else np.zeros(0)
    heap: list[tuple[float, int, int]] = []
    for j in np.flatnonzero(room.choice >= 0).tolist():
        _offer(heap, round_, rate, j, int(room.choice[j]))
    while heap:
        _, j, o = heapq.heappop(heap)
        if room.take(j, o):
            _offer(heap, round_, rate, j, o)


def _offer(heap: list[tuple[float, int, int]], round_: Round, rate: Floats, j: int, o: int) -> None:
    i = round_.instance
    if i.must[j]:
        return
    mine = np.arange(i.start[j], i.start[j + 1])
    here = mine[i.pool[mine] == i.pool[o]]
    k = int(i.gpus[o])
    twice = here[i.gpus[here] == 2 * k]
    asked = here[i.gpus[here] == round_.problem.jobs.requested_gpus[j]]
    base = float(rate[asked[0]]) if len(asked) else float(rate[o])
    if len(twice):
        gain = (float(rate[twice[0]]) - float(rate[o])) / base / k
        if gain > 0:
            heapq.heappush(heap, (-gain, j, int(twice[0])))
