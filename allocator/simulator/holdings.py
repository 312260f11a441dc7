"""The GPUs that the jobs of a simulated cluster hold, their cost, and the speeds of the jobs.

Of two jobs on the same GPUs, the primary job holds the GPUs and pays, and the secondary job runs on
them. When one of them ends, the other one goes on alone at once, without a pause, and holds the
GPUs. GPUs, GPU-seconds and dollars of two colocated jobs count once.

A job writes a checkpoint for checkpoint_s seconds after every checkpoint_every_s seconds of work.
The simulation does not stop the job for it, but lowers its true rate by the share of this time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from allocator.domain.cluster import present_models
from allocator.domain.problem import Bools, Floats, Ints, Market
from allocator.domain.workload import Workload
from allocator.performance.colocated_speed import speeds_with_several
from allocator.performance.lost_time import choose_modes
from allocator.performance.table import RateTable
from allocator.simulator.ground_truth import GroundTruth
from allocator.simulator.nodes import SimulatedNodes
from allocator.simulator.options import SimulationOptions
from allocator.simulator.revocations import HOUR, SpotServers
from formulations.placement.holes import Place
from formulations.transient.synchronisation import Mode, enough_up_s, pace_at_work

ROUNDING = 1e-6  # GPUs by which a sum of shares may be wrong


class Holdings:
    """The GPUs that each job holds at the time `now`, and the work that it has done so far.

    Arrays have one entry for every job of the workload, (N,), unless another shape is given.

    Attributes
    ----------
    active : (A,)
        Numbers of the jobs that are submitted and not done, ascending.
    pool, gpus, rate
        What a job holds and its work per second; -1, 0 and 0 where it holds nothing.
    secondary
        Of a primary job, its secondary job, -1 = none.
    primary
        The job on whose GPUs a secondary job runs, the first of several, -1 = it holds its GPUs
        itself.
    own
        GPUs that a job holds itself: all, but those of its primary jobs.
    primaries_of_span
        The primary jobs of a secondary job since a time.
    since_s, starts
        When a job got what it holds, and how often it got an allocation.
    received : (N, T)
        Seconds on each GPU type.
    attained, ran
        GPU-seconds on GPUs that the job held itself, and GPU-seconds on all GPUs that it ran on,
        those of its primary jobs included.
    left, from_s
        Remaining work when the allocation or the speed changed last, and when work on it began.
    had_gpu_s, had_ran, had_s
        `attained`, `ran` and the seconds of the GPU type when a job got what it holds. Work and
        seconds count from there, not from one step to the next, so that rounding does not depend
        on the number of rounds.
    speed_error
        True rate divided by believed rate, since the last start.
    unsaved_work, colocation_changed_s
        Work since the last checkpoint when the colocated job changed last, and when that was.
    event_s, revocations
        When the first server of a job dies or is replaced (inf without spot servers), and how
        many servers it lost.
    cycle_s
        Seconds from a checkpoint to the next, nan = none.
    planned_gb, memory_gb
        GB of each GPU that a job needs by the last plan, and by the plan in force; 0 where the pool
        has no price for it.
    capacity, price : (P,)
        GPUs and dollars per GPU-hour of the pools, without memory. `log` has their earlier values
        and times.
    places
        By job: the nodes where it runs, if its pool has nodes.
    modes
        By job: how its workers are kept in step, where it holds something or did.
    moves : (P,)
        How often a running job moved to other nodes of its pool.
    rented : (Q,)
        Dollars of each tenant for GPUs that are not reserved.
    spans
        Who held what and when: one array for every step, with the columns job, pool, gpus, from_s,
        to_s, primary job, dollars per hour for the memory of each GPU.
    place_spans
        The same for jobs on nodes: job, primary job, from_s, to_s, places.
    """

    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        self.problem = problem = workload.problem
        n = len(problem.jobs)
        self.workload = workload
        self.options = options
        self.now = problem.now_s
        self.arrived = self.changed = 0
        self.active: Ints = np.zeros(0, np.int64)
        self.remaining: Floats = problem.jobs.total_work.copy()
        self.pool, self.primary, self.secondary = np.full((3, n), -1)
        self.gpus, self.own, self.starts, self.failures, self.revocations, self.largest = np.zeros(
            (6, n), np.int64
        )
        self.rate, self.ready_s, self.since_s, self.left, self.from_s = np.zeros((5, n))
        self.attained, self.ran, self.had_gpu_s, self.had_ran, self.had_s = np.zeros((5, n))
        self.planned_gb, self.memory_gb, self.unsaved_work, self.dollars = np.zeros((4, n))
        self.started_s, self.finished_s, self.cycle_s = np.full((3, n), np.nan)
        self.speed_error: Floats = np.ones(n)
        self.colocation_changed_s: Floats = np.full(n, -np.inf)
        self.event_s: Floats = np.full(n, np.inf)
        self.resizes_left: Ints = problem.jobs.resizes_left.copy()
        self.primaries_of_span: dict[tuple[int, float], tuple[int, ...]] = {}
        self.received: Floats = np.zeros((n, len(problem.gpu_types)))
        self.nodes, self.has_nodes = SimulatedNodes(workload, options), problem.has_nodes
        self.places: dict[int, tuple[Place, ...]] = {}
        self.modes: dict[int, Mode] = {}
        self.moves: Ints = np.zeros(len(problem.pools), np.int64)
        self.place_spans: list[tuple[int, int, float, float, tuple[Place, ...]]] = []
        self.capacity: Ints = np.where(
            self.has_nodes, self.nodes.capacity(), problem.pools.gpus
        ).astype(np.int64)
        self.price: Floats = problem.pools.price_per_gpu_hour.copy()
        self.rented: Floats = np.zeros(len(problem.tenants))
        self.log: list[tuple[float, Ints, Floats]] = [
            (self.now, self.capacity.copy(), self.price.copy())
        ]
        self._spot = SpotServers(workload, options)
        self._rents: Bools = problem.pools.market != Market.RESERVED
        self.spans: list[Floats] = []
        self.ground_truth = GroundTruth(problem, options, self._spot.hazard)
        self.strike: Floats = self.ground_truth.draw_failures(np.arange(n), self.ran, self.failures)

    def used_gpus(self) -> Ints:
        """GPUs held in each pool, (P,); shares of GPUs are added up, and the sum is rounded up."""
        r = self._holders()
        held = np.bincount(
            self.pool[r],
            self.own[r] * self.problem.gpu_share(r, self.pool[r]),
            minlength=len(self.capacity),
        )
        used: Ints = np.ceil(held - ROUNDING).astype(np.int64)
        return used

    def _holders(self) -> Ints:
        """Return the jobs that hold GPUs themselves."""
        return self.active[(self.pool[self.active] >= 0) & (self.own[self.active] > 0)]

    def _start_holding(
        self, jobs: Ints, pool: Ints, gpus: Ints, places: Mapping[int, tuple[Place, ...]]
    ) -> None:
        """Let jobs that hold nothing hold these GPUs, at their `places`, from now on."""
        self.pool[jobs], self.gpus[jobs], self.own[jobs] = pool, gpus, gpus
        if places:
            self.places.update({j: places[j] for j in jobs.tolist() if j in places})
        chosen = choose_modes(self.problem, jobs, self.pool[jobs], self.gpus[jobs])
        for j, k in zip(jobs.tolist(), chosen.which.tolist(), strict=True):
            self.modes[j] = chosen.modes[k]
        self.cycle_s[jobs], working = self.ground_truth.checkpoints(jobs, pool, gpus)
        error = self.ground_truth.speed_error(jobs, pool, self.starts[jobs])
        self.speed_error[jobs] = error * working
        self.unsaved_work[jobs], self.colocation_changed_s[jobs] = 0.0, -np.inf
        self._open_books(jobs, self.now)

    def _open_books(self, jobs: Ints, at: Floats | float) -> None:
        """Begin to count what the jobs hold, or run on."""
        self.since_s[jobs], self.had_gpu_s[jobs], self.had_ran[jobs] = (
            at,
            self.attained[jobs],
            self.ran[jobs],
        )
        self.had_s[jobs] = self.received[jobs, self.problem.pools.gpu_type[self.pool[jobs]]]

    def _close_books(self, jobs: Ints, at: Floats) -> None:
        """End the span of what the jobs hold, or run on."""
        for g in jobs[self.primary[jobs] >= 0].tolist():
            self.primaries_of_span[g, float(self.since_s[g])] = tuple(self.primaries(g).tolist())
        self.spans.append(self.open_spans(jobs, at))
        if self.places:
            self.place_spans += self.spans_on_nodes(jobs, at)

    def open_spans(self, jobs: Ints, at: Floats | float) -> Floats:
        """Return the spans of what the jobs hold, or run on, as if they ended now, (n, 7)."""
        until = np.broadcast_to(at, jobs.shape)
        columns = [jobs, self.pool[jobs], self.gpus[jobs], self.since_s[jobs], until]
        memory_price = self.problem.pools.price_per_gb_hour[self.pool[jobs]]
        return np.column_stack(
            [*columns, self.primary[jobs], memory_price * self.memory_gb[jobs]]
        ).astype(np.float64)

    def spans_on_nodes(
        self, jobs: Ints, at: Floats
    ) -> Iterator[tuple[int, int, float, float, tuple[Place, ...]]]:
        """Yield (job, primary job, from_s, to_s, places) of those that run on nodes."""
        columns = (jobs, self.primary[jobs], self.since_s[jobs], at)
        for j, primary, since, until in zip(*(c.tolist() for c in columns), strict=True):
            if j in self.places:
                yield j, primary, since, until, self.places[j]

    def _colocate(self, secondaries: Ints, primaries: Ints) -> Ints:
        """Let secondary jobs (n,) run on the GPUs of their primary jobs (n,).

        Returns the jobs whose colocated job, or whose role, is another one than before.
        """
        new = np.flatnonzero(self.secondary[primaries] != secondaries)
        for g, h in zip(secondaries[new].tolist(), primaries[new].tolist(), strict=True):
            both = np.array([g, h])
            self._close_books(both, np.full(2, self.now))
            self.secondary[both] = (-1, g)
            self.own[both] = (self.own[g] - self.gpus[h], self.gpus[h])
            self.primary[both] = (self.primaries(g)[0], -1)
            self._open_books(both, self.now)
            self._spot.hand_over(g, h)
            self.event_s[g] = np.inf
            if h in self._spot.servers:
                self.ready_s[g] = max(self.ready_s[g], self._up_s(h, g))
        return np.concatenate([secondaries[new], primaries[new]])

    def primaries(self, g: int) -> Ints:
        """Return the primary jobs of a secondary job."""
        return np.flatnonzero(self.secondary == g)

    @property
    def colocated_job(self) -> Ints:
        """The other job on the same GPUs, the first of several, -1 = none."""
        return np.where(self.secondary >= 0, self.secondary, self.primary)

    def _others(self, jobs: Ints) -> Ints:
        """Return the colocated jobs of some jobs, (n,)."""
        second = self.secondary[jobs]
        return np.where(second >= 0, second, self.primary[jobs])

    def _part(self, jobs: Ints, at: Floats) -> None:
        """Let the others go on without colocated jobs that leave.

        A secondary job holds the GPUs that its primary jobs leave.
        """
        ends = dict(zip(jobs.tolist(), at.tolist(), strict=True))
        changed: dict[int, float] = {}
        for j, end_s in ends.items():
            g = int(self.secondary[j])
            for h in self.primaries(j).tolist():
                self.secondary[h] = -1
                changed |= {} if h in ends else {h: end_s}
            if g >= 0 and g not in ends:
                self._close_books(np.array([g]), np.array([end_s]))
                self.own[g] += self.gpus[j]
                self.secondary[j] = -1
                self.primary[g] = next(iter(self.primaries(g).tolist()), -1)
                self._open_books(np.array([g]), end_s)
                changed[g] = end_s
        self.primary[jobs] = self.secondary[jobs] = -1
        for j, end_s in changed.items():
            self._update_rates(np.array([j]), end_s)

    def _release(self, jobs: Ints, at: Floats) -> None:
        """End what the jobs hold, or run on; colocated jobs not among them go on alone."""
        if len(jobs):
            second = self.secondary[jobs]
            stays = (second >= 0) & ~np.isin(second, jobs)
            self._close_books(jobs, at)
            ends = (self.own[jobs] > 0) & ~stays
            self._bill_minimum(jobs[ends], at[ends])
            for j, g in (
                zip(jobs.tolist(), np.where(stays, second, -1).tolist(), strict=True)
                if self._spot.servers
                else ()
            ):
                self._spot.hand_over(j, g) if g >= 0 else self._spot.stop(j)
            self.event_s[jobs] = np.inf
            shares = self._others(jobs) >= 0
            if shares.any():
                self._part(jobs[shares], at[shares])
        self.pool[jobs], self.gpus[jobs], self.own[jobs], self.rate[jobs] = -1, 0, 0, 0.0
        if self.places:
            for j in jobs.tolist():
                self.places.pop(j, None)

    def _bill_minimum(self, jobs: Ints, at: Floats) -> None:
        """Bill the missing time of what was held for less than min_billing_s of the pool."""
        pool = self.pool[jobs]
        short = np.maximum(0.0, self.problem.pools.min_billing_s[pool] - (at - self.since_s[jobs]))
        self._add_dollars(jobs, pool, short * self.own[jobs] * self._gpu_price(jobs) / HOUR)

    def _gpu_price(self, jobs: Ints) -> Floats:
        """Return the dollars per hour of each GPU that the jobs hold, (n,)."""
        per_gb = self.problem.pools.price_per_gb_hour[self.pool[jobs]]
        price: Floats = self.price[self.pool[jobs]] + per_gb * self.memory_gb[jobs]
        return price

    def _add_dollars(self, jobs: Ints, pool: Ints, dollars: Floats) -> None:
        self.dollars[jobs] += dollars
        tenant = self.problem.jobs.tenant[jobs]
        np.add.at(self.rented, tenant, np.where(self._rents[pool], dollars, 0.0))

    def _update_rates(self, jobs: Ints, at: Floats | float) -> None:
        """Give running jobs the speed that they have with their colocated jobs from now on."""
        if not len(jobs):
            return
        self.unsaved_work[jobs], self.colocation_changed_s[jobs] = (
            self._unsaved_work(jobs, np.broadcast_to(at, jobs.shape)),
            at,
        )
        self.rate[jobs] = self._true_rate(jobs)
        for j in [
            j
            for j in np.where(self.primary[jobs] < 0, jobs, self.primary[jobs]).tolist()
            if j in self._spot.servers
        ]:
            self._follow_servers(j, float(np.max(at)))
        self._count_work_from(jobs, at)

    def _count_work_from(self, jobs: Ints, at: Floats | float) -> None:
        """Count work from this time on, after a change of speed or remaining work."""
        self.left[jobs], self.from_s[jobs] = (
            self.remaining[jobs],
            np.maximum(at, self.ready_s[jobs]),
        )

    def _follow_servers(self, job: int, at: float) -> None:
        """Update the speed of a job and its secondary job, and when their servers change next.

        A job stands still until enough servers for its mode are up.
        """
        up = self._spot.servers[job].up_s
        colocation = self._colocation(job)
        self.event_s[job] = self._spot.servers[job].dies_s.min()
        for j in colocation.tolist():
            mode = self.modes[j]
            pool = self.pool[j]
            if mode.kind == "bulk":
                continue
            at_work = up <= max(at, enough_up_s(mode, up))
            variation = float(self.problem.pools.straggler_cv[pool])
            share = pace_at_work(mode, variation, at_work)
            self.rate[j] = self._true_rate(np.array([j]))[0] * share
            self.event_s[job] = min(self.event_s[job], up[~at_work].min(initial=np.inf))

    def _up_s(self, holder: int, job: int) -> float:
        """Return when a job can begin on the servers of `holder`.

        That is when enough for its mode are up.
        """
        return enough_up_s(self.modes[job], self._spot.servers[holder].up_s)

    def _colocation(self, job: int) -> Ints:
        """Return the job, and its colocated job if it has one."""
        both = np.array([job, *self._others(np.array([job]))])
        return both[both >= 0]

    def _failure_times(self, jobs: Ints, begin: Floats | float) -> Floats:
        """Return when the running jobs fail, as of `begin`, (n,)."""
        return np.asarray(
            begin + (self.strike[jobs] - self.ran[jobs] / HOUR) * HOUR / self.gpus[jobs]
        )

    def count_nodes(self, jobs: Ints) -> Ints:
        """Return on how many nodes the jobs are, (n,), 0 in pools without nodes."""
        places = [self.places.get(j, ()) for j in jobs.tolist()] if self.places else []
        counts = [len({n for n, _, _ in spot}) for spot in places]
        return np.array(counts or np.zeros(len(jobs)), np.int64)

    def share_done(self, jobs: Ints) -> Floats:
        """Return the share of its work that each job has done, (n,)."""
        total = self.problem.jobs.total_work[jobs]
        return 1.0 - self.remaining[jobs] / total

    def present_models(self, jobs: Ints) -> Ints:
        """Return the model of each job in its present phase, (n,)."""
        problem = self.problem
        return present_models(problem.models, problem.jobs.model[jobs], self.share_done(jobs))

    def _rate_alone(self, jobs: Ints, pool: Ints, gpus: Ints, nodes: Ints) -> Floats:
        """Return the believed rates of jobs that are alone on GPUs of so many nodes, (n,)."""
        problem, model = self.problem, self.present_models(jobs)
        rate, _ = RateTable.of(problem).rate_in_pools(problem.pools, model, pool, gpus, nodes=nodes)
        return rate * choose_modes(problem, jobs, pool, gpus).pace

    def _true_rate(self, jobs: Ints) -> Floats:
        """Return the true rates of running jobs: the believed rate times its error, (n,)."""
        rate = self._rate_alone(jobs, self.pool[jobs], self.gpus[jobs], self.count_nodes(jobs))
        shares = self._others(jobs) >= 0
        if shares.any():
            rate[shares] = self._rates_of_colocated(jobs[shares])
        growth = self.ground_truth.growth(self.gpus[jobs], self.share_done(jobs))
        return rate * self.speed_error[jobs] * growth

    def _rates_of_colocated(self, jobs: Ints) -> Floats:
        """Return the rates that the policy believes of colocated jobs, (n,)."""
        second = np.unique(np.where(self.secondary[jobs] >= 0, self.secondary[jobs], jobs))
        h = np.flatnonzero(np.isin(self.secondary, second))
        h = h[np.argsort(self.secondary[h], kind="stable")]
        g = self.secondary[h]
        group = np.searchsorted(second, g)
        speeds = speeds_with_several(
            self.problem, group, h, g, self.pool[h], self.gpus[h], self.gpus[g]
        )
        rate = np.zeros(len(self.rate))
        rate[h], rate[second] = speeds.pairs.rate_primary, speeds.rate
        return rate[jobs]

    def _unsaved_work(self, jobs: Ints, at: Floats) -> Floats:
        """Return the work that running jobs have done since their last checkpoint, (n,)."""
        ready, turned, cycle, rate = (
            x[jobs] for x in (self.ready_s, self.colocation_changed_s, self.cycle_s, self.rate)
        )
        worked = np.maximum(0.0, at - ready)
        with np.errstate(invalid="ignore"):
            lost_s = np.where(np.isnan(cycle), worked, worked % cycle)
            since = rate * (at - np.maximum(turned, ready))
        return np.where(at - lost_s < turned, self.unsaved_work[jobs] + since, rate * lost_s)

    def _lose_unsaved_work(self, jobs: Ints, at: Floats) -> None:
        """Take back the work of the jobs since their last checkpoint."""
        if not len(jobs):
            return
        total = self.problem.jobs.total_work[jobs]
        self.remaining[jobs] = np.minimum(
            self.remaining[jobs] + self._unsaved_work(jobs, at), total
        )
        self.unsaved_work[jobs] = 0.0
