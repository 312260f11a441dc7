"""The simulated cluster: jobs run, finish and fail between decisions, machines come and go.

Between two decisions only jobs on the same GPUs influence each other: GPUs that become free stay
idle until the next decision. So a period in which no colocation ends and nothing outside changes is
one vectorised step, exact up to the rounding of floats:

    work done  = true rate x (end - ready_s)
    completion = ready_s + remaining work at the last change / true rate
    failure    = when the GPU-hours held reach the next strike

ready_s is the end of the pause of the last change. Strikes are exponential (random_numbers.py). A
job that fails falls back to its last checkpoint: the last change of its allocation, or the last
multiple of checkpoint_every_s since then.

A job whose machines vanish falls back in the same way; an asynchronous job keeps the machines that
are left (revocations.py). GPUs held during a pause count and cost like any others (holdings.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.domain.cluster import find_phases, next_begin
from allocator.domain.problem import Bools, Floats, Ints, Market
from allocator.domain.workload import Workload
from allocator.loop.gpu_places import find_groups, find_unmoved_in_groups
from allocator.performance.lost_time import restart_s
from allocator.simulator import random_numbers
from allocator.simulator.holdings import Holdings
from allocator.simulator.nodes import DOWN
from allocator.simulator.options import SimulationOptions
from allocator.simulator.revocations import HOUR
from formulations.placement.holes import Place
from formulations.transient.synchronisation import enough_up_s

JobPlaces = Mapping[int, tuple[Place, ...]]
NOWHERE: JobPlaces = {}
DONE = 1e-9  # share of the total work: less remaining work than that is due to rounding


class World(Holdings):
    """The holdings of jobs, in which time passes up to `now`."""

    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        super().__init__(workload, options)
        self._has_phases = len(find_phases(workload.problem.models)) > 0
        self.advance(self.now)

    @property
    def is_over(self) -> bool:
        """Whether no job is open and none will come."""
        return not len(self.active) and self.arrived == len(self.remaining)

    def next_arrival(self) -> float:
        """Return the time of the next submission, inf if there is none."""
        submitted = self.problem.jobs.submitted_s
        return float(submitted[self.arrived]) if self.arrived < len(submitted) else np.inf

    def next_change(self) -> float:
        """Return the time of the next change of capacity, price or node, inf if there is none."""
        return min(self._next_row_s(), self.nodes.next_event_s)

    def next_return(self) -> float:
        """Return the time of the next change that may bring GPUs back, inf if there is none."""
        until_s = self.problem.reservations.until_s
        kept_s = float(until_s[until_s > self.now].min(initial=np.inf))
        return min(self._next_row_s(), self.nodes.next_return(), kept_s)

    def _next_row_s(self) -> float:
        """Return the time of the next change of capacity or price, inf if there is none."""
        at = self.workload.changes.at_s
        return float(at[self.changed]) if self.changed < len(at) else np.inf

    @property
    def running(self) -> Ints:
        """Numbers of the jobs that hold GPUs, or run on those of others."""
        return self.active[self.pool[self.active] >= 0]

    def _ends_s(self, jobs: Ints) -> Floats:
        """Return when running jobs will be done at their present speed, (n,)."""
        ends: Floats = self.from_s[jobs] + self.left[jobs] / self.rate[jobs]
        return ends

    def next_completion(self) -> float:
        """Return when the first running job will be done if no job is changed, inf if none runs."""
        return float(self._ends_s(self.running).min(initial=np.inf))

    def next_phase_s(self) -> float:
        """Return when a running job first enters a phase of its training, inf if none does."""
        if not self._has_phases:
            return np.inf
        problem = self.problem
        r = self.running
        begins = next_begin(problem.models, problem.jobs.model[r], self.share_done(r))
        work = self.left[r] - (1.0 - begins) * problem.jobs.total_work[r]
        enters_s = self.from_s[r] + np.maximum(0.0, work) / self.rate[r]
        return float(enters_s[begins < 1.0].min(initial=np.inf))

    def _next_pair_end(self) -> float:
        """Return when a colocated job first is done, fails or loses servers, inf without one."""
        r = self.active[self._others(self.active) >= 0]
        if not len(r):
            return np.inf
        finish = self._ends_s(r)
        return float(
            min(finish.min(), self._failure_times(r, self.now).min(), self.event_s[r].min())
        )

    def advance(self, to: float) -> None:
        """Let time pass until `to`."""
        while True:
            next_event, zone = self._spot.next_event()
            parting = min(self._next_pair_end(), self.next_phase_s())
            end = min(to, max(self.now, min(self.next_change(), next_event, parting)))
            if end > self.now or parting <= self.now:
                self._run_jobs(self.now, end)
                self.now = end
                if self._has_phases:
                    self.follow_training()
            if next_event <= self.now:
                r = self._holders()
                for j, lost in self._spot.strike(zone, r, self.pool[r], self.now):
                    self._lose_servers(j, lost, self.now)
            elif self.next_change() <= self.now:
                self._apply_next_change()
            elif self.now >= to:
                break
        first = self.arrived
        self.arrived = int(np.searchsorted(self.problem.jobs.submitted_s, self.now, side="right"))
        self.active = np.append(self.active, np.arange(first, self.arrived))

    def follow_training(self) -> None:
        """Give running jobs the speed that they have at this point of their training."""
        self._update_rates(self.running, self.now)

    def is_moved(
        self, jobs: Ints, pool: Ints, gpus: Ints, secondary: Ints, places: JobPlaces
    ) -> Bools:
        """Return which jobs would not stay on the same GPUs if they had this allocation, (n,).

        Parameters are those of `apply_allocation`.
        """
        other: Bools = (self.pool[jobs] != pool) | (self.gpus[jobs] != gpus)
        if places:
            other |= self._changes_nodes(jobs, places)
        if not ((secondary >= 0).any() or (self.primary[jobs] >= 0).any()):
            return other
        holder = np.where(self.primary[jobs] < 0, jobs, self.primary[jobs])
        primary = np.full(len(jobs), -1)
        h = np.flatnonzero(secondary >= 0)[::-1]  # the first of several comes last
        primary[np.searchsorted(jobs, secondary[h])] = jobs[h]
        groups = find_groups(jobs, self.gpus[jobs], self.secondary[jobs])
        groups |= find_groups(jobs, gpus, secondary)
        return ~find_unmoved_in_groups(
            jobs, ~other, primary, holder, secondary, self.secondary[jobs], groups
        )

    def _changes_nodes(self, jobs: Ints, places: JobPlaces) -> Bools:
        """Return which jobs run on other nodes than these, (n,)."""
        return np.array([self.places.get(j) != places.get(j) for j in jobs.tolist()], bool)

    def apply_allocation(
        self,
        jobs: Ints,
        pool: Ints,
        gpus: Ints,
        secondary: Ints | None = None,
        places: JobPlaces = NOWHERE,
    ) -> int:
        """Give the jobs this allocation from now on, and return how many change.

        Jobs that are done by now are left alone. What the pools cannot hold any more is taken back,
        from the last jobs to start first.

        Parameters
        ----------
        jobs, pool, gpus : (n,)
            The jobs, with pool (-1: nothing) and number of GPUs.
        secondary : (n,), optional
            The secondary jobs that run on their GPUs (-1: none).
        places : mapping of int to places, optional
            The nodes of each job that gets GPUs of a pool with nodes.

        Returns
        -------
        int
            The number of jobs that change.
        """
        here = np.isnan(self.finished_s[jobs])
        secondary = (np.full(len(jobs), -1) if secondary is None else secondary)[here]
        jobs = jobs[here]
        pool = pool[here]
        gpus = gpus[here]
        secondary = np.where(np.isnan(self.finished_s[secondary]), secondary, -1)
        secondaries, primaries = secondary[secondary >= 0], jobs[secondary >= 0]
        is_moved = self.is_moved(jobs, pool, gpus, secondary, places)
        planned = jobs
        jobs = jobs[is_moved]
        pool = pool[is_moved]
        gpus = gpus[is_moved]
        running = self.pool[jobs] >= 0
        starts = pool >= 0
        before = self.gpus[jobs]
        if places:
            same = running & (self.pool[jobs] == pool) & (before == gpus)
            elsewhere = jobs[same][self._changes_nodes(jobs[same], places)]
            np.add.at(self.moves, self.pool[elsewhere], 1)
        self._release(jobs[running], np.full(int(running.sum()), self.now))
        self.memory_gb[planned] = self.planned_gb[planned]
        j = jobs[starts]
        p = pool[starts]
        k = gpus[starts]
        is_restart = running[starts]
        self._start_holding(j, p, k, places)
        restart = np.where(is_restart, restart_s(self.problem, j, p, k, before[starts]), 0.0)
        self.ready_s[j] = self.now + self.ground_truth.startup_s(j, p, self.starts[j]) + restart
        colocation_changed = self._colocate(secondaries, primaries)
        self.rate[j] = self._true_rate(j)
        for i in np.flatnonzero(self._spot.revocable[p] & (self.primary[j] < 0)).tolist():
            job = int(j[i])
            # servers that were handed over by a secondary job are up already
            if job not in self._spot.servers:
                self._spot.start(job, int(p[i]), int(k[i]), self.now)
                self.ready_s[job] = self._up_s(job, job) + restart[i]
                for second in self._colocation(job)[1:].tolist():
                    self.ready_s[second] = max(self.ready_s[second], self._up_s(job, second))
            self._follow_servers(job, self.now)
        self._count_work_from(j, self.now)
        if len(colocation_changed):
            self._update_rates(colocation_changed[~np.isin(colocation_changed, j)], self.now)
        self.started_s[j] = np.where(np.isnan(self.started_s[j]), self.now, self.started_s[j])
        self.starts[j] += 1
        self.largest[j] = np.maximum(self.largest[j], k)
        self.resizes_left[j] = np.where(
            is_restart & (self.resizes_left[j] > 0), self.resizes_left[j] - 1, self.resizes_left[j]
        )
        self._evict_jobs()
        if places:
            self._evict_from_nodes()
        return len(jobs)

    def _run_jobs(self, begin: float, end: float) -> None:
        """Let jobs work from begin to end; some may finish or fail, and servers may die."""
        r = self.running
        if not len(r):
            return
        struck = self._run_until_event(r, np.full(len(r), begin), end)
        while len(struck):
            at = self.event_s[struck]
            for j, t in zip(struck.tolist(), at.tolist(), strict=True):
                self._lose_servers(j, self._spot.servers[j].dies_s <= t, t)
            struck = self._run_until_event(struck, at, end)
        is_over = ~np.isnan(self.finished_s[r])
        if is_over.any():
            self.active = self.active[np.isnan(self.finished_s[self.active])]

    def _run_until_event(self, r: Ints, begin: Floats, end: float) -> Ints:
        """Let the running jobs r work, each from its own begin until it ends or its servers change.

        A job ends when it is done or fails. All stop at `end` at the latest. Returns the jobs whose
        servers change.
        """
        k = self.gpus[r]
        p = self.pool[r]
        finish = self._ends_s(r)
        fail = self._failure_times(r, begin)
        last = np.minimum(np.minimum(finish, np.maximum(fail, begin)), end)
        loses = len(self._spot.servers) > 0
        if loses:
            last = np.minimum(last, self.event_s[r])
        held_s = last - begin
        self.remaining[r] = self.left[r] - self.rate[r] * np.maximum(0.0, last - self.from_s[r])
        since = last - self.since_s[r]
        own = self.own[r]
        self.attained[r] = self.had_gpu_s[r] + since * own * self.problem.gpu_share(r, p)
        self.ran[r] = self.had_ran[r] + since * k
        self._add_dollars(r, p, held_s * own * self._gpu_price(r) / HOUR)
        self.received[r, self.problem.pools.gpu_type[p]] = self.had_s[r] + since
        done = (finish <= last) | (self.remaining[r] <= DONE * self.problem.jobs.total_work[r])
        self.remaining[r[done]] = 0.0
        self.finished_s[r[done]] = last[done]
        failed = ~done & (fail <= last)
        self._lose_unsaved_work(r[failed], last[failed])
        self.failures[r[failed]] += 1
        self.strike[r[failed]] = self.ground_truth.draw_failures(
            r[failed], self.ran[r[failed]], self.failures[r[failed]]
        )
        gone = done | failed
        self._release(r[gone], last[gone])
        return r[~gone & (self.event_s[r] <= last)] if loses else r[:0]

    def _lose_servers(self, job: int, lost: Bools, at: float) -> None:
        """Replace the lost servers (k,) of a job and its secondary job; others may have come up."""
        servers = self._spot.servers[job]
        attributes = self.problem.jobs
        if lost.any():
            self.revocations[job] += int(lost.sum())
            self._spot.replace(job, int(self.pool[job]), lost, at)
        up = servers.up_s
        colocation = self._colocation(job)
        for j in colocation.tolist():
            single = np.array([j])
            now = np.array([at])
            mode = self.modes[j]
            enough_s = enough_up_s(mode, up)
            if mode.kind == "asynchronous":
                if enough_s > at:  # no work until the first of them is back
                    self.ready_s[j] = max(self.ready_s[j], enough_s)
            elif lost.any() and (mode.kind == "bulk" or enough_s > at):
                self._lose_unsaved_work(single, now)
                self.ready_s[j] = max(self.ready_s[j], enough_s + attributes.restart_s[j])
            elif mode.has_spares:  # it goes on, at another speed
                self.unsaved_work[single] = self._unsaved_work(single, now)
                self.colocation_changed_s[j] = at
        self._follow_servers(job, at)
        self._count_work_from(colocation, at)

    def _apply_next_change(self) -> None:
        """Apply the next row of the workload's changes, or the next event of a node."""
        if self.nodes.next_event_s < self._next_row_s():
            self.nodes.apply_next_event(self.now)
            self.capacity = np.where(self.has_nodes, self.nodes.capacity(), self.capacity)
            self.log.append((self.now, self.capacity.copy(), self.price.copy()))
            self._evict_from_nodes()
            return
        c = self.workload.changes
        i = self.changed
        self.changed += 1
        p = int(c.pool[i])
        if not np.isnan(c.price_per_gpu_hour[i]):
            self.price[p] = c.price_per_gpu_hour[i]
        is_counted = c.gpus[i] >= 0 and not self.has_nodes[p]
        if is_counted:
            self.capacity[p] = c.gpus[i]
        self.log.append((self.now, self.capacity.copy(), self.price.copy()))
        if is_counted:
            self._evict_jobs()

    def _stop(self, jobs: Ints) -> None:
        """Take back the GPUs of jobs, which fall back to their last checkpoints."""
        now = np.full(len(jobs), self.now)
        self._lose_unsaved_work(jobs, now)
        self._release(jobs, now)

    def _evict_from_nodes(self) -> None:
        """Take back the GPUs of jobs, and of their secondary jobs, on nodes that are down.

        An asynchronous job goes on with its GPUs on other nodes if its speed on so many is known.
        """
        is_down = set(np.flatnonzero(self.nodes.state == DOWN).tolist())
        hit = [j for j, places in self.places.items() if is_down & {n for n, _, _ in places}]
        for j in sorted(j for j in hit if self.primary[j] < 0):
            left = tuple(place for place in self.places[j] if place[0] not in is_down)
            gpus = sum(k for _, k, _ in left)
            if left and self._try_shrink(np.array([j]), np.array([gpus]), {j: left}):
                continue
            self._stop(self._colocation(j))

    def _evict_jobs(self) -> None:
        """Take back what the pools do not have any more from jobs and their secondary jobs.

        The last jobs to start lose first, or random ones (SimulationOptions.victims). An
        asynchronous job goes on with the GPUs that are left if its speed on so many is known, and
        without its secondary job.
        """
        problem = self.problem
        o = self.options
        for p in np.flatnonzero((self.used_gpus() > self.capacity) & ~self.has_nodes).tolist():
            here = self._holders()
            here = here[self.pool[here] == p]
            key = (
                self.since_s[here]
                if o.victims == "youngest"
                else random_numbers.uniform(o.seed, random_numbers.VICTIM, here, self.changed)
            )
            order = here[np.lexsort((here, key))]
            held = np.cumsum(self.own[order])
            lost = order[held > self.capacity[p]]
            if len(lost) and self._try_shrink(
                lost[:1], self.gpus[lost[:1]] - held[held > self.capacity[p]][:1] + self.capacity[p]
            ):
                lost = lost[1:]
            spot = problem.pools.market[p] == Market.SPOT
            self.revocations[lost] += self.gpus[lost] if spot else 0
            lost = np.append(lost, np.setdiff1d(self.secondary[lost], [*lost.tolist(), -1]))
            self._stop(lost)

    def _try_shrink(self, job: Ints, gpus: Ints, places: JobPlaces = NOWHERE) -> bool:
        """Let a job (1,) go on with fewer GPUs (1,) without a pause; return whether it can."""
        pool = self.pool[job]
        ready = self.ready_s[job]
        attributes = self.problem.jobs
        if self.modes[int(job[0])].kind != "asynchronous" or gpus[0] < attributes.min_gpus[job[0]]:
            return False
        nodes = np.array([len(places.get(int(job[0]), ()))])
        if not self._rate_alone(job, pool, gpus, nodes)[0] > 0:
            return False
        secondary = self._colocation(int(job[0]))[1:]
        self._stop(secondary)
        if self.problem.pools.market[pool[0]] == Market.SPOT:
            self.revocations[job] += self.gpus[job] - gpus
        kept = self._spot.servers.get(int(job[0]))
        self._release(job, np.full(1, self.now))
        self._start_holding(job, pool, gpus, places)
        self.ready_s[job] = np.maximum(ready, self.now)
        self.rate[job] = self._true_rate(job)
        if kept is not None:
            self._spot.keep(int(job[0]), kept, int(gpus[0]))
            self._follow_servers(int(job[0]), self.now)
        self._count_work_from(job, self.now)
        return True
