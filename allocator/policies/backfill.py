"""Backfill: `easy` reserves GPUs for the first job that does not fit, the others for every job.

Sources: EASY, Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; conservative backfill,
Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 2001. Slurm's backfill plugin is of this kind.

Jobs get the size they asked for (the nearest they may have), and nobody is ever stopped, moved or
resized. Waiting jobs come by weight, the largest first, then by submission. A reservation is the
earliest time at which the expected ends of those that run, and the reservations before it, leave
room for the whole run of the job. A job starts now if its run collides with no reservation: it is
over before one begins, or needs only GPUs that this one leaves.

A job with `time_limit_s` is expected to run to its limit, as its user said; another one until its
work is done at the speed of the option, as in a plan (engine/expected.py).

`slurm` is `conservative` with less precision, as Slurm's plugin has by default (see its option
bf_window_linear): it tries to start a job only at the last of the ends that lie within 30 s of the
first, then within 60 s, 120 s ... So a large job is expected later, and fewer others wait for it.

What differs from the sources: reservations are made anew in every round. In pools with nodes, runs
and reservations are on particular nodes, on as few as possible, as in Slurm. With several pools, a
job takes the pool in which it starts first, of equal ones the fastest. A job that
is stopped by a budget or quota, and not by GPUs, has no reservation, because its wait may have no
end. Guarantees take precedence over the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from allocator.domain.allocation import PlacedPlan
from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.instance_building import CompiledRound
from allocator.options.node_needs import UP, NodeNeeds, as_placements
from allocator.options.staying import Staying
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import ROUNDING, FreeCapacity
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    rank_options,
    run_steps,
    serve_first,
)
from formulations.placement.holes import Place

Spots = dict[int, tuple[Place, ...]]  # places by job
CLOSE = 1e-9  # relative rounding of times
PRECISION_S = 30.0  # first window of Slurm, which doubles


def easy(task: Task) -> Proposal:
    """Start waiting jobs in order; behind the first that has to wait, those that never delay it."""
    return _backfill(task, reservations=1)


def conservative(task: Task) -> Proposal:
    """Start waiting jobs in order; behind those that have to wait, who delays none of them."""
    return _backfill(task, reservations=math.inf)


def slurm(task: Task) -> Proposal:
    """Do as `conservative`, at the times that Slurm tries."""
    return _backfill(task, math.inf, PRECISION_S)


def _backfill(task: Task, reservations: float, window_s: float = 0.0) -> Proposal:
    """Start the waiting jobs that fit beside the reservations, of which so many are made.

    With a window they begin when no job ends, or at the last end of a window.
    """
    round_ = task.round
    i, jobs = round_.instance, round_.problem.jobs
    asked = options_at_requested_size(round_)
    preferred = rank_options(round_, asked[i.primary[asked] < 0])
    order = np.lexsort((jobs.submitted_s, -jobs.weight))
    run_s = _expected_run_s(round_)
    whole = np.isnan(jobs.gpu_fraction).all() and (i.primary < 0).all()
    known = round_.problem.has_nodes & bool(whole)  # pools in which runs are on particular nodes
    on_nodes = Staying.of(round_.problem).held if known.any() else {}
    at: Spots = {}

    def steps(free_capacity: FreeCapacity) -> None:
        serve_first(free_capacity, order, preferred)
        waiting = free_capacity.waiting(order)
        chosen = free_capacity.choice[free_capacity.choice >= 0]
        at.clear()
        pools: list[_FreeOverTime] = []
        for p, free in enumerate(free_capacity.free):
            here = chosen[i.pool[chosen] == p]
            if known[p]:
                spots = [on_nodes.get(j, ()) for j in i.job[here].tolist()]
                pools.append(_free_on_nodes(round_.problem, p, spots, run_s[here]))
            else:
                pools.append(_FreeOverTime(free, run_s[here], i.load[here]))
        for pool in pools if window_s else ():
            pool.try_last_of(window_s)
        left = reservations
        for j in waiting:
            if left == 0 and not any(free > 0 for free in free_capacity.free):
                break
            able = [o for o in preferred[j] if free_capacity.can_afford(o)]
            if left == 0:
                able = [o for o in able if pools[i.pool[o]].is_free_now(run_s[o], i.load[o])]
            start_s, best = min(
                ((pools[i.pool[o]].first(run_s[o], i.load[o]), k) for k, o in enumerate(able)),
                default=(math.inf, -1),
            )
            starts = start_s == 0.0 and free_capacity.assign(j, able[best])
            if starts or 0.0 < start_s < math.inf:
                left -= not starts
                o = able[best]
                places = pools[i.pool[o]].take(start_s, run_s[o], i.load[o])
                if starts:
                    at[j] = places

    proposal = run_steps(task, steps, round_.unchanged_choice(), guaranteed=False)
    return _with_nodes(round_, proposal, on_nodes, at)


def _expected_run_s(round_: CompiledRound) -> Floats:
    """Return the seconds from now to the end of each option of the model, as users' limits say.

    What a running job has run already is its GPU-time over its GPUs, which never change.
    """
    i, jobs = round_.instance, round_.problem.jobs
    with np.errstate(divide="ignore"):
        work_s = jobs.remaining_work[i.job] / option_rates(round_)
    ran_s = np.where(jobs.gpus > 0, jobs.attained_gpu_s / np.maximum(jobs.gpus, 1), 0.0)
    left_s = jobs.time_limit_s - ran_s
    # one that runs on past its limit is expected to end by the next round
    left_s = np.where(left_s <= 0, round_.problem.interval_s, left_s)[i.job]
    to_end_s = round_.option_table.pause_s[round_.option] + work_s
    return np.where(np.isnan(left_s), to_end_s, left_s)


class _FreeOverTime:
    """Free GPUs of a pool: `free[n]` from `at_s[n]` seconds from now, until the next time."""

    tried: set[float] | None = None  # times at which a run may begin, None = all

    def __init__(self, free: float, end_s: Floats, gpus: Floats) -> None:
        self.at_s, which = np.unique(np.append(0.0, end_s), return_inverse=True)
        self.free = np.cumsum(np.bincount(which, np.append(free, gpus))).astype(np.float64)

    def try_last_of(self, window_s: float) -> None:
        """Let runs begin only at the last end in each window; windows double in length."""
        self.tried, n = {0.0}, 1
        while n < len(self.at_s):
            n = int(np.searchsorted(self.at_s, self.at_s[n] + window_s, side="right"))
            self.tried.add(float(self.at_s[n - 1]))
            window_s *= 2

    def _may_begin(self) -> list[bool]:
        return [self.tried is None or at_s in self.tried for at_s in self.at_s.tolist()]

    def is_free_now(self, run_s: float, gpus: float) -> bool:
        """Return whether so many GPUs are free for a run that starts now."""
        end = np.searchsorted(self.at_s, run_s * (1.0 - CLOSE))
        return bool((self.free[:end] >= gpus - ROUNDING).all())

    def first(self, run_s: float, gpus: float) -> float:
        """Return the earliest start of a run of so many GPUs, inf = never."""
        if run_s == math.inf:
            return math.inf
        short = np.where(self.free < gpus - ROUNDING, self.at_s, math.inf)
        next_short = np.minimum.accumulate(short[::-1])[::-1]
        fits = next_short >= (self.at_s + run_s) * (1.0 - CLOSE)
        fits &= self._may_begin()
        return float(self.at_s[fits.argmax()]) if fits.any() else math.inf

    def take(self, at_s: float, run_s: float, gpus: float) -> tuple[Place, ...]:
        """Reserve GPUs for a run of `run_s` seconds from `at_s` on.

        Return on which nodes they are; without nodes the tuple is empty.
        """
        for t in (at_s, at_s + run_s):
            n = int(np.searchsorted(self.at_s, t))
            if n == len(self.at_s) or self.at_s[n] != t:
                self.at_s = np.insert(self.at_s, n, t)
                self.free = np.insert(self.free, n, self.free[n - 1], axis=0)
        if self.tried is not None:
            self.tried.add(at_s + run_s)
        return self._take((self.at_s >= at_s) & (self.at_s < at_s + run_s), gpus)

    def _take(self, rows: Bools, gpus: float) -> tuple[Place, ...]:
        self.free[rows] -= gpus
        return ()


class _FreeOnNodes(_FreeOverTime):
    """Free GPUs of each node (N,) of a pool over time; `free` is (n, N).

    A run is on as few nodes as `spread` says for its GPUs: of one node the smallest hole that holds
    it, of several the largest holes.
    """

    def __init__(
        self, free: Ints, end_s: Floats, used: Floats, number: Ints, spread: Callable[[int], int]
    ) -> None:
        self.at_s, which = np.unique(np.append(0.0, end_s), return_inverse=True)
        change = np.zeros((len(self.at_s), len(free)))
        np.add.at(change, which, np.vstack([free, used]))
        self.free = np.cumsum(change, axis=0)
        self.number, self.spread = number, spread

    def is_free_now(self, run_s: float, gpus: float) -> bool:
        return self._holds(0, run_s, gpus)

    def first(self, run_s: float, gpus: float) -> float:
        if run_s == math.inf:
            return math.inf
        for n, may_begin in enumerate(self._may_begin()):
            if may_begin and self._holds(n, self.at_s[n] + run_s, gpus):
                return float(self.at_s[n])
        return math.inf

    def _holds(self, begin: int, until_s: float, gpus: float) -> bool:
        end = max(begin + 1, int(np.searchsorted(self.at_s, until_s * (1.0 - CLOSE))))
        holes = self.free[begin:end].min(axis=0)
        most = min(self.spread(int(gpus)), len(holes))
        largest = holes.max() if most == 1 else np.partition(holes, -most)[-most:].sum()
        return bool(largest >= gpus)

    def _take(self, rows: Bools, gpus: float) -> tuple[Place, ...]:
        holes, left, places = self.free[rows].min(axis=0), int(gpus), []
        order = np.argsort(-holes, kind="stable")
        if self.spread(left) == 1:
            order = order[holes[order] >= left][::-1]
            order = np.sort(order[holes[order] == holes[order[0]]])
        for n in order.tolist():
            k = min(left, int(holes[n]))
            if k > 0:
                self.free[rows, n] -= k
                places.append((int(self.number[n]), k, -1))
                left -= k
        return tuple(places)


def _free_on_nodes(
    problem: Problem, p: int, spots: list[tuple[Place, ...]], end_s: Floats
) -> _FreeOnNodes:
    """Return the free GPUs of the nodes of a pool, of which runs (n,) keep theirs to their ends."""
    nodes = problem.nodes
    number = np.flatnonzero(nodes.pool == p)
    used = np.zeros((len(spots), len(nodes)))
    for row, spot in zip(used, spots, strict=True):
        for n, k, _ in spot:
            row[n] = k
    free = np.where(nodes.state == UP, nodes.gpus, 0) - used.sum(axis=0)
    per_node = int(problem.pools.gpus_per_node[p])
    return _FreeOnNodes(
        np.maximum(free, 0)[number], end_s, used[:, number], number, lambda k: -(-k // per_node)
    )


def _with_nodes(
    round_: CompiledRound, proposal: Proposal, on_nodes: Mapping[int, tuple[Place, ...]], at: Spots
) -> Proposal:
    """Return the proposal with the nodes that its jobs keep or start on, if all are right."""
    i, choice = round_.instance, proposal.choice
    columns = choice[choice >= 0]
    here = columns[round_.problem.has_nodes[i.pool[columns]]]
    if not len(here) or proposal.fallback:
        return proposal
    needs = NodeNeeds(round_.problem)
    holes = needs.holes()
    placed: Spots = {
        int(i.job[o]): (on_nodes if i.keep[o] else at).get(int(i.job[o]), ()) for o in here
    }
    for o in here[np.argsort(~i.keep[here], kind="stable")].tolist():
        places, need = placed[int(i.job[o])], round_.need_of(needs, o)
        suits = i.keep[o] or (holes.can_take(places, need) and holes.suits(places, need))
        if not places or not suits:
            return proposal
        holes.take(places, need)
    plan = PlacedPlan(
        as_placements(placed), float(i.value[columns].sum()), 0, 0, np.zeros(0, dtype=np.int64)
    )
    return replace(proposal, placed=plan)
