"""A cluster in memory, on a clock that moves only when asked to: exact, and the same for a seed.

Only two allocations on the same GPUs influence each other. So the end of an allocation is known as
soon as it starts, and again when another job starts or ends on its GPUs:

    work done at t   rate x (min(t, time of the stop) - ready_s)
    finished         at ready_s + remaining work / rate
    failed           after an exponential time of mean 1 / (failures per GPU-hour x GPUs), drawn by
                     seed, job and generation
    stopped          some time after the stop was ordered; the job does no more work in that time
                     and holds its GPUs

ready_s is the end of the pause of the start. The rate changes when the colocated job does.

The cluster outlives its controllers: after the crash of a controller, make another executor of the
same cluster. `breaches` lists everything that a controller must never do: give out more GPUs than a
pool or a node has, run a job twice at a time, put three jobs on one GPU, or give shares of a GPU
that add up to more than 1.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocator.clusters.adapter import Capabilities
from allocator.errors import UsageError
from allocator.loop.executor import (
    ColocatedAllocation,
    Observation,
    Order,
    Phase,
    StaleOrder,
    find_shared,
)

HOUR = 3600.0


class SimulatedClock:
    """A Clock with an error.

    `now_s` is the true time in seconds since the epoch. `offset_s` is added to it where the clock
    is read.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.offset_s = 0.0

    def now(self) -> float:
        """Return what the clock shows: the true time and its error."""
        return self.now_s + self.offset_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += max(0.0, seconds)

    def jump(self, seconds: float) -> None:
        """Set the clock forward (or back) without letting time pass."""
        self.offset_s += seconds


@dataclass(frozen=True)
class MachineBehaviour:
    """How the cluster truly behaves.

    Parameters
    ----------
    rate : callable
        rate(order) is the work per second.
    colocated_rate : callable, optional
        colocated_rate(order, other) is the work per second while the other job runs on the same
        GPUs; of several other jobs the least counts. None: as alone.
    pause_s : callable
        pause_s(order, held) is the seconds from the start to the first work; `held` is the number
        of GPUs that the job held until this moment.
    stop_s : callable
        stop_s(order) is the seconds from the order to stop to the end.
    checkpoint_s : callable
        checkpoint_s(order) is the seconds of work between two checkpoints of a running job; 0: all
        its work is safe.
    reported : callable
        reported(order, work) is what the job reports with its progress when it has done so much
        work since its start.
    failures_per_gpu_hour : float
        Rate at which jobs fail by themselves.
    seed : int
        Seed of the failures.
    """

    rate: Callable[[Order], float] = lambda order: 1.0
    colocated_rate: Callable[[Order, Order], float] | None = None
    pause_s: Callable[[Order, int], float] = lambda order, held: 0.0
    stop_s: Callable[[Order], float] = lambda order: 0.0
    checkpoint_s: Callable[[Order], float] = lambda order: 0.0
    reported: Callable[[Order, float], Mapping[str, float]] = lambda order, work: {}
    failures_per_gpu_hour: float = 0.0
    seed: int = 0


Key = tuple[str, int]


@dataclass
class _SimulatedAllocation:
    """An allocation of the simulated cluster.

    `rates` has (since when, work per second), the first from the end of the pause on. `fail_s` is
    when it fails by itself. `end_s` and `phase` say when and how it ends if nothing changes.
    `stopped_s` is when it was ordered to stop. `colocated` are the living allocations on its GPUs.
    """

    order: Order
    started_s: float
    rates: list[tuple[float, float]]
    every_s: float
    fail_s: float
    end_s: float = math.inf
    phase: Phase = Phase.FINISHED
    detail: str = ""
    stopped_s: float = math.inf
    is_over: bool = False
    colocated: tuple[Key, ...] = ()

    def work(self, now_s: float) -> float:
        """Return the safe work since the start."""
        if self.is_over and self.phase is Phase.FINISHED:
            return self.order.remaining_work
        ready = self.rates[0][0]
        worked = max(0.0, min(now_s, self.stopped_s, self.end_s) - ready)
        # stopping begins with a checkpoint
        is_stopping = self.stopped_s <= min(now_s, self.end_s)
        if self.every_s > 0 and not is_stopping:
            worked -= worked % self.every_s
        return min(self._work_after(worked), self.order.remaining_work)

    def _work_after(self, worked_s: float) -> float:
        """Return the work of so many seconds after the pause."""
        # the usual case, made fast because it is asked of every allocation at every poll
        if len(self.rates) == 1:
            return self.rates[0][1] * worked_s
        ready = self.rates[0][0]
        ends = [*(since for since, _ in self.rates[1:]), math.inf]
        return math.fsum(
            rate * max(0.0, min(worked_s, end - ready) - (since - ready))
            for (since, rate), end in zip(self.rates, ends, strict=True)
        )

    def set_rate(self, rate: float, at_s: float) -> None:
        """Let it work at this rate from at_s on; update its end unless it has to stop."""
        since = max(at_s, self.rates[0][0]) if self.rates else at_s
        self.rates = [(s, r) for s, r in self.rates if s < since] + [(since, rate)]
        if self.stopped_s == math.inf:
            left = self.order.remaining_work - self._work_after(since - self.rates[0][0])
            finish = since + left / rate if rate > 0 else math.inf
            self.end_s = min(finish, self.fail_s)
            done = finish <= self.fail_s
            self.phase, self.detail = (
                (Phase.FINISHED, "") if done else (Phase.FAILED, "a simulated failure")
            )


