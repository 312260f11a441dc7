"""The published greedy baseline and its naive variant.

Source: design page systems.md section 2.2 (reconstruction of the baseline of Hu et al. 2021):
  1. FIFO: give each job its requested size; if it does not fit, halve down to min_gpus; else leave it queued.
  2. While GPUs are free, double the running job with the largest (s(2k) - s(k)) / k that stays within max_gpus;
     s = speed relative to the requested size.
Naive: running jobs are never shrunk; each arriving job takes as much as it may.

The baseline is stated for one kind of GPU and no rules. On several pools a job looks first at the pool it runs in, then
at the others from fast to slow; doubling stays in the pool. Every step keeps to budget, quotas and tenant budgets. Jobs
that may not move come first, then jobs of tenants below their guarantee, then all. Where the number of changes is
limited, the plan starts from what runs now instead of from nothing. If a guarantee or that limit is still broken, the
plan is repaired with the least loss of value (formulations/rounding.repair) and both steps go on from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np

from allocator.domain.problem import State
from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.rescue import last_resort
from formulations.linear import Floats, Ints
from formulations.rounding import repair

Wishes = Callable[[Round, int], Iterator[int]]      # options of a job in the order it would like them


def greedy(task: Task) -> Decision:
    """FIFO at the requested size, halved where needed, then doubling by marginal speed."""
    def steps(room: Room) -> None:
        _serve(task.round, room, _halving)
        _double(task.round, room)

    return _decide(task, steps, start=task.round.stay() if task.round.instance.least_kept > 0 else None)


def greedy_naive(task: Task) -> Decision:
    """Running jobs keep what they hold; each waiting job, oldest first, takes the most GPUs that are free."""
    return _decide(task, lambda room: _serve(task.round, room, _largest), start=task.round.stay())


def _decide(task: Task, steps: Callable[[Room], None], start: Ints | None) -> Decision:
    """Run the steps from the start; where a rule is still broken, repair and run them again for what is left."""
    if start is not None and not task.choices.feasible(start):
        start = repair(task.choices, start, task.dual.prices)
    room = Room(task.round, start)
    steps(room)
    if task.choices.feasible(room.choice):
        return Decision(room.choice)
    mended = repair(task.choices, room.choice, task.dual.prices)
    if mended is None:
        return last_resort(task)
    room = Room(task.round, mended)
    steps(room)
    choice = room.choice if task.choices.feasible(room.choice) else mended
    return Decision(choice, detail="guarantees or the limit on changes made the policy deviate from its own plan")


class Room:
    """What is left of every `at most` rule and of the allowed changes while a plan is being filled, and the plan."""

    def __init__(self, round_: Round, start: Ints | None) -> None:
        i = round_.instance
        self._i = i
        self.choice: Ints = np.full(len(i.must), -1)
        self._gpus = i.capacity.tolist()
        self._budget = float(i.budget)
        self._quota = i.quota.tolist()
        self._tenant_budget = i.tenant_budget.tolist()
        self._tenant = i.tenant.tolist()
        self.owed = i.guarantee.tolist()
        running = round_.problem.jobs.state == State.RUNNING
        limit = round_.repairs.max_changes
        limited = limit >= 0 and start is not None
        self._counts = running if limited else np.zeros(len(running), dtype=bool)
        kept = np.zeros(len(running), dtype=bool)
        for j in np.flatnonzero(start >= 0).tolist() if start is not None else []:
            self._move(j, -1, int(start[j]))      # type: ignore[index]
            kept[j] = bool(i.keep[self.choice[j]])
        self._changes = limit - int((running & ~kept).sum()) if limited else len(running)

    def _fits(self, j: int, o: int, old: int) -> bool:
        i, q = self._i, self._tenant[j]
        gpus, cost = int(i.gpus[o]), float(i.cost[o])
        extra, dollars = gpus - (int(i.gpus[old]) if old >= 0 else 0), cost - (float(i.cost[old]) if old >= 0 else 0.0)
        need = extra if old >= 0 and i.pool[old] == i.pool[o] else gpus
        changes = self._counts[j] and old >= 0 and i.keep[old] and not i.keep[o]
        return (need <= self._gpus[i.pool[o]] and extra <= self._quota[q] and (not changes or self._changes > 0)
                and dollars <= _slack(self._budget) and dollars <= _slack(self._tenant_budget[q])
                and (extra >= 0 or self.owed[q] - extra <= 0))

    def take(self, j: int, o: int) -> bool:
        """Give job j the option o instead of what it has, if it fits."""
        old = int(self.choice[j])
        if o == old or not self._fits(j, o, old):
            return o == old
        if self._counts[j] and old >= 0:
            self._changes += int(self._i.keep[o]) - int(self._i.keep[old])
        self._move(j, old, o)
        return True

    def _move(self, j: int, old: int, new: int) -> None:
        i, q = self._i, self._tenant[j]
        for option, sign in ((old, 1), (new, -1)):
            if option >= 0:
                self._gpus[i.pool[option]] += sign * int(i.gpus[option])
                self._quota[q] += sign * int(i.gpus[option])
                self._budget += sign * float(i.cost[option])
                self._tenant_budget[q] += sign * float(i.cost[option])
                self.owed[q] += sign * int(i.gpus[option])
        self.choice[j] = new

    def take_first(self, j: int, options: Iterator[int]) -> None:
        """Give job j the first of the options that fits."""
        for o in options:
            if self.take(j, o):
                return


def _serve(round_: Round, room: Room, wishes: Wishes) -> None:
    """First come, first served: jobs that must run, jobs of tenants that are owed GPUs, then everybody else."""
    i = round_.instance
    order = np.argsort(round_.problem.jobs.submitted_s, kind="stable")
    for j in order[i.must[order]].tolist():
        room.take_first(j, iter(range(int(i.start[j]), int(i.start[j + 1]))))
    owed = order[(i.guarantee[i.tenant[order]] > 0) & ~i.must[order]].tolist()
    served = set()
    for j in owed:
        if room.owed[i.tenant[j]] > 0 and room.choice[j] < 0:
            room.take_first(j, wishes(round_, j))
            served.add(j)
    for j in order[~i.must[order]].tolist():
        if j not in served:
            room.take_first(j, wishes(round_, j))


def _slack(left: float) -> float:
    return left + 1e-9 * max(1.0, abs(left))


def _own(round_: Round, j: int) -> tuple[Ints, Ints]:
    """Options of job j and their order of preference: pool it runs in first, then faster, pool by pool."""
    i = round_.instance
    mine = np.arange(i.start[j], i.start[j + 1])
    rate = round_.menu.rate[round_.option[mine]]
    home = i.pool[mine] == round_.problem.jobs.pool[j]
    return mine, np.lexsort((i.pool[mine], -rate, ~home))


def _halving(round_: Round, j: int) -> Iterator[int]:
    """Options of job j at its requested size, then halved down to min_gpus; what it is bound to comes first."""
    i, jobs = round_.instance, round_.problem.jobs
    mine, preferred = _own(round_, j)
    if jobs.resizes_left[j] == 0:
        yield from mine[i.keep[mine]].tolist()
    k = int(jobs.requested_gpus[j])
    while k >= max(1, int(jobs.min_gpus[j])):
        same = mine[preferred][i.gpus[mine[preferred]] == k]
        yield from same.tolist()
        k //= 2


def _largest(round_: Round, j: int) -> Iterator[int]:
    """What a running job holds; for a waiting one its options, most GPUs first, the fastest of equals first."""
    i = round_.instance
    mine, preferred = _own(round_, j)
    kept = mine[i.keep[mine]]
    if len(kept):
        yield from kept.tolist()
    else:
        order = preferred[np.argsort(-i.gpus[mine[preferred]], kind="stable")]
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
