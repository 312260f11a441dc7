"""Revocations of spot servers: when each server dies, and what that does to its job.

A server is one GPU of a spot pool. It is up when its start-up is over, and dies at the first of

    hazard     at the rate h = hazard of the pool at its age x SimulationOptions.revocations, and
               at h x spot_burst before the age spot_burst_s
    event      with spot_batch > 1, instead of the hazard: a common event of its zone
    lifetime   at the age lifetime_s of the pool

The events of a zone are a Poisson process of rate h N / spot_batch, where N is the number of GPUs
of the zone's spot pools at the start. Each event takes every server with probability spot_batch /
N, times spot_burst while it is young. Where h depends on age, events have the largest one and are
thinned. A server's hazard is h as before, but several servers die at once. This is the common-shock
model of Marshall and Olkin (JASA 62, 1967) with exchangeable servers.

Pools with rows in capacity.csv lose GPUs when these rows say so, and to no hazard, because the
trace contains the revocations already.

A replacement is requested at once and is up startup_s later, times the spread of the options. A
synchronous job stands still in that time. It falls back to its last checkpoint and pays restart_s
as well. An asynchronous job goes on with the share of the other servers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Market
from allocator.domain.workload import Workload
from allocator.simulator import random_numbers
from allocator.simulator.options import SimulationOptions
from formulations.transient.revocations import age_at, hazard_at, mean_hazard, with_burst

HOUR = 3600.0


@dataclass
class Servers:
    """The servers of one allocation: the times in seconds, (k,), at which they are up and die."""

    up_s: Floats
    dies_s: Floats


class SpotServers:
    """The servers of jobs on pools that can lose them.

    `drawn` (N,) is the number of servers that each job has had so far.
    """

    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        problem = workload.problem
        pools = workload.problem.pools
        spot = pools.market == Market.SPOT
        traced = np.isin(np.arange(len(pools)), workload.changes.pool[workload.changes.gpus >= 0])
        self._options = options
        self._startup_s = pools.startup_s
        factor = np.where(traced, 0.0, options.revocations)
        self._by_age = tuple(
            replace(h, per_hour=h.per_hour * f)
            for h, f in zip(pools.hazards, factor.tolist(), strict=True)
        )
        # the largest at any age, and that of the long run
        self._worst_hazard = np.array([h.per_hour.max() for h in self._by_age], np.float64)
        self.hazard = np.array([mean_hazard(h, np.inf) for h in self._by_age], np.float64)
        self.lifetime_s: Floats = np.where(spot, pools.lifetime_s, np.inf)
        self.revocable: Bools = (self._worst_hazard > 0) | np.isfinite(self.lifetime_s)
        self.servers: dict[int, Servers] = {}
        self.drawn: Ints = np.zeros(len(problem.jobs), np.int64)
        together = options.spot_batch > 1
        self._dies_alone = not together
        self._zone: Ints = (
            np.where(self._worst_hazard > 0, pools.zone, -1)
            if together
            else np.full(len(pools), -1)
        )
        zones = int(self._zone.max(initial=-1)) + 1
        size = np.bincount(self._zone[self._zone >= 0], pools.gpus[self._zone >= 0], zones)
        # hazards of the pools of a zone differ: events have the largest one and are thinned
        worst = np.zeros(zones)
        np.maximum.at(worst, self._zone[self._zone >= 0], self._worst_hazard[self._zone >= 0])
        self._take: Floats = np.minimum(1.0, options.spot_batch / np.maximum(size, 1.0))
        self._worst, self._per_s = worst, worst / np.maximum(self._take, 1e-12) / HOUR
        self._events: Ints = np.zeros(zones, np.int64)
        self.next_event_s: Floats = np.full(zones, problem.now_s)
        for z in range(zones):
            self._draw_event(z)

    def start(self, job: int, pool: int, gpus: int, now: float) -> Servers:
        """Return new servers for a job."""
        self.servers[job] = Servers(*self._draw_servers(job, pool, gpus, now))
        return self.servers[job]

    def keep(self, job: int, servers: Servers, gpus: int) -> None:
        """Let the job go on with the first `gpus` of the servers that it had."""
        self.servers[job] = Servers(servers.up_s[:gpus], servers.dies_s[:gpus])

    def hand_over(self, job: int, to: int) -> None:
        """Give the servers of a job, if it has any, to another job."""
        if job in self.servers:
            self.servers[to] = self.servers.pop(job)

    def stop(self, job: int) -> None:
        """Remove the servers of a job."""
        self.servers.pop(job, None)

    def replace(self, job: int, pool: int, lost: Bools, now: float) -> None:
        """Request new servers in place of the lost ones (k,)."""
        own = self.servers[job]
        own.up_s[lost], own.dies_s[lost] = self._draw_servers(job, pool, int(lost.sum()), now)

    def next_event(self) -> tuple[float, int]:
        """Return time and zone of the next common event, (inf, -1) if there is none."""
        if not len(self.next_event_s):
            return np.inf, -1
        z = int(self.next_event_s.argmin())
        return float(self.next_event_s[z]), z

    def strike(self, zone: int, jobs: Ints, pool: Ints, now: float) -> list[tuple[int, Bools]]:
        """Return the servers (k,) that the event of the zone takes, by job; draw the next one.

        `pool` has the pool of each job.
        """
        o = self._options
        number = int(self._events[zone])
        out = []
        for j, p in zip(jobs.tolist(), pool.tolist(), strict=True):
            if self._zone[p] != zone:
                continue
            up = self.servers[j].up_s
            present = hazard_at(self._by_age[p], np.maximum(now - up, 0.0) / HOUR)
            chances = self._take[zone] * present / self._worst[zone]
            chances = chances * np.where(now - up < o.spot_burst_s, o.spot_burst, 1.0)
            place = np.arange(len(up)) + (number << 16)
            struck = (
                random_numbers.uniform(o.seed, random_numbers.EVENT, np.full(len(up), j), place)
                < chances
            ) & (up <= now)
            if struck.any():
                out.append((j, struck))
        self._draw_event(zone)
        return out

    def _draw_event(self, zone: int) -> None:
        self._events[zone] += 1
        if self._per_s[zone] > 0:
            place = np.array([-1 - zone])
            number = self._events[zone : zone + 1]
            wait = random_numbers.exponential(
                self._options.seed, random_numbers.EVENT, place, number
            )
            self.next_event_s[zone] += float(wait[0]) / self._per_s[zone]
        else:
            self.next_event_s[zone] = np.inf

    def _draw_servers(self, job: int, pool: int, count: int, now: float) -> tuple[Floats, Floats]:
        """Return the times in seconds, (count,), at which servers requested now are up and die."""
        o = self._options
        serial = self.drawn[job] + np.arange(count)
        up = now + self._startup_s[pool] * random_numbers.lognormal(
            o.startup_spread, o.seed, random_numbers.STARTUP, np.full(count, job), serial
        )
        return up, up + self._draw_lifetimes(job, pool, count)

    def _draw_lifetimes(self, job: int, pool: int, count: int) -> Floats:
        """Return the seconds that the next servers of a job live, (count,)."""
        o = self._options
        serial = self.drawn[job] + np.arange(count)
        self.drawn[job] += count
        age = np.full(count, self.lifetime_s[pool])
        if self._dies_alone and self._worst_hazard[pool] > 0:
            e = random_numbers.exponential(
                o.seed, random_numbers.REVOCATION, np.full(count, job), serial
            )
            hazard = with_burst(self._by_age[pool], o.spot_burst, o.spot_burst_s / HOUR)
            age = np.minimum(age, HOUR * age_at(hazard, e))
        return age
