"""A cluster in memory, on a clock that moves only when it is told to: exact, and the same by seed.

Only two allocations on the same GPUs influence each other. So the end of an allocation is known as
soon as it starts, and again when another job starts or ends on its GPUs:

    work done at t   rate x (min(t, time of the stop) - ready_s)
    finished         at ready_s + remaining work / rate
    failed           after an exponential time of mean 1 / (failures per GPU-hour x GPUs), drawn by
                     seed, job and generation
    stopped          some time after the stop was ordered; the job does no more work meanwhile and
                     holds its GPUs

ready_s is the end of the pause of the start. The rate changes when the colocated job does.

The cluster outlives its controllers: after the crash of one, make another executor of the same
cluster. `breaches` lists everything that a controller must never do: give more GPUs than a pool
has, run a job twice at a time, put three jobs on one GPU.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from allocator.errors import UsageError
from allocator.executors.errors import starts_on_shared_gpus
from allocator.loop.executor import Capabilities, Observation, Order, Phase, StaleOrder

HOUR = 3600.0


class SimulatedClock:
    """A Clock. now_s: seconds that really passed since the epoch; offset_s: by how much the
    clock on the wall errs.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s, self.offset_s = now_s, 0.0

    def now(self) -> float:
        """What the clock on the wall shows."""
        return self.now_s + self.offset_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += max(0.0, seconds)

    def jump(self, seconds: float) -> None:
        """Set the clock on the wall forward (or back), while no time passes."""
        self.offset_s += seconds


def _unit_rate(order: Order) -> float:
    return 1.0


def _zero_seconds(order: Order) -> float:
    return 0.0


def _zero_pause_s(order: Order, held: int) -> float:
    return 0.0


@dataclass(frozen=True)
class MachineBehaviour:
    """How the cluster really is.

    rate(order): work per second. colocated_rate(order, other): the same while the other runs on the
    same GPUs; None: as alone. pause_s(order, held): from the start to the first work; held: GPUs
    that
    the job held until this very moment. stop_s(order): from being told to stop to having stopped; a
    job that refuses to die takes long. checkpoint_s(order): a running job has safe what it had done
    at the last multiple of these seconds of work; 0: all of it. failures_per_gpu_hour: of jobs, by
    themselves.
    """

    rate: Callable[[Order], float] = _unit_rate
    colocated_rate: Callable[[Order, Order], float] | None = None
    pause_s: Callable[[Order, int], float] = _zero_pause_s
    stop_s: Callable[[Order], float] = _zero_seconds
    checkpoint_s: Callable[[Order], float] = _zero_seconds
    failures_per_gpu_hour: float = 0.0
    seed: int = 0


Key = tuple[str, int]


