"""What the audit works on: problem, allocation, repairs, and the masks that several checks need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.audit.nodes import NodeChecker
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.performance.colocated_speed import colocated_speeds, find_footprints, isolate
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.lost_time import choose_modes
from allocator.performance.table import RateTable
from allocator.valuation import Offer


@dataclass(frozen=True)
class AuditContext:
    """Arrays have one entry per job, shape (J,), unless stated otherwise.

    `every` has all ways of the jobs to hold GPUs alone.
    """

    problem: Problem
    allocation: Allocation
    repairs: Repairs
    every: Offer

    @property
    def table(self) -> RateTable:
        """The speeds of the problem."""
        return RateTable.of(self.problem)

    @cached_property
    def has_gpus(self) -> Bools:
        """True where the plan gives the job GPUs of a pool that exists."""
        a = self.allocation
        has_gpus: Bools = (a.pool >= 0) & (a.pool < len(self.problem.pools)) & (a.gpus > 0)
        return has_gpus

    @cached_property
    def pool(self) -> Ints:
        """Pool of the plan where `has_gpus`, else 0 (a safe index where there are pools)."""
        return np.where(self.has_gpus, self.allocation.pool, 0)

    @cached_property
    def gpus(self) -> Ints:
        """GPUs of the plan where `has_gpus`, else 0."""
        return np.where(self.has_gpus, self.allocation.gpus, 0)

    @cached_property
    def running(self) -> Bools:
        running: Bools = self.problem.jobs.state == State.RUNNING
        return running

    @cached_property
    def is_kept(self) -> Bools:
        """True where the plan gives a running job the GPUs it runs on.

        A secondary job keeps its GPUs next to the same jobs. It also keeps them if the two of a
        pair change roles, or if it holds those of a primary job that leaves.
        """
        jobs = self.problem.jobs
        is_kept: Bools = (
            self.has_gpus & self.running & (jobs.pool == self.pool) & (jobs.gpus == self.gpus)
        )
        is_kept &= self.nodes.on_same_nodes & ~self.nodes.must_leave
        before = jobs.secondary
        h, g = self.pairs
        resized = (jobs.gpus[h] != self.gpus[h]) & (jobs.gpus[h] != jobs.gpus[g])
        is_kept[g[((before[h] != g) & (before[g] != h)) | resized]] = False
        # a primary job that it leaves may still hold those GPUs
        holds = (
            self.has_gpus & ~self.is_secondary & (self.pool == jobs.pool) & (self.gpus == jobs.gpus)
        )
        for j in np.flatnonzero((before >= 0) & holds).tolist():
            is_kept[before[j]] &= bool(((h == j) & (g == before[j])).any())
        return is_kept

    @cached_property
    def nodes(self) -> NodeChecker:
        """Says where jobs were and are on nodes."""
        return NodeChecker(self.problem, self.allocation)

    @cached_property
    def is_secondary(self) -> Bools:
        """True where the job runs on the GPUs of another job in the plan."""
        primary = self.allocation.primary
        is_secondary: Bools = self.has_gpus & (primary >= 0) & (primary < len(primary))
        return is_secondary

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Primary jobs of the plan, and the secondary job of each, (k,) each."""
        if self.allocation.shared_by is None:
            g = np.flatnonzero(self.is_secondary)
            return self.allocation.primary[g], g
        second = self.allocation.shared_by
        h = np.flatnonzero((second >= 0) & (second < len(second)))
        h = h[self.has_gpus[second[h]]]
        return h, second[h]

    @cached_property
    def primaries_of(self) -> dict[int, list[int]]:
        """The primary jobs of each secondary job of the plan."""
        primaries: dict[int, list[int]] = {}
        for h, g in zip(*(jobs.tolist() for jobs in self.pairs), strict=True):
            primaries.setdefault(g, []).append(h)
        return primaries

    def has_several(self, g: int) -> bool:
        """Return whether secondary job g has several primary jobs, or GPUs besides theirs."""
        primaries = self.primaries_of[g]
        return len(primaries) > 1 or bool(self.gpus[primaries[0]] < self.gpus[g])

    @cached_property
    def is_colocated(self) -> Bools:
        """True where the plan gives the job GPUs together with another job."""
        is_colocated = np.zeros(len(self.has_gpus), dtype=bool)
        for jobs in self.pairs:
            is_colocated[jobs] = True
        return is_colocated & self.has_gpus

    @cached_property
    def held(self) -> Ints:
        """GPUs of the plan that the job holds itself; those of a pair count once."""
        held = self.gpus.copy()
        for g, primaries in self.primaries_of.items():
            held[g] = max(0, held[g] - int(self.gpus[primaries].sum()))
        return held

    @cached_property
    def pair_slowdowns(self) -> tuple[Floats, Floats]:
        """Slowdowns of the primary and the secondary job of each pair, (k,) each, nan = unknown."""
        h, g = self.pairs
        model, kind = self.problem.jobs.model, self.problem.pools.gpu_type[self.pool[g]]
        known = MeasuredSlowdowns.of(self.problem)
        slow = known.slowdown(model[h], model[g], kind, self.gpus[h])
        return isolate(self.problem, h, g, self.pool[g], *slow)

    @cached_property
    def pair_ways(self) -> tuple[Floats, Floats]:
        """Of the primary jobs of the pairs, then of the secondary jobs, in the ways of their rows
        of the plan: work per second alone, and GB of each GPU, (2 k,) each, nan = no such way.
        """
        h, g = self.pairs
        job, pool = np.append(h, g), np.tile(self.pool[g], 2)
        model, memory_gb = self.problem.jobs.model[job], self.problem.jobs.memory_gb[job]
        gpus = self.gpus[job]
        usual, row = self.table.rate_in_pools(self.problem.pools, model, pool, gpus)
        ways = find_footprints(self.problem, model, pool, gpus, usual, row, memory_gb)
        of = np.repeat(np.arange(len(job)), np.diff(ways.start))
        same = np.flatnonzero((ways.row == self.allocation.row[job][of]) & (ways.rate > 0))[::-1]
        alone, need = np.full(len(job), np.nan), np.full(len(job), np.nan)
        alone[of[same]], need[of[same]] = ways.rate[same], ways.memory_gb[same]
        return alone, need

    @cached_property
    def unit(self) -> Ints:
        """The job that stands for each job: two jobs on the same GPUs need them once.

        A running secondary job that could continue with its primary job is represented by the
        primary job. Several primary jobs of one that could continue are represented by it, which
        runs on all of their GPUs. Every other job is represented by itself.
        """
        jobs = self.problem.jobs
        unit = np.arange(len(self.problem.jobs))
        primary = np.flatnonzero(jobs.secondary >= 0)
        second = jobs.secondary[primary]
        goes_on = self.can_be_kept[primary]
        goes_on &= colocated_speeds(
            self.problem,
            primary,
            second,
            jobs.pool[second],
            jobs.gpus[primary],
            gpus_secondary=jobs.gpus[second],
        ).possible
        for g in np.unique(second[self.can_be_kept[second]]).tolist():
            primaries = primary[second == g]
            if not goes_on[second == g].all():
                continue
            if len(primaries) > 1 or jobs.held[g] > 0:
                unit[primaries] = g
            else:
                unit[g] = primaries[0]
        return unit

    @cached_property
    def rate(self) -> Floats:
        """Work per second of the plan; 0 where the job gets nothing, nan where no rate is known."""
        return self._rate_and_row[0]

    @cached_property
    def row(self) -> Ints:
        """Row of rates.csv that the rate comes from; -1 without one, or for nothing."""
        return self._rate_and_row[1]

    @cached_property
    def pace(self) -> Floats:
        """Share of the speed of rates.csv that stragglers leave, in the mode of each job."""
        pace = np.ones(len(self.problem.jobs))
        j = np.flatnonzero(self.has_gpus)
        pace[j] = choose_modes(self.problem, j, self.pool[j], self.gpus[j]).pace
        return pace

    @cached_property
    def _rate_and_row(self) -> tuple[Floats, Ints]:
        jobs = self.problem.jobs
        pools = self.problem.pools
        rate = np.zeros(len(jobs))
        row = np.full(len(jobs), -1)
        j = np.flatnonzero(self.has_gpus)
        pool = self.pool[j]
        rate[j], row[j] = self.table.rate_in_pools(
            pools, jobs.model[j], pool, self.gpus[j], self.is_kept[j], self.nodes.given_on[j]
        )
        rate[j] *= self.pace[j]
        h, g = self.pairs
        if not len(h):
            return rate, row
        known = self.has_gpus[h]
        speed = self.pair_ways[0] / np.concatenate(self.pair_slowdowns)
        rate[h[known]], rate[g[known]] = speed[: len(h)][known], np.inf
        # the slowest of its GPUs sets the speed of a job
        with np.errstate(invalid="ignore"):
            np.minimum.at(rate, g[known], speed[len(h) :][known])
        return rate, row

    @cached_property
    def can_be_kept(self) -> Bools:
        """True for a running job with a known rate whose pool is still large enough."""
        jobs = self.problem.jobs
        pools = self.problem.pools
        out = np.zeros(len(jobs), dtype=bool)
        j = np.flatnonzero(self.running)
        rate, _ = self.table.rate(
            jobs.model[j],
            pools.gpu_type[jobs.pool[j]],
            jobs.gpus[j],
            nodes=self.nodes.held_on[j],
        )
        out[j] = (rate > 0) & (jobs.gpus[j] <= pools.gpus[jobs.pool[j]])
        return out & ~self.nodes.must_leave

    @cached_property
    def is_barred(self) -> Bools:
        """True where the job is held by its owner, or waits for a job in the snapshot."""
        jobs = self.problem.jobs
        is_barred: Bools = jobs.state == State.HELD
        if any(jobs.after):
            here = set(jobs.job_id)
            waits = np.array([any(name in here for name in names) for names in jobs.after])
            is_barred = is_barred | (waits & ~self.running)
        return is_barred

    @cached_property
    def frozen(self) -> Bools:
        """True for a running job that may not be moved or resized.

        It is not preemptible, or has no changes left.
        """
        jobs = self.problem.jobs
        frozen: Bools = self.running & (~jobs.preemptible | (jobs.resizes_left == 0))
        return frozen

    @cached_property
    def types(self) -> Bools:
        """(J, T) GPU types that the job may use."""
        jobs = self.problem.jobs
        n = len(self.problem.gpu_types)
        out = np.ones((len(jobs), n), dtype=bool)
        named = np.flatnonzero(jobs.gpu_types >= 0)
        if len(named):
            out[named] = np.array(self.problem.type_sets).reshape(-1, n)[jobs.gpu_types[named]]
        return out

    def name(self, j: int) -> str:
        return f'job "{self.problem.jobs.job_id[j]}"'

    def planned(self, j: int) -> str:
        """Describe what the plan gives job j."""
        return (
            describe_gpus(self.problem, int(self.pool[j]), int(self.gpus[j]))
            if self.has_gpus[j]
            else "nothing"
        )

    def holds(self, j: int) -> str:
        """Describe what running job j holds."""
        jobs = self.problem.jobs
        return describe_gpus(self.problem, int(jobs.pool[j]), int(jobs.gpus[j]))


def describe_gpus(problem: Problem, pool: int, gpus: int) -> str:
    """Describe a number of GPUs of a pool, given by its index, for a fault."""
    return f'{gpus} GPUs of pool "{problem.pools.pool[pool]}"'


def exceeds(total: float, limit: float) -> bool:
    """Return whether a sum exceeds its limit by more than its rounding, 1e-9 relative."""
    return total > limit + 1e-9 * max(1.0, abs(limit))
