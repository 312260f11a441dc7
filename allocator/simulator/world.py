"""The simulated cluster: jobs that run, finish and fail between decisions, machines that come and go.

Jobs do not influence each other between two decisions (GPUs that become free stay idle until the next one), so a
stretch of time without outside changes is one vectorised step, exact to the rounding of floats:

    work done  = true rate x (end - ready_s)                      ready_s: when the pause of the last change is over
    completion = ready_s + remaining at the last change / true rate
    failure    = when the GPU-hours held reach the next strike (exponential, chance.py); the job falls back to its last
                 checkpoint: the last change of its allocation, or the last multiple of checkpoint_every_s since then

A job whose machines vanish falls back in the same way; an asynchronous one keeps the others (revocations.py). GPUs held
during a pause are held: they count and they cost. Writing checkpoints takes checkpoint_s of every
checkpoint_every_s + checkpoint_s seconds, spread evenly: the true rate is so much lower.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Market
from allocator.domain.workload import Workload
from allocator.performance.pauses import restart_s
from allocator.performance.table import RateTable
from allocator.simulator import chance
from allocator.simulator.options import Options
from allocator.simulator.revocations import HOUR, Spot

DONE = 1e-9             # of the total work: less than that left is rounding, not work


class World:
    """State at the time `now`. Arrays have one entry per job of the workload, (N,), unless stated otherwise.

    active: numbers of the jobs submitted and not done, ascending. pool -1, gpus 0, rate 0: holds nothing. since_s: when
    it got what it holds. starts: how often it got an allocation. received (N, T) seconds by type. capacity, price (P,).
    event_s: when the first of its servers dies or is replaced, inf without spot servers; revocations: servers lost;
    cycle_s: seconds from a checkpoint to the next, nan = none. rented (Q,): dollars for GPUs that are not reserved.
    log: capacity and price (P,) since when.
    left, from_s: remaining work when what a job holds or its speed changed last, and since when it works on it;
    had_gpu_s, had_s: attained, and received of the type it holds, when it got what it holds. All four count from
    there, not from one stretch to the next, so that rounding does not depend on how many rounds there were.
    spans: who held what and when, as columns (job, pool, gpus, from_s, to_s) of one array per step.
    """

    def __init__(self, workload: Workload, options: Options) -> None:
        problem, n = workload.problem, len(workload.problem.jobs)
        self.workload, self.options = workload, options
        self.now = problem.now_s
        self.arrived = self.changed = 0
        self.active: Ints = np.zeros(0, dtype=np.int64)
        self.remaining: Floats = problem.jobs.total_work.copy()
        self.pool: Ints = np.full(n, -1)
        self.gpus: Ints = np.zeros(n, dtype=np.int64)
        self.rate, self.ready_s, self.since_s = np.zeros(n), np.zeros(n), np.zeros(n)
        self.left, self.from_s, self.had_gpu_s, self.had_s = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
        self.started_s: Floats = np.full(n, np.nan)
        self.finished_s: Floats = np.full(n, np.nan)
        self.starts: Ints = np.zeros(n, dtype=np.int64)
        self.failures: Ints = np.zeros(n, dtype=np.int64)
        self.largest: Ints = np.zeros(n, dtype=np.int64)
        self.resizes_left: Ints = problem.jobs.resizes_left.copy()
        self.attained, self.dollars = np.zeros(n), np.zeros(n)
        self.received: Floats = np.zeros((n, len(problem.gpu_types)))
        self.capacity: Ints = problem.pools.gpus.copy()
        self.price: Floats = problem.pools.price_per_gpu_hour.copy()
        self.event_s: Floats = np.full(n, np.inf)
        self.cycle_s: Floats = np.full(n, np.nan)
        self.revocations: Ints = np.zeros(n, dtype=np.int64)
        self.rented: Floats = np.zeros(len(problem.tenants))
        self.log: list[tuple[float, Ints, Floats]] = [(self.now, self.capacity.copy(), self.price.copy())]
        self._spot = Spot(workload, options)
        self._rents: Bools = problem.pools.market != Market.RESERVED
        self._rents_any = bool(self._rents.any())
        self._least_billed = bool((problem.pools.min_billing_s > 0).any())
        self.spans: list[Floats] = []
        self._table = RateTable.of(problem)
        self.strike: Floats = self._strikes(np.arange(n))
        self.advance(self.now)

    @property
    def over(self) -> bool:
        """Nothing is there and nothing more will come."""
        return not len(self.active) and self.arrived == len(self.remaining)

    def next_arrival(self) -> float:
        """Time of the next submission, inf if there is none."""
        submitted = self.workload.problem.jobs.submitted_s
        return float(submitted[self.arrived]) if self.arrived < len(submitted) else np.inf

    def next_change(self) -> float:
        """Time of the next change of capacity or price, inf if there is none."""
        at = self.workload.changes.at_s
        return float(at[self.changed]) if self.changed < len(at) else np.inf

    def next_completion(self) -> float:
        """When the first of the running jobs will be done if nothing happens to it, inf if none runs."""
        r = self.active[self.pool[self.active] >= 0]
        return float((self.from_s[r] + self.left[r] / self.rate[r]).min(initial=np.inf))

    def advance(self, to: float) -> None:
        """Let time pass until `to`."""
        while True:
            event, zone = self._spot.event()
            end = min(to, max(self.now, min(self.next_change(), event)))
            if end > self.now:
                self._run(self.now, end)
                self.now = end
            if event <= self.now:
                self._strike(zone)
            elif self.next_change() <= self.now:
                self._change()
            else:
                break
        self._arrive()

    def give(self, jobs: Ints, pool: Ints, gpus: Ints) -> int:
        """Let the jobs hold these GPUs from now on (pool -1: nothing); returns how many change. Jobs that are done
        meanwhile are left alone, and what the pools cannot hold any more is taken back from the last to start."""
        here = np.isnan(self.finished_s[jobs]) & ((self.pool[jobs] != pool) | (self.gpus[jobs] != gpus))
        jobs, pool, gpus = jobs[here], pool[here], gpus[here]
        running, starts, before = self.pool[jobs] >= 0, pool >= 0, self.gpus[jobs]
        self._release(jobs[running], np.full(int(running.sum()), self.now))
        j, p, k, again = jobs[starts], pool[starts], gpus[starts], running[starts]
        attributes = self.workload.problem.jobs
        self._hold(j, p, k)
        restart = np.where(again, restart_s(self.workload.problem, j, p, k, before[starts]), 0.0)
        self.ready_s[j] = self.now + self._startup(j, p) + restart
        self.cycle_s[j], working = self._checkpoints(j, p, k)
        self.rate[j] = self._true_rate(j, p, k) * working
        for i in np.flatnonzero(self._spot.revocable[p]).tolist():
            one = int(j[i])
            up = self._spot.start(one, int(p[i]), int(k[i]), self.now, float(self.rate[one])).up_s
            self.ready_s[one] = (up.max() if attributes.synchronous[one] else up.min()) + restart[i]
            self._follow(one, self.now)
        self._count(j, self.now)
        self.started_s[j] = np.where(np.isnan(self.started_s[j]), self.now, self.started_s[j])
        self.starts[j] += 1
        self.largest[j] = np.maximum(self.largest[j], k)
        self.resizes_left[j] = np.where(again & (self.resizes_left[j] > 0), self.resizes_left[j] - 1,
                                        self.resizes_left[j])
        self._evict()
        return len(jobs)

    def used(self) -> Ints:
        """GPUs held in each pool, (P,)."""
        r = self.active[self.pool[self.active] >= 0]
        return np.bincount(self.pool[r], self.gpus[r], minlength=len(self.capacity)).astype(np.int64)

    def _hold(self, jobs: Ints, pool: Ints, gpus: Ints) -> None:
        """The jobs, which hold nothing, hold this from now on."""
        self.pool[jobs], self.gpus[jobs], self.since_s[jobs] = pool, gpus, self.now
        self.had_gpu_s[jobs] = self.attained[jobs]
        self.had_s[jobs] = self.received[jobs, self.workload.problem.pools.gpu_type[pool]]

    def _count(self, jobs: Ints, at: float) -> None:
        """Count work from here, after a change of speed or remaining work."""
        self.left[jobs], self.from_s[jobs] = self.remaining[jobs], np.maximum(at, self.ready_s[jobs])

    def _run(self, begin: float, end: float) -> None:
        """A stretch of time in which nothing happens but work, completions, failures and deaths of servers."""
        r = self.active[self.pool[self.active] >= 0]
        if not len(r):
            return
        struck = self._stretch(r, np.full(len(r), begin), end)
        while len(struck):
            at = self.event_s[struck]
            for j, t in zip(struck.tolist(), at.tolist(), strict=True):
                self._lose(j, self._spot.due(j, t), t)
            struck = self._stretch(struck, at, end)
        over = ~np.isnan(self.finished_s[r])
        if over.any():
            self.active = self.active[np.isnan(self.finished_s[self.active])]

    def _stretch(self, r: Ints, begin: Floats, end: float) -> Ints:
        """The running jobs r, each from its own begin until it is done or fails, or its servers change, at the latest
        to the end; returns the jobs whose servers change."""
        k, p = self.gpus[r], self.pool[r]
        finish = self.from_s[r] + self.left[r] / self.rate[r]
        fail = begin + (self.strike[r] - self.attained[r] / HOUR) * HOUR / k
        last = np.minimum(np.minimum(finish, np.maximum(fail, begin)), end)
        loses = len(self._spot.servers) > 0
        if loses:
            last = np.minimum(last, self.event_s[r])
        held = last - begin
        self.remaining[r] = self.left[r] - self.rate[r] * np.maximum(0.0, last - self.from_s[r])
        since = last - self.since_s[r]
        self.attained[r] = self.had_gpu_s[r] + since * k
        self._pay(r, p, held * k * self.price[p] / HOUR)
        self.received[r, self.workload.problem.pools.gpu_type[p]] = self.had_s[r] + since
        done = (finish <= last) | (self.remaining[r] <= DONE * self.workload.problem.jobs.total_work[r])
        self.remaining[r[done]] = 0.0
        self.finished_s[r[done]] = last[done]
        failed = ~done & (fail <= last)
        self._fall_back(r[failed], last[failed])
        self.failures[r[failed]] += 1
        self.strike[r[failed]] = self._strikes(r[failed])
        gone = done | failed
        self._release(r[gone], last[gone])
        return r[~gone & (self.event_s[r] <= last)] if loses else r[:0]

    def _lose(self, job: int, lost: Bools, at: float) -> None:
        """Servers of a job change: the lost ones (k,) are replaced, others may have come up."""
        servers, attributes = self._spot.servers[job], self.workload.problem.jobs
        pool = int(self.pool[job])
        if lost.any():
            self.revocations[job] += int(lost.sum())
            self._spot.replace(job, pool, lost, at)
        up, one = servers.up_s, np.array([job])
        if not attributes.synchronous[job]:
            if not (up <= at).any():                # nothing until the first of them is back
                self.ready_s[job] = max(self.ready_s[job], up.min())
        elif lost.any():
            self._fall_back(one, np.array([at]))
            self.ready_s[job] = max(self.ready_s[job], up.max() + attributes.restart_s[job])
        self._follow(job, at)
        self._count(one, at)

    def _follow(self, job: int, at: float) -> None:
        """Speed of a job with the servers that it has, and when these change next. Synchronous ones wait for all."""
        servers = self._spot.servers[job]
        self.event_s[job] = servers.dies_s.min()
        if not self.workload.problem.jobs.synchronous[job]:
            first = max(at, servers.up_s.min())
            self.rate[job] = servers.rate * np.mean(servers.up_s <= first)
            later = servers.up_s[servers.up_s > first]
            self.event_s[job] = min(self.event_s[job], later.min(initial=np.inf))

    def _strike(self, zone: int) -> None:
        """A common event takes servers of a zone."""
        r = self.active[self.pool[self.active] >= 0]
        for j, lost in self._spot.strike(zone, r, self.pool[r], self.now):
            self._lose(j, lost, self.now)

    def _arrive(self) -> None:
        submitted = self.workload.problem.jobs.submitted_s
        first, self.arrived = self.arrived, int(np.searchsorted(submitted, self.now, side="right"))
        if self.arrived > first:
            self.active = np.concatenate([self.active, np.arange(first, self.arrived)])

    def _change(self) -> None:
        """The next row of the workload's changes."""
        c, i = self.workload.changes, self.changed
        self.changed += 1
        p = int(c.pool[i])
        if not np.isnan(c.price_per_gpu_hour[i]):
            self.price[p] = c.price_per_gpu_hour[i]
        if c.gpus[i] >= 0:
            self.capacity[p] = c.gpus[i]
        self.log.append((self.now, self.capacity.copy(), self.price.copy()))
        if c.gpus[i] >= 0:
            self._evict()

    def _evict(self) -> None:
        """Jobs lose what their pool does not have any more: the last to start first, or at random (Options.victims). Of
        an asynchronous job the GPUs that are left work on, where its speed on so many is known."""
        problem, o = self.workload.problem, self.options
        for p in np.flatnonzero(self.used() > self.capacity).tolist():
            here = self.active[self.pool[self.active] == p]
            key = self.since_s[here] if o.victims == "youngest" else \
                chance.uniform(o.seed, chance.VICTIM, here, self.changed)
            order = here[np.lexsort((here, key))]
            held = np.cumsum(self.gpus[order])
            lost = order[held > self.capacity[p]]
            if len(lost) and self._shrinks(lost[:1], self.gpus[lost[:1]] - held[held > self.capacity[p]][:1]
                                           + self.capacity[p]):
                lost = lost[1:]
            now = np.full(len(lost), self.now)
            spot = problem.pools.market[p] == Market.SPOT
            self.revocations[lost] += self.gpus[lost] if spot else 0
            self._fall_back(lost, now)
            self._release(lost, now)

    def _shrinks(self, job: Ints, gpus: Ints) -> bool:
        """Whether a job (1,) goes on with fewer GPUs (1,), without a pause; if so, it does."""
        pool, ready, attributes = self.pool[job], self.ready_s[job], self.workload.problem.jobs
        if attributes.synchronous[job[0]] or gpus[0] < attributes.min_gpus[job[0]]:
            return False
        rate = self._true_rate(job, pool, gpus)
        if not rate[0] > 0:
            return False
        if self.workload.problem.pools.market[pool[0]] == Market.SPOT:
            self.revocations[job] += self.gpus[job] - gpus
        kept = self._spot.servers.get(int(job[0]))
        self._release(job, np.full(1, self.now))
        self._hold(job, pool, gpus)
        self.ready_s[job] = np.maximum(ready, self.now)
        self.cycle_s[job], working = self._checkpoints(job, pool, gpus)
        self.rate[job] = rate * working
        if kept is not None:
            self._spot.keep(int(job[0]), kept, int(gpus[0]), float(self.rate[job[0]]))
            self._follow(int(job[0]), self.now)
        self._count(job, self.now)
        return True

    def _startup(self, jobs: Ints, pool: Ints) -> Floats:
        """Seconds until what the jobs begin to hold is there."""
        o = self.options
        return self.workload.problem.pools.startup_s[pool] * chance.lognormal(
            o.startup_spread, o.seed, chance.STARTUP, jobs, -1 - self.starts[jobs])

    def _checkpoints(self, jobs: Ints, pool: Ints, gpus: Ints) -> tuple[Floats, Floats]:
        """Seconds from one checkpoint to the next (nan = none), and the share of them in which the job works.

        Young (CACM 17, 1974) and Daly (FGCS 22, 2006): the best interval is sqrt(2 x cost / rate of failures).
        """
        attributes = self.workload.problem.jobs
        every, cost = attributes.checkpoint_every_s[jobs], attributes.checkpoint_s[jobs]
        hazard = self._spot.hazard[pool] * gpus
        if self.options.checkpoints == "young-daly":
            chosen = (hazard > 0) & (cost > 0)
            every = np.where(chosen, np.sqrt(2 * cost * HOUR / np.where(chosen, hazard, 1.0)), every)
        return every + cost, np.where(np.isnan(every), 1.0, every / (every + cost))

    def _fall_back(self, jobs: Ints, at: Floats) -> None:
        """Work since the last checkpoint is lost."""
        worked, cycle = np.maximum(0.0, at - self.ready_s[jobs]), self.cycle_s[jobs]
        with np.errstate(invalid="ignore"):
            lost_s = np.where(np.isnan(cycle), worked, worked % cycle)
        total = self.workload.problem.jobs.total_work[jobs]
        self.remaining[jobs] = np.minimum(self.remaining[jobs] + self.rate[jobs] * lost_s, total)

    def _release(self, jobs: Ints, at: Floats) -> None:
        if len(jobs):
            self.spans.append(np.column_stack([jobs, self.pool[jobs], self.gpus[jobs], self.since_s[jobs], at]))
            if self._least_billed:
                self._bill_least(jobs, at)
            if self._spot.servers:
                self.event_s[jobs] = np.inf
                for j in jobs.tolist():
                    self._spot.stop(j)
        self.pool[jobs], self.gpus[jobs], self.rate[jobs] = -1, 0, 0.0

    def _bill_least(self, jobs: Ints, at: Floats) -> None:
        """What was held for less than the pool's shortest time is billed for that."""
        pool = self.pool[jobs]
        short = np.maximum(0.0, self.workload.problem.pools.min_billing_s[pool] - (at - self.since_s[jobs]))
        self._pay(jobs, pool, short * self.gpus[jobs] * self.price[pool] / HOUR)

    def _pay(self, jobs: Ints, pool: Ints, dollars: Floats) -> None:
        self.dollars[jobs] += dollars
        if self._rents_any:
            tenant = self.workload.problem.jobs.tenant[jobs]
            np.add.at(self.rented, tenant, np.where(self._rents[pool], dollars, 0.0))

    def _true_rate(self, jobs: Ints, pool: Ints, gpus: Ints) -> Floats:
        """What the policy believes times how wrong it is about this job and type, times noise of this start."""
        problem, o = self.workload.problem, self.options
        kind = problem.pools.gpu_type[pool]
        rate, _ = self._table.rate(problem.jobs.model[jobs], kind, gpus, problem.pools.memory_gb[pool])
        types = len(problem.gpu_types)
        wrong = chance.lognormal(o.misjudged, o.seed, chance.MISJUDGED, jobs * types + kind)
        noise = chance.lognormal(o.noise, o.seed, chance.NOISE, jobs, self.starts[jobs])
        return np.asarray(rate * wrong * noise, dtype=np.float64)

    def _strikes(self, jobs: Ints) -> Floats:
        """GPU-hours held in all at which each of the jobs fails next, inf where nothing fails."""
        per_hour = self.options.failures_per_gpu_hour
        if per_hour <= 0:
            return np.full(len(jobs), np.inf)
        wait = chance.exponential(self.options.seed, chance.FAILURE, jobs, self.failures[jobs]) / per_hour
        return np.asarray(self.attained[jobs] / HOUR + wait, dtype=np.float64)
