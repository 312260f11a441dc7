"""The simulated cluster: jobs that run, finish and fail between decisions, machines that come and go.

Jobs do not influence each other between two decisions (GPUs that become free stay idle until the next one), so a
stretch of time without outside changes is one vectorised step, exact to the rounding of floats:

    work done  = true rate x (end - max(begin, ready_s))          ready_s: when the pause of the last change is over
    completion = max(begin, ready_s) + remaining / true rate
    failure    = when the GPU-hours held reach the next strike (exponential, chance.py); the job falls back to its last
                 checkpoint: the last change of its allocation, or the last multiple of checkpoint_every_s since then

A job whose machines vanish falls back in the same way. GPUs held during a pause are held: they count and they cost.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.domain.workload import Workload
from allocator.performance.table import RateTable
from allocator.simulator import chance
from allocator.simulator.options import Options

HOUR = 3600.0
DONE = 1e-9             # of the total work: less than that left is rounding, not work


class World:
    """State at the time `now`. Arrays have one entry per job of the workload, (N,), unless stated otherwise.

    active: numbers of the jobs submitted and not done, ascending. pool -1, gpus 0, rate 0: holds nothing. since_s: when
    it got what it holds. starts: how often it got an allocation. received (N, T) seconds by type. capacity, price (P,).
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
        self.capacity_log: list[tuple[float, int]] = [(self.now, int(self.capacity.sum()))]
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
        return float((np.maximum(self.now, self.ready_s[r]) + self.remaining[r] / self.rate[r]).min(initial=np.inf))

    def advance(self, to: float) -> None:
        """Let time pass until `to`."""
        while True:
            end = min(to, max(self.now, self.next_change()))
            if end > self.now:
                self._run(self.now, end)
                self.now = end
            if self.next_change() > self.now:
                break
            self._change()
        self._arrive()

    def give(self, jobs: Ints, pool: Ints, gpus: Ints) -> int:
        """Let the jobs hold these GPUs from now on (pool -1: nothing); returns how many change. Jobs that are done
        meanwhile are left alone, and what the pools cannot hold any more is taken back from the last to start."""
        here = np.isnan(self.finished_s[jobs]) & ((self.pool[jobs] != pool) | (self.gpus[jobs] != gpus))
        jobs, pool, gpus = jobs[here], pool[here], gpus[here]
        running, starts = self.pool[jobs] >= 0, pool >= 0
        self._release(jobs[running], np.full(int(running.sum()), self.now))
        j, p, k, again = jobs[starts], pool[starts], gpus[starts], running[starts]
        attributes, pools = self.workload.problem.jobs, self.workload.problem.pools
        self.pool[j], self.gpus[j], self.since_s[j] = p, k, self.now
        self.ready_s[j] = self.now + pools.startup_s[p] + np.where(again, attributes.restart_s[j], 0.0)
        self.rate[j] = self._true_rate(j, p, k)
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

    def _run(self, begin: float, end: float) -> None:
        """A stretch of time in which nothing happens but work, completions and failures."""
        r = self.active[self.pool[self.active] >= 0]
        if not len(r):
            return
        k, p = self.gpus[r], self.pool[r]
        work_from = np.maximum(begin, self.ready_s[r])
        finish = work_from + self.remaining[r] / self.rate[r]
        fail = begin + (self.strike[r] - self.attained[r] / HOUR) * HOUR / k
        last = np.minimum(np.minimum(finish, np.maximum(fail, begin)), end)
        held = last - begin
        self.remaining[r] -= self.rate[r] * np.maximum(0.0, last - work_from)
        self.attained[r] += held * k
        self.dollars[r] += held * k * self.price[p] / HOUR
        self.received[r, self.workload.problem.pools.gpu_type[p]] += held
        done = (finish <= last) | (self.remaining[r] <= DONE * self.workload.problem.jobs.total_work[r])
        self.remaining[r[done]] = 0.0
        self.finished_s[r[done]] = last[done]
        failed = ~done & (fail <= last)
        self._fall_back(r[failed], last[failed])
        self.failures[r[failed]] += 1
        self.strike[r[failed]] = self._strikes(r[failed])
        gone = done | failed
        self._release(r[gone], last[gone])
        if done.any():
            self.active = self.active[np.isnan(self.finished_s[self.active])]

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
            self.capacity_log.append((self.now, int(self.capacity.sum())))
            self._evict()

    def _evict(self) -> None:
        """Jobs lose what their pool does not have any more: the last to start first."""
        for p in np.flatnonzero(self.used() > self.capacity).tolist():
            here = self.active[self.pool[self.active] == p]
            order = here[np.lexsort((here, self.since_s[here]))]
            lost = order[np.cumsum(self.gpus[order]) > self.capacity[p]]
            self._fall_back(lost, np.full(len(lost), self.now))
            self._release(lost, np.full(len(lost), self.now))

    def _fall_back(self, jobs: Ints, at: Floats) -> None:
        """Work since the last checkpoint is lost."""
        attributes = self.workload.problem.jobs
        worked = np.maximum(0.0, at - self.ready_s[jobs])
        every = attributes.checkpoint_every_s[jobs]
        with np.errstate(invalid="ignore"):
            lost_s = np.where(np.isnan(every), worked, worked % every)
        self.remaining[jobs] = np.minimum(self.remaining[jobs] + self.rate[jobs] * lost_s, attributes.total_work[jobs])

    def _release(self, jobs: Ints, at: Floats) -> None:
        if len(jobs):
            self.spans.append(np.column_stack([jobs, self.pool[jobs], self.gpus[jobs], self.since_s[jobs], at]))
        self.pool[jobs], self.gpus[jobs], self.rate[jobs] = -1, 0, 0.0

    def _true_rate(self, jobs: Ints, pool: Ints, gpus: Ints) -> Floats:
        """What the policy believes times how wrong it is about this job and type, times noise of this start."""
        problem, o = self.workload.problem, self.options
        kind = problem.pools.gpu_type[pool]
        rate, _ = self._table.rate(problem.jobs.model[jobs], kind, gpus)
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