@dataclass
class SimulatedMachines:
    """Machines with GPUs by pool, and what runs on them; all times inside are true ones.

    `nodes` has the GPUs of each node of pools with nodes. `settings` has what running jobs were
    last told, by (job, generation).
    """

    gpus: dict[str, int]
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    truth: MachineBehaviour = field(default_factory=MachineBehaviour)
    breaches: list[str] = field(default_factory=list)
    orders: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    settings: dict[Key, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = dict.fromkeys(self.gpus, 0)
        self.token = -1
        self._open: dict[Key, _SimulatedAllocation] = {}
        # by job: the newest generation ever ordered or stopped
        self._newest: dict[str, int] = {}
        self._generation_holding_gpus: dict[str, int] = {}  # by job: the generation that holds GPUs
        # by job: when it last held GPUs, and how many
        self._last_release: dict[str, tuple[float, int]] = {}
        self._calendar: list[tuple[float, Key]] = []  # an end that was changed is not valid

    def start(self, order: Order) -> None:
        """Start an allocation, as Executor.start."""
        self.admit(order.token)
        if not self._is_new_generation(order.job_id, order.generation):
            return
        self.end_due_allocations()
        now = self.clock.now_s
        others = self._find_colocated(order)
        if (old := self._generation_holding_gpus.get(order.job_id)) is not None:
            self.breaches.append(
                f'{now:g} s: job "{order.job_id}" starts again while its allocation {old} lives'
            )
        left_s, held = self._last_release.get(order.job_id, (math.nan, 0))
        run = _SimulatedAllocation(
            order, now, [], self.truth.checkpoint_s(order), now + self._draw_failure_s(order)
        )
        run.set_rate(
            self.truth.rate(order), now + self.truth.pause_s(order, held if left_s == now else 0)
        )
        self.orders += 1
        key = (order.job_id, order.generation)
        self._open[key] = run
        self.settings[key] = order.settings
        self._newest[order.job_id] = order.generation
        self._generation_holding_gpus[order.job_id] = order.generation
        if others:
            self._colocate(key, others)
        own = self._own_gpus(run)
        if own or not others:
            has = self.gpus.get(order.pool, 0)
            self.used[order.pool] = self.used.get(order.pool, 0) + own
            self._check_nodes(order)
            if self.used[order.pool] > has:
                self.breaches.append(
                    f'{now:g} s: pool "{order.pool}" has {has} GPUs and gives'
                    f" {self.used[order.pool]}"
                )
        self._schedule_end(run)

    def _living(self) -> list[_SimulatedAllocation]:
        """Return the living allocations, and of two on the same GPUs only one."""
        return [
            run
            for key, run in self._open.items()
            if not run.is_over and all(key < other for other in run.colocated)
        ]

    def _own_gpus(self, run: _SimulatedAllocation) -> int:
        """Return the GPUs on which no other allocation is."""
        mine = {(part.node, part.gpu) for part in run.order.nodes if part.gpu is not None}
        is_shared = any(
            (part.node, part.gpu) in mine
            for other in (self._living() if mine else ())
            for part in other.order.nodes
            if other is not run
        )
        shared = sum(min(run.order.gpus, self._open[key].order.gpus) for key in run.colocated)
        return 0 if is_shared else run.order.gpus - shared

    def _check_nodes(self, order: Order) -> None:
        """Write down the nodes of the order that give more than they have."""
        for name in {part.node for part in order.nodes}:
            parts = [
                part for run in self._living() for part in run.order.nodes if part.node == name
            ]
            shares: dict[int, float] = {}
            for part in parts:
                if part.gpu is not None:
                    shares[part.gpu] = shares.get(part.gpu, 0.0) + (part.fraction or 0.0)
            used = len(shares) + sum(part.gpus for part in parts if part.gpu is None)
            if used > self.nodes.get(name, 0) or any(s > 1.0 + 1e-6 for s in shares.values()):
                self.breaches.append(
                    f'{self.clock.now_s:g} s: node "{name}" has {self.nodes.get(name, 0)} GPUs and'
                    f" gives {used}, shares {shares}"
                )

    def _find_colocated(self, order: Order) -> tuple[Key, ...]:
        """Return the living allocations on whose GPUs the order starts. Raises NotNow."""

        def is_alive(one: ColocatedAllocation) -> bool:
            run = self._open.get((one.job_id, one.generation))
            return run is not None and not run.is_over

        return tuple((one.job_id, one.generation) for one in find_shared(order, is_alive))

    def _colocate(self, one: Key, others: tuple[Key, ...]) -> None:
        """Let an allocation run on the GPUs of the others from now on."""
        a = self._open[one]
        left = a.order.gpus
        for other in others:
            b = self._open[other]
            left -= b.order.gpus
            if b.colocated or a.order.pool != b.order.pool or left < 0:
                self.breaches.append(
                    f'{self.clock.now_s:g} s: job "{one[0]}" starts with {a.order.gpus} GPUs of'
                    f' {a.order.pool} on those of "{other[0]}", which has {b.order.gpus} of'
                    f" {b.order.pool} and runs with {b.colocated}"
                )
            b.colocated = (one,)
        a.colocated = others
        for key in (one, *others):
            self._follow_rate(self._open[key], self.clock.now_s)

    def _follow_rate(self, run: _SimulatedAllocation, at_s: float) -> None:
        """Let an allocation work from at_s on as fast as next to the others on its GPUs."""
        run.set_rate(self._rate(run), at_s)
        self._schedule_end(run)

    def _rate(self, run: _SimulatedAllocation) -> float:
        if not run.colocated or self.truth.colocated_rate is None:
            return self.truth.rate(run.order)
        return min(
            self.truth.colocated_rate(run.order, self._open[key].order) for key in run.colocated
        )

    def update_rates(self) -> None:
        """Let all allocations work at their rates of now, where the truth changed."""
        self.end_due_allocations()
        for run in [one for one in self._open.values() if not one.is_over]:
            self._follow_rate(run, self.clock.now_s)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Stop an allocation, as Executor.stop.

        One that was never started counts as stopped, and does not start any more.
        """
        self.admit(token)
        self.end_due_allocations()
        now = self.clock.now_s
        if self._is_new_generation(job_id, generation):
            self._newest[job_id] = generation
            self._open[job_id, generation] = _SimulatedAllocation(
                Order(job_id, generation, token, "", 0, "", 0.0),
                now,
                [(now, 0.0)],
                0.0,
                math.inf,
                now,
                Phase.STOPPED,
                "was told to stop before it was started",
                is_over=True,
            )
            return
        run = self._open.get((job_id, generation))
        if run is None or run.is_over or run.stopped_s < math.inf:
            return
        run.stopped_s = now
        # a failure that comes before the stop still happens
        if run.phase is not Phase.FAILED or run.end_s > now + self.truth.stop_s(run.order):
            run.end_s, run.phase, run.detail = now + self.truth.stop_s(run.order), Phase.STOPPED, ""
        self._schedule_end(run)
        self.end_due_allocations()

    def observe(self) -> list[Observation]:
        """Return observations, as Executor.observe; at_s is what the clock shows."""
        self.end_due_allocations()
        now = self.clock.now_s
        wrong = self.clock.offset_s
        return [
            Observation(
                key[0],
                key[1],
                (run.end_s if run.is_over else now) + wrong,
                run.phase if run.is_over else Phase.RUNNING,
                run.work(now),
                run.detail if run.is_over else "",
                {} if run.is_over else self.truth.reported(run.order, run.work(now)),
            )
            for key, run in self._open.items()
        ]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget an allocation, as Executor.acknowledge. Raises UsageError if it has not ended."""
        self.end_due_allocations()
        run = self._open.get((job_id, generation))
        if run is not None and not run.is_over:
            raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
        self._open.pop((job_id, generation), None)
        self.settings.pop((job_id, generation), None)
        self._newest[job_id] = max(self._newest.get(job_id, -1), generation)

    def set_gpus(self, pool: str, gpus: int) -> None:
        """Change the GPUs of a pool; the allocations that started last are lost first."""
        self.end_due_allocations()
        self.gpus[pool] = gpus
        here = [r for r in self._open.values() if r.order.pool == pool and not r.is_over]
        for run in sorted(here, key=lambda r: (r.started_s, r.order.job_id), reverse=True):
            if self.used[pool] <= gpus:
                return
            # the other job on its GPUs is lost too; a job with several loses its own GPUs first
            both = run.colocated if self._own_gpus(run) == 0 else ()
            for job_id in (run.order.job_id, *(key[0] for key in both)):
                self.lose(job_id, "its machine is gone")

    def lose_node(self, node: str) -> None:
        """Let every allocation with GPUs of the node be lost now."""
        self.end_due_allocations()
        for run in [one for one in self._open.values() if not one.is_over]:
            if any(part.node == node for part in run.order.nodes):
                self.lose(run.order.job_id, "its node is gone")

    def lose(self, job_id: str, why: str) -> None:
        """Let the allocation of the job be lost now, with its work since the last checkpoint."""
        self.end_due_allocations()
        generation = self._generation_holding_gpus.get(job_id)
        if generation is not None:
            run = self._open[job_id, generation]
            run.end_s, run.phase, run.detail = self.clock.now_s, Phase.LOST, why
            self._schedule_end(run)
            self.end_due_allocations()

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Note what a running job is told, as SettingsWriter.write_settings."""
        self.admit(token)
        if (job_id, generation) in self._open:
            self.settings[job_id, generation] = dict(settings)

    def next_end(self) -> float:
        """Return the true time of the next end if nothing changes, inf if there is none."""
        self.end_due_allocations()
        while self._calendar:
            end, key = self._calendar[0]
            if key in self._open and self._open[key].end_s == end:
                return end
            heapq.heappop(self._calendar)
        return math.inf

    def end_due_allocations(self) -> None:
        """End the allocations whose end has come."""
        while self._calendar and self._calendar[0][0] <= self.clock.now_s:
            end, key = heapq.heappop(self._calendar)
            run = self._open.get(key)
            if run is None or run.is_over or run.end_s != end:
                continue
            run.is_over = True
            self.used[run.order.pool] -= self._own_gpus(run)
            for other in run.colocated:  # a colocated job goes on alone on these GPUs
                left = self._open[other]
                left.colocated = tuple(one for one in left.colocated if one != key)
                self._follow_rate(left, end)
            run.colocated = ()
            if self._generation_holding_gpus.get(key[0]) == key[1]:
                del self._generation_holding_gpus[key[0]]
            self._last_release[key[0]] = end, run.order.gpus

    def admit(self, token: int) -> None:
        """Remember the highest token. Raises StaleOrder if a higher one was seen."""
        if token < self.token:
            raise StaleOrder(f"an order with token {token} came after one with {self.token}")
        self.token = token

    def _is_new_generation(self, job_id: str, generation: int) -> bool:
        newest = self._newest.get(job_id, -1)
        is_acknowledged = generation == newest and (job_id, generation) not in self._open
        if generation < newest or is_acknowledged:
            raise StaleOrder(f'job "{job_id}": allocation {generation} was ordered after {newest}')
        return generation > newest

    def _schedule_end(self, run: _SimulatedAllocation) -> None:
        if run.end_s < math.inf:
            key = (run.order.job_id, run.order.generation)
            heapq.heappush(self._calendar, (run.end_s, key))

    def _draw_failure_s(self, order: Order) -> float:
        """Return the seconds until the allocation fails by itself."""
        per_hour = self.truth.failures_per_gpu_hour * order.gpus
        luck = random.Random(f"{self.truth.seed} {order.job_id} {order.generation}")
        return luck.expovariate(per_hour / HOUR) if per_hour > 0 else math.inf


class SimulatedExecutor:
    """An executor of the cluster; it keeps no state itself."""

    name = "simulated"
    capabilities = Capabilities(reports_progress=True, pins_nodes=True, shares_with_several=True)

    def __init__(self, cluster: SimulatedMachines) -> None:
        self.cluster = cluster

    def start(self, order: Order) -> None:
        """Start an allocation. Raises StaleOrder and NotNow."""
        self.cluster.start(order)

    def stop(self, *allocation: Any) -> None:
        """Stop an allocation. Raises StaleOrder."""
        self.cluster.stop(*allocation)

    def observe(self) -> Sequence[Observation]:
        """Return observations, which are exact and complete."""
        return self.cluster.observe()

    def acknowledge(self, *allocation: Any) -> None:
        """Forget an allocation. Raises UsageError if it has not ended."""
        self.cluster.acknowledge(*allocation)

    def write_settings(self, *told: Any) -> None:
        """Tell a running job how to run. Raises StaleOrder."""
        self.cluster.write_settings(*told)

    def capacity(self) -> Mapping[str, int]:
        """Return the GPUs of the present machines."""
        return dict(self.cluster.gpus)
