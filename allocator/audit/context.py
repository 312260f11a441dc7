"""What the audit works on: problem, allocation, repairs, and the masks that several checks need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.audit.colocation import PairChecker
from allocator.audit.nodes import NodeChecker
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.modes import choose_modes
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
        found: dict[int, list[int]] = {}
        for h, g in zip(*(jobs.tolist() for jobs in self.pairs), strict=True):
            found.setdefault(g, []).append(h)
        return found

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
    def pair_checker(self) -> PairChecker:
        """Says which pairs can share GPUs."""
        return PairChecker(self.problem, self.table, MeasuredSlowdowns.of(self.problem))

    @cached_property
    def unit(self) -> Ints:
        """The job that stands for each job: two jobs on the same GPUs need them once.

        A running secondary job that could continue with its primary job is represented by the
        primary job. Several primary jobs of one that could continue are represented by it, which
        runs on all of their GPUs. Every other job is represented by itself.
        """
        jobs = self.problem.jobs
        unit = np.arange(len(self.problem.jobs))
        for g in np.flatnonzero(self.can_be_kept & (jobs.primary >= 0)).tolist():
            primaries = np.flatnonzero(jobs.secondary == g).tolist()
            if not all(
                self.can_be_kept[h]
                and self.pair_checker.can_share(
                    h, g, int(jobs.pool[g]), int(jobs.gpus[h]), int(jobs.gpus[g])
                )
                for h in primaries
            ):
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
        for g, primaries in self.primaries_of.items():
            for n, h in enumerate(h for h in primaries if self.has_gpus[h]):
                rows = int(self.allocation.row[h]), int(self.allocation.row[g])
                rate[h], together = self.pair_checker.speeds(
                    (h, g), rows, int(self.pool[g]), int(self.gpus[h]), int(self.gpus[g])
                )
                # the slowest of its GPUs sets the speed of a job
                rate[g] = together if n == 0 else np.minimum(rate[g], together)
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
