"""SJF-FFS and SJF-BSBF where a job may join several jobs, and idle GPUs, as published.

The waiting jobs are served by the time they still need alone, the shortest first. A job takes
idle GPUs. Where these are too few, it joins jobs that run alone, the best first, until their GPUs
and the idle ones are as many as it wants; otherwise it waits. What the best is, the policy says
(policies/rules/sharing.py). The job takes all GPUs of a job that it joins; a job with more GPUs
than are still wanted is passed over. If this does not add up, a job of as many GPUs is joined.

Source: Luo et al., "Scheduling deep learning jobs in multi-tenant GPU clusters via wise resource
sharing", IWQoS 2024. There a job may also join some of the GPUs of another job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.colocation.several_primaries import (
    Group,
    Groups,
    can_share_with_several,
    groups_of_options,
)
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.performance.colocated_speed import colocated_speeds
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.rules.srtf import order_by_remaining_time
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    rank_options,
    run_steps,
    serve_first,
)
from formulations.model.linear import Bools, Floats, Ints

TURNS = 8  # a round is built again with the sets of jobs that the policy joins

Judge = Callable[[Ints, Floats, Floats, Floats, Floats], tuple[Bools, Floats]]
"""(primary jobs, seconds left of the secondary and of the primary job, their slowdowns), arrays
(n,), -> (whether the job joins, what it prefers: the smallest)."""


def serve_with_several(task: Task, judge: Judge) -> Proposal:
    """Serve waiting jobs on idle GPUs, or together with the jobs that `judge` prefers."""
    given = task
    for _ in range(TURNS):
        joins = _Joins(task.round, judge)
        proposal = run_steps(
            task, joins.steps, start=task.round.unchanged_choice(), guaranteed=False
        )
        if not joins.missing:
            break
        groups = groups_of_options(task.round.option_table)
        wider_round = compile_round(
            task.round.problem,
            False,
            PairOffer.ALL,
            groups=groups.join(Groups.of(task.round.problem, joins.missing)),
        ).without_new_spread()
        task = dataclasses.replace(task, round=wider_round, prices=None)
    if proposal.task is None and task is not given:
        return dataclasses.replace(proposal, task=task)
    return proposal


class _Joins:
    """One attempt to serve all jobs of a round.

    Attributes
    ----------
    missing : list of groups
        Sets of jobs that the attempt would have joined, had the round offered them.
    """

    def __init__(self, round_: CompiledRound, judge: Judge) -> None:
        self._round = round_
        i = round_.instance
        asked = options_at_requested_size(round_)
        asked = asked[i.primary[asked] < 0]
        self._order = order_by_remaining_time(round_, asked)
        self._preferred = rank_options(round_, asked)
        self._joinable = _find_joinable(round_, asked, judge)
        several: dict[int, list[tuple[int, int]]] = {}
        for o, h in zip(*(x.tolist() for x in i.colocations), strict=True):
            several.setdefault(o, []).append((int(i.job[h]), int(i.gpus[h])))
        self._columns = {
            (int(i.job[o]), int(i.pool[o]), int(i.gpus[o]), tuple(sorted(members))): o
            for o, members in several.items()
        }
        self.missing: list[Group] = []

    def steps(self, free_capacity: FreeCapacity) -> None:
        """Serve all jobs."""
        i = self._round.instance
        self.missing = []
        taken: set[int] = set()
        reserved = [0.0] * len(free_capacity.free)
        serve_first(free_capacity, self._order, self._preferred)
        for j in free_capacity.waiting(self._order):
            options = self._preferred[j]
            left = [f - r for f, r in zip(free_capacity.free, reserved, strict=True)]
            idle = [o for o in options if i.load[o] <= left[i.pool[o]]]
            if not free_capacity.assign_first(j, idle):
                any(self._join(free_capacity, j, o, taken, reserved) for o in options)

    def _join(
        self,
        free_capacity: FreeCapacity,
        j: int,
        o: int,
        taken: set[int],
        reserved: list[float],
    ) -> bool:
        """Let job j join others at the pool and size of option o; return whether it does."""
        i = self._round.instance
        pool, gpus = int(i.pool[o]), int(i.gpus[o])
        idle = max(0.0, free_capacity.free[pool] - reserved[pool])
        alone = [
            h
            for h in self._joinable.get(o, ())
            if free_capacity.choice[i.job[h]] == h
            and h not in taken
            and not free_capacity.has_secondary(h)
        ]
        members: list[int] = []
        left = gpus
        for h in alone:
            if left <= idle or len(members) == self._round.problem.max_primaries:
                break
            if i.gpus[h] <= left:
                members.append(h)
                left -= int(i.gpus[h])
        if not members or left > idle:
            members = [h for h in alone if i.gpus[h] == gpus][:1]
        if not members:
            return False
        key = tuple(sorted((int(i.job[h]), int(i.gpus[h])) for h in members))
        column = self._columns.get((j, pool, gpus, key))
        if column is None:
            self.missing.append((j, pool, gpus, key))
            reserved[pool] += gpus - sum(int(i.gpus[h]) for h in members)
        elif not free_capacity.assign(j, column):
            return False
        taken.update(members)
        return True


def _find_joinable(round_: CompiledRound, asked: Ints, judge: Judge) -> dict[int, list[int]]:
    """Return for each option of a waiting job the options it may join, the best first.

    `asked` are the options at the requested sizes.
    """
    i = round_.instance
    problem = round_.problem
    jobs = problem.jobs
    new = asked[jobs.pool[i.job[asked]] < 0]
    able = np.union1d(np.flatnonzero(i.keep & (i.primary < 0)), asked)
    h, g = (x.ravel() for x in np.meshgrid(able, new, indexing="ij"))
    several = can_share_with_several(problem, i.job, i.pool)
    fine = (i.pool[h] == i.pool[g]) & (i.gpus[h] <= i.gpus[g]) & (i.job[h] != i.job[g])
    fine &= (i.gpus[h] == i.gpus[g]) | (several[h] & several[g])
    h, g = h[fine], g[fine]
    speeds = colocated_speeds(
        problem, i.job[h], i.job[g], i.pool[h], i.gpus[h], gpus_secondary=i.gpus[g]
    )
    h, g, speeds = h[speeds.possible], g[speeds.possible], speeds.take(speeds.possible)
    rate = option_rates(round_)
    joins, key = judge(
        i.job[h],
        jobs.remaining_work[i.job[g]] / rate[g],
        jobs.remaining_work[i.job[h]] / rate[h],
        rate[g] / speeds.rate_secondary,
        rate[h] / speeds.rate_primary,
    )
    order = np.lexsort((h, key, g))
    order = order[joins[order]]
    joinable: dict[int, list[int]] = {}
    for o, other in zip(g[order].tolist(), h[order].tolist(), strict=True):
        joinable.setdefault(o, []).append(other)
    return joinable