@dataclass
class _SimulatedAllocation:
    """An allocation of the simulated cluster.

    rates: (since when, work per second), the first from the end of its pause on. fail_s: when it
    fails by itself. end_s, phase: when and how it ends if nothing changes. stopped_s: when it was
    told to stop. colocated_key: the other allocation on its GPUs, while both live.
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
    calendar_entry: int = 0  # which entry of the cluster's calendar counts
    colocated_key: Key | None = None

    def work(self, now_s: float) -> float:
        """Safe work since the start."""
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
        """Work of so many seconds after the pause."""
        # nearly all of them: asked of every run at every look
        if len(self.rates) == 1:
            return self.rates[0][1] * worked_s
        ready, ends = self.rates[0][0], [*(since for since, _ in self.rates[1:]), math.inf]
        return math.fsum(
            rate * max(0.0, min(worked_s, end - ready) - (since - ready))
            for (since, rate), end in zip(self.rates, ends, strict=True)
        )

    def set_rate(self, rate: float, at_s: float) -> None:
        """Work at this rate from then on; unless it was told to stop, that says when it ends."""
        since = max(at_s, self.rates[0][0]) if self.rates else at_s
        self.rates = [(s, r) for s, r in self.rates if s < since] + [(since, rate)]
        if self.stopped_s == math.inf:
            left = self.order.remaining_work - self._work_after(since - self.rates[0][0])
            finish = since + left / rate if rate > 0 else math.inf
            self.end_s, done = min(finish, self.fail_s), finish <= self.fail_s
            self.phase, self.detail = (
                (Phase.FINISHED, "") if done else (Phase.FAILED, "a simulated failure")
            )


@dataclass
class SimulatedMachines:
    """Machines with GPUs by pool, and what runs on them. All times inside are real ones
    (clock.now_s).
    """

    gpus: dict[str, int]
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    truth: MachineBehaviour = field(default_factory=MachineBehaviour)
    breaches: list[str] = field(default_factory=list)
    orders: int = 0

    def __post_init__(self) -> None:
        self.used = dict.fromkeys(self.gpus, 0)
        self.token = -1
        self._open: dict[tuple[str, int], _SimulatedAllocation] = {}
        # by job: the newest generation ever ordered or stopped
        self._newest: dict[str, int] = {}
        # by job: the newest generation ever acknowledged
        self._acknowledged: dict[str, int] = {}
        self._generation_holding_gpus: dict[str, int] = {}  # by job: the generation that holds GPUs
        # by job: when it last held GPUs, and how many
        self._last_release: dict[str, tuple[float, int]] = {}
        self._calendar: list[tuple[float, int, tuple[str, int]]] = []
        self._entries = 0

    def start(self, order: Order) -> None:
        """As Executor.start."""
        self.admit(order.token)
        if not self._is_new_generation(order.job_id, order.generation):
            return
        self.end_due_allocations()
        now, other = self.clock.now_s, self._find_colocated(order)
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
        self._newest[order.job_id] = order.generation
        self._generation_holding_gpus[order.job_id] = order.generation
        if other is not None:
            self._colocate(key, other)
        else:
            has = self.gpus.get(order.pool, 0)
            self.used[order.pool] = self.used.get(order.pool, 0) + order.gpus
            if self.used[order.pool] > has:
                self.breaches.append(
                    f'{now:g} s: pool "{order.pool}" has {has} GPUs and gives'
                    f" {self.used[order.pool]}"
                )
        self._schedule_end(run)

    def _find_colocated(self, order: Order) -> Key | None:
        """The living allocation on whose GPUs the order starts. Raises NotNow."""
        if order.beside is None:
            return None
        key = (order.beside.job_id, order.beside.generation)
        run = self._open.get(key)
        return key if starts_on_shared_gpus(order, run is not None and not run.is_over) else None

    def _colocate(self, one: Key, other: Key) -> None:
        """The two run on the same GPUs from now on."""
        a, b = self._open[one], self._open[other]
        if b.colocated_key is not None or (a.order.pool, a.order.gpus) != (
            b.order.pool,
            b.order.gpus,
        ):
            self.breaches.append(
                f'{self.clock.now_s:g} s: job "{one[0]}" starts on GPUs of "{other[0]}", which has '
                f"{b.order.gpus} of {b.order.pool} and runs with {b.colocated_key}"
            )
        a.colocated_key, b.colocated_key = other, one
        for run, other_run in ((a, b), (b, a)):
            run.set_rate(self._rate(run, other_run), self.clock.now_s)
        self._schedule_end(b)

    def _rate(self, run: _SimulatedAllocation, other: _SimulatedAllocation | None) -> float:
        if other is None or self.truth.colocated_rate is None:
            return self.truth.rate(run.order)
        return self.truth.colocated_rate(run.order, other.order)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """As Executor.stop; what was never started is known as stopped and does not start any
        more.
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
        # a failure that was to come first comes all the same
        if run.phase is not Phase.FAILED or run.end_s > now + self.truth.stop_s(run.order):
            run.end_s, run.phase, run.detail = now + self.truth.stop_s(run.order), Phase.STOPPED, ""
        self._schedule_end(run)
        self.end_due_allocations()

    def observe(self) -> list[Observation]:
        """As Executor.observe; at_s is what the clock on the wall shows."""
        self.end_due_allocations()
        now, wrong = self.clock.now_s, self.clock.offset_s
        return [
            Observation(
                key[0],
                key[1],
                (run.end_s if run.is_over else now) + wrong,
                run.phase if run.is_over else Phase.RUNNING,
                run.work(now),
                run.detail if run.is_over else "",
            )
            for key, run in self._open.items()
        ]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """As Executor.acknowledge. Raises UsageError for what has not ended."""
        self.end_due_allocations()
        run = self._open.get((job_id, generation))
        if run is not None and not run.is_over:
            raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
        self._open.pop((job_id, generation), None)
        self._newest[job_id] = max(self._newest.get(job_id, -1), generation)
        self._acknowledged[job_id] = max(self._acknowledged.get(job_id, -1), generation)

    def set_gpus(self, pool: str, gpus: int) -> None:
        """Machines come or go: the pool has so many GPUs from now on. Those that started last
        are lost first.
        """
        self.end_due_allocations()
        self.gpus[pool] = gpus
        here = [r for r in self._open.values() if r.order.pool == pool and not r.is_over]
        for run in sorted(here, key=lambda r: (r.started_s, r.order.job_id), reverse=True):
            if self.used[pool] <= gpus:
                return
            both = [run.order.job_id] + (
                [] if run.colocated_key is None else [run.colocated_key[0]]
            )
            for job_id in both:
                self.lose(job_id, "its machine is gone")

    def lose(self, job_id: str, why: str) -> None:
        """What the job holds is lost now, with what it did since its last checkpoint."""
        self.end_due_allocations()
        generation = self._generation_holding_gpus.get(job_id)
        if generation is not None:
            run = self._open[job_id, generation]
            run.end_s, run.phase, run.detail = self.clock.now_s, Phase.LOST, why
            self._schedule_end(run)
            self.end_due_allocations()

    def fail(self, job_id: str, why: str) -> None:
        """What the job holds fails now."""
        self.end_due_allocations()
        generation = self._generation_holding_gpus.get(job_id)
        if generation is not None:
            run = self._open[job_id, generation]
            run.end_s, run.phase, run.detail = self.clock.now_s, Phase.FAILED, why
            self._schedule_end(run)
            self.end_due_allocations()

    def next_end(self) -> float:
        """When the next allocation ends as things stand (clock.now_s), inf: none."""
        self.end_due_allocations()
        while self._calendar:
            end, entry, key = self._calendar[0]
            if key in self._open and self._open[key].calendar_entry == entry:
                return end
            heapq.heappop(self._calendar)
        return math.inf

    def end_due_allocations(self) -> None:
        """Let everything end that has ended by now."""
        while self._calendar and self._calendar[0][0] <= self.clock.now_s:
            end, entry, key = heapq.heappop(self._calendar)
            run = self._open.get(key)
            if run is None or run.is_over or run.calendar_entry != entry:
                continue
            run.is_over = True
            if run.colocated_key is None:
                self.used[run.order.pool] -= run.order.gpus
            else:  # the other one goes on alone on these GPUs
                left = self._open[run.colocated_key]
                run.colocated_key = left.colocated_key = None
                left.set_rate(self._rate(left, None), end)
                self._schedule_end(left)
            if self._generation_holding_gpus.get(key[0]) == key[1]:
                del self._generation_holding_gpus[key[0]]
            self._last_release[key[0]] = end, run.order.gpus

    def admit(self, token: int) -> None:
        """Remember the highest token; raises StaleOrder if a higher one was seen."""
        if token < self.token:
            raise StaleOrder(f"an order with token {token} came after one with {self.token}")
        self.token = token

    def _is_new_generation(self, job_id: str, generation: int) -> bool:
        newest = self._newest.get(job_id, -1)
        if generation < newest or generation <= self._acknowledged.get(job_id, -1):
            raise StaleOrder(f'job "{job_id}": allocation {generation} was ordered after {newest}')
        return generation > newest

    def _schedule_end(self, run: _SimulatedAllocation) -> None:
        self._entries += 1
        run.calendar_entry = self._entries
        if run.end_s < math.inf:
            heapq.heappush(
                self._calendar,
                (run.end_s, run.calendar_entry, (run.order.job_id, run.order.generation)),
            )

    def _draw_failure_s(self, order: Order) -> float:
        """Seconds until the allocation fails by itself."""
        per_hour = self.truth.failures_per_gpu_hour * order.gpus
        if per_hour <= 0:
            return math.inf
        luck = random.Random(f"{self.truth.seed} {order.job_id} {order.generation}")
        return luck.expovariate(per_hour / HOUR)


class SimulatedExecutor:
    """A way to reach the cluster; it remembers nothing by itself."""

    name = "simulated"
    capabilities = Capabilities(reports_progress=True)

    def __init__(self, cluster: SimulatedMachines) -> None:
        self.cluster = cluster

    def start(self, order: Order) -> None:
        """Raises StaleOrder."""
        self.cluster.start(order)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Raises StaleOrder."""
        self.cluster.stop(job_id, generation, token)

    def observe(self) -> Sequence[Observation]:
        """Exact and complete."""
        return self.cluster.observe()

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Raises UsageError for what has not ended."""
        self.cluster.acknowledge(job_id, generation)

    def capacity(self) -> Mapping[str, int]:
        """GPUs of the machines that are there."""
        return dict(self.cluster.gpus)
