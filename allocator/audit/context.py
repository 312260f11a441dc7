"""What the audit works on: problem, allocation, repairs, and the masks that several checks need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.audit.colocation import PairChecker
from allocator.audit.nodes import NodeChecker
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Bools, Floats, Ints, Market, Problem, State
from allocator.domain.size_rule import EVERY_NODES, NODE_DIGITS
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.modes import choose_modes
from allocator.performance.table import RateTable


@dataclass(frozen=True)
class AuditContext:
    """Arrays have one entry per job, shape (J,), unless stated otherwise."""

    problem: Problem
    allocation: Allocation
    repairs: Repairs
    table: RateTable

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

    @cached_property
    def _ways(self) -> tuple[Ints, Ints, Ints, Floats, Ints]:
        """All options of all jobs, read independently of allocator/options.

        job, pool, gpus, rate and nodes of a spread shape (else 0), each (n,), by job.
        """
        jobs = self.problem.jobs
        pools = self.problem.pools
        everyone = np.arange(len(self.problem.jobs))
        found = [(j := everyone[self.can_be_kept], jobs.pool[j], jobs.gpus[j], self.held_shape[j])]
        free = everyone[~self.is_barred & ~self.frozen]
        for code in np.unique(jobs.sizes[free]).tolist():
            same = free[jobs.sizes[free] == code]
            for p in range(len(pools)):
                able = same[self.types[same, pools.gpu_type[p]]]
                most = np.minimum(
                    np.minimum(jobs.max_gpus[able], pools.gpus[p]),
                    self.table.largest[jobs.model[able]],
                )
                if pools.market[p] == Market.SPOT:
                    most = np.minimum(most, jobs.max_spot_gpus[able]).astype(np.int64)
                node = int(pools.gpus_per_node[p])
                top = int(most.max(initial=0))
                sizes = (
                    self.problem.size_lists[code]
                    if code >= 0
                    else np.array(_by_rule(node, top), dtype=np.int64)
                )
                first = np.searchsorted(sizes, jobs.min_gpus[able])
                count = np.maximum(0, np.searchsorted(sizes, most, side="right") - first)
                job = np.repeat(able, count)
                gpus = sizes[
                    np.arange(len(job)) + np.repeat(first - np.cumsum(count) + count, count)
                ]
                if code < 0 and top > EVERY_NODES * node:
                    more = self._named(able, p, most)
                    job, gpus = (np.append(a, b) for a, b in zip((job, gpus), more, strict=True))
                job, gpus, shape = self._add_shapes(p, job, gpus)
                new = ~self._holds(job, np.full(len(job), p), gpus, shape)
                new &= self.nodes.can_hold(job, p, gpus, shape)
                found.append((job[new], np.full(int(new.sum()), p), gpus[new], shape[new]))
        job, pool, gpus, shape = (np.concatenate(part) for part in zip(*found, strict=True))
        holds = self._holds(job, pool, gpus, shape)
        rate, _ = self.table.rate_in_pools(pools, jobs.model[job], pool, gpus, holds, shape)
        rate *= choose_modes(self.problem, job, pool, gpus).pace
        rigid = self.table.is_assumed(jobs.model[job], pools.gpu_type[pool], gpus)
        rigid &= (gpus != jobs.requested_gpus[job]) & ~holds
        order = np.flatnonzero((rate > 0) & ~rigid)
        order = order[np.argsort(job[order], kind="stable")]
        return job[order], pool[order], gpus[order], rate[order], shape[order]

    @cached_property
    def held_shape(self) -> Ints:
        """The number of nodes of the spread shape that each running job holds, (J,), else 0."""
        jobs = self.problem.jobs
        nodes = self.nodes
        out = np.zeros(len(jobs), dtype=np.int64)
        for j in np.flatnonzero((nodes.held_on > 0) & (jobs.primary < 0)).tolist():
            if nodes.held_on[j] in nodes.shapes_of(j, int(jobs.pool[j]), int(jobs.gpus[j])):
                out[j] = nodes.held_on[j]
        return out

    def _holds(self, job: Ints, pool: Ints, gpus: Ints, shape: Ints) -> Bools:
        """Find the options (n,) that running jobs hold and can keep, (n,)."""
        jobs = self.problem.jobs
        same: Bools = (jobs.pool[job] == pool) & (jobs.gpus[job] == gpus)
        return np.asarray(self.can_be_kept[job] & same & (self.held_shape[job] == shape))

    def _add_shapes(self, pool: int, job: Ints, gpus: Ints) -> tuple[Ints, Ints, Ints]:
        """Return sizes of a pool with those spread shapes of them that their jobs may have.

        They are job, gpus and number of nodes, (n,) each.
        """
        if not self.nodes.shapes or not self.problem.has_nodes[pool]:
            return job, gpus, np.zeros(len(job), dtype=np.int64)
        jobs = self.problem.jobs
        per_node = self.problem.pools.gpus_per_node[pool]
        unknown = self.nodes.is_unknown & (jobs.pool == pool)
        found = []
        for j, k in zip(job.tolist(), gpus.tolist(), strict=True):
            known = self.nodes.shapes_of(j, pool, k)
            fewest = math.ceil(k / per_node)
            found.append((j, k, fewest if fewest in known else 0))
            # whether a job of unknown nodes would change its shape is not known
            if jobs.placement[j] != "packed" and not (unknown[j] and jobs.gpus[j] == k):
                found += [(j, k, m) for m in sorted(known) if m > fewest]
        job, gpus, shape = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return job, gpus, shape

    def _named(self, able: Ints, pool: int, most: Ints) -> tuple[Ints, Ints]:
        """List (job, gpus) of sizes in whole nodes that the rule omits but that are available.

        The job names such a size itself, or its model was measured at it.
        """
        jobs = self.problem.jobs
        pools = self.problem.pools
        rates = self.problem.rates
        node = int(pools.gpus_per_node[pool])
        measured = {}
        of_type = rates.gpu_type == pools.gpu_type[pool]
        for m in np.unique(jobs.model[able]).tolist():
            measured[m] = set(rates.gpus[of_type & (rates.model == m)].tolist())
        found = [
            (j, k)
            for j, top in zip(able.tolist(), most.tolist(), strict=True)
            for low, high, asked in [
                (int(n[j]) for n in (jobs.min_gpus, jobs.max_gpus, jobs.requested_gpus))
            ]
            for k in {low + -low % node, high - high % node, asked, *measured[jobs.model[j]]}
            if low <= k <= top and k % node == 0 and _is_passed_over(k // node)
        ]
        job, gpus = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return job, gpus

    def options(self, chosen: Ints | None = None) -> tuple[Ints, Ints, Ints, Floats]:
        """Return job, pool, gpus and rate of all options of the chosen jobs, each (n,).

        `chosen` None: of all jobs. Options are in the order of jobs.
        """
        job, pool, gpus, rate, _ = self._ways
        if chosen is None:
            return job, pool, gpus, rate
        asked = np.zeros(len(self.problem.jobs), dtype=bool)
        asked[chosen] = True
        of = asked[job]
        return job[of], pool[of], gpus[of], rate[of]

    @property
    def is_held_option(self) -> Bools:
        """Whether each option of `options` is what its job holds, (n,)."""
        job, pool, gpus, _, shape = self._ways
        same = (self.problem.jobs.pool[job] == pool) & (self.problem.jobs.gpus[job] == gpus)
        return np.asarray(self.running[job] & same & (self.held_shape[job] == shape))

    @property
    def has_options(self) -> Bools:
        """(J,) the job has an option, whatever the plan gives it."""
        return np.bincount(self._ways[0], minlength=len(self.problem.jobs)) > 0

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


def _is_passed_over(nodes: int) -> bool:
    """Return whether a job whose sizes follow the rule is not offered that many nodes."""
    return nodes > EVERY_NODES and nodes.bit_length() - (nodes & -nodes).bit_length() >= NODE_DIGITS


def _by_rule(node: int, top: int) -> list[int]:
    """List the sizes of the rule up to `top`: powers of two in a node, then whole nodes."""
    sizes = {1 << i for i in range(node.bit_length())}
    nodes = 1
    while nodes * node <= top:
        sizes.add(nodes * node)
        nodes += 1 << max(0, nodes.bit_length() - NODE_DIGITS) if nodes >= EVERY_NODES else 1
    return sorted(sizes)


def describe_gpus(problem: Problem, pool: int, gpus: int) -> str:
    """Describe a number of GPUs of a pool, given by its index, for a fault."""
    return f'{gpus} GPUs of pool "{problem.pools.pool[pool]}"'


def exceeds(total: float, limit: float) -> bool:
    """Return whether a sum exceeds its limit by more than its rounding, 1e-9 relative."""
    return total > limit + 1e-9 * max(1.0, abs(limit))
