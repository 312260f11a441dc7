"""Worlds for the controller: a queue, a simulated cluster that notes every breach, and faults at
any point of a step.

A point is an instant around something that the controller does to the world: a transaction (before
it, at its end before the commit, after the commit), a read, a call of the executor (before and
after). Points are counted, and a seed decides what happens at which: nothing is known of the
controller's inside, so no write can be forgotten.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import sqlalchemy as sa
from controller_rigs import RATES
from fakes.executor_faults import CrashHere
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.journal import replay
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.errors import AuditFailure, Infeasible, NoPlanInTime
from allocator.loop.executor import NotNow, Order
from allocator.queue import snapshot as snapshots
from allocator.queue.cluster_tables import get_meta
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.schema import OPEN, allocations, jobs, pools, rounds, turns
from allocator.queue.errors import LeaseLost, QueueUnavailable, Refused
from allocator.queue.holdings import Retries, parse_parts
from allocator.queue.lease import Standby
from allocator.queue.nodes import read_nodes
from allocator.queue.queue import Queue

EVERY_S, LOOK_S = 60.0, 20.0
# dollars per GPU-hour, rented; the budget is more than anything can cost
PRICES = {"a": 2.5, "b": 1.0}
FILES = {
    "pools.csv": (
        "pool,gpu_type,gpus,market,price_per_gpu_hour\na,A,8,on_demand,2.5\nb,B,4,on_demand,1\n"
    ),
    "config.toml": f"now_s = {NOW}\ninterval_s = 60\n[longrun]\naverage_per_hour = 1000\n",
}
GROUPED = {
    **FILES,
    "pools.csv": (
        "pool,gpu_type,gpus,market,price_per_gpu_hour,memory_gb,sharing\n"
        "a,A,5,on_demand,2.5,16,any\nb,B,1,on_demand,1,16,any\n"
    ),
    "sharing.csv": (
        "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\n"
        "m,m,A,1,1.25,1.25\nm,n,A,1,1.25,1.25\nm,m,B,1,1.25,1.25\n"
    ),
}
PLACED = {**FILES, "nodes.csv": "node,pool,gpus\nn1,a,4\nn2,a,4\nn3,b,2\nn4,b,2\n"}
"""The same pools on nodes."""

FAILURES = (
    NoPlanInTime("hung"),
    AuditFailure(["a lie"]),
    Infeasible(["rules"], []),
    RuntimeError("the worker was killed"),
    ZeroDivisionError(),
)


class Fate:
    """What happens at which point. plan: by the number of the point; log: what happened."""

    def __init__(self, plan: Mapping[int, str], pause: Callable[[], None]) -> None:
        self.plan, self.pause, self.points, self.log = dict(plan), pause, 0, list[str]()
        self.quiet = False

    def at(self, where: str, name: str = "") -> None:
        """One point."""
        if self.quiet:
            return
        self.points += 1
        kind = self.plan.pop(self.points, None)
        if kind is None:
            return
        self.log.append(f"{kind} {where} {name} ({self.points})")
        if kind == "crash":
            raise CrashHere(where)
        if kind == "pause":
            # nobody else can write now; a pause is as good at the next point
            if where == "write end":
                self.plan[self.points + 1] = "pause"
                return
            self.pause()
        elif where == "call before" and kind == "later":
            raise NotNow("not now")
        elif where.startswith("call"):
            raise OSError(28, "disk full")
        else:
            raise QueueUnavailable(f"the disk is full, or the connection is lost: {kind}")


class FaultyStore:
    """A store in which things happen."""

    def __init__(self, store: QueueDatabase, fate: Fate) -> None:
        self.store, self.fate, self.name, self.engine = store, fate, store.name, store.engine

    @contextmanager
    def write(self) -> Iterator[Any]:
        self.fate.at("write before")
        with self.store.write() as connection:
            yield connection
            self.fate.at("write end")
        self.fate.at("write after")

    @contextmanager
    def read(self) -> Iterator[Any]:
        self.fate.at("read")
        with self.store.read() as connection:
            yield connection

    def close(self) -> None:
        pass


class FaultyExecutor:
    """An executor around whose calls things happen. observe changes nothing: it is one point.

    With a seed its observations are withheld, said once more at a later call (even after their
    acknowledgement), and in random order. What is withheld is not lost: an end is observed until it
    is acknowledged.
    """

    def __init__(self, inner: Any, fate: Fate, seed: int | None) -> None:
        self.name, self.capabilities, self.capacity = inner.name, inner.capabilities, inner.capacity
        self.inner, self.fate = inner, fate
        self.luck = None if seed is None else random.Random(seed)
        self.old: list[Any] = []
        for name in ("start", "stop", "acknowledge", "write_settings"):
            setattr(self, name, partial(self.around, name))

    def around(self, name: str, *arguments: Any) -> Any:
        self.fate.at("call before", name)
        found = getattr(self.inner, name)(*arguments)
        self.fate.at("call after", name)
        return found

    def observe(self) -> Any:
        now, fate = self.inner.observe(), self.fate
        if fate.plan.get(fate.points + 1) in ("crash", "pause"):
            fate.at("call after", "observe")
        else:
            fate.points += not fate.quiet
            fate.plan.pop(fate.points, None)
        if self.luck is None:
            return now
        draw = self.luck.random
        said = [o for o in now if draw() >= 0.3] + [o for o in self.old if draw() < 0.5]
        self.old = [o for o in self.old + list(now) if draw() < 0.3][-1000:]
        self.luck.shuffle(said)
        return said


def truth(seed: int, failures: float) -> MachineBehaviour:
    """Machines on which jobs take seconds to stop, and fail now and then; checkpoints are always
    up to date.
    """

    def stop_s(order: Order) -> float:
        return random.Random(f"{seed} {order.job_id} {order.generation}").choice((0, 0, 5.0, 45.0))

    return MachineBehaviour(
        rate=lambda o: RATES[o.gpu_type, o.gpus],
        colocated_rate=lambda o, other: 0.8 * RATES[o.gpu_type, o.gpus],
        stop_s=stop_s,
        pause_s=lambda o, again: 3.0,
        failures_per_gpu_hour=failures,
        seed=seed,
    )


class World:
    """A run of the controller from a queue with jobs until all are over, with faults. groups: jobs
    may run on the same GPUs, and policies that like that, and those that do not, decide in turn; by
    the seed on those of one job, or of several and idle ones. nodes: the pools are on nodes, which
    are drained, fail and come back."""

    def __init__(
        self, queue_name: str, seed: int, *, faults: int, groups: bool = False, nodes: bool = False
    ) -> None:
        draw = random.Random(seed)
        self.draw, self.seed, self.nodes, self.groups = draw, seed, nodes, groups
        # allocations that ran on GPUs of several jobs, or on idle ones too
        self.joined_several = 0
        self.node_changes = 0
        self.clock = SimulatedClock(NOW)
        files, self.gpus = (GROUPED, 5) if groups else (PLACED if nodes else FILES, 8)
        most = f"max_primaries = {3 if seed % 3 else 1}\n"
        source = cluster(**{**files, "config.toml": most + files["config.toml"]})
        self.queue = Queue.create(queue_name, source, clock=self.clock.now)
        self.machines = SimulatedMachines(
            {"a": self.gpus, "b": 1 if groups else 4},
            self.clock,
            truth(seed, draw.choice((0.0, 0.0, 2.0))),
            nodes={"n1": 4, "n2": 4, "n3": 2, "n4": 2} if nodes else {},
        )
        kinds = ("crash", "crash", "crash", "pause", "later", "lost")
        plan = {draw.randrange(1, 320): draw.choice(kinds) for _ in range(faults)}
        self.fate = Fate(plan, self.another)
        self.bad_rounds = draw.choice((0.0, 0.0, 0.3)) if faults else 0.0
        self.unreliable, self.held_up = bool(faults) and draw.random() < 0.3, False
        self.expected: dict[str, str] = {}
        self.least: dict[str, float] = {}
        self.looks = self.crashes = 0
        self.costs_by_tenant = 0.0
        self.booked_s: float | None = None
        self.other: Controller | None = None
        self.controller = self.new()

    def new(self, fate: Fate | None = None) -> Controller:
        """A controller that knows nothing but the database."""
        fate = fate or self.fate
        seed = self.seed if self.unreliable and fate is self.fate else None
        quiet, fate.quiet = fate.quiet, True
        try:
            return Controller(
                FaultyStore(self.queue.store, fate),
                FaultyExecutor(SimulatedExecutor(self.machines), fate, seed),
                self.clock,  # type: ignore[arg-type]
                ControllerOptions(
                    every_s=EVERY_S,
                    poll_s=LOOK_S,
                    react_s=30.0,
                    policy="greedy",
                    stall_s=1e9,
                    retries=Retries(most=1000, first_s=10.0, most_s=40.0),
                ),
                decide=self.decide,
            )
        finally:
            fate.quiet = quiet

    def decide(self, problem: Any, **effort: Any) -> Decision:
        """A policy that fails now and then, in every way there is."""
        if self.draw.random() < self.bad_rounds:
            raise self.draw.choice(FAILURES)
        if self.groups:
            effort["policy"] = self.draw.choice(("ffs", "ffs", "ffs", "bsbf", "greedy", "srtf"))
        return decide_round(problem, **effort)

    def another(self) -> None:
        """This controller is paused for long; another one takes over meanwhile, and acts."""
        self.held_up = True
        if self.other is None:
            self.other = self.new(Fate({}, lambda: None))
        self.clock.sleep(3 * EVERY_S)
        for _ in range(self.draw.randrange(1, 5)):
            self._step(self.other)
            self.clock.sleep(LOOK_S)

    def submit(self, **job: Any) -> None:
        """What the queue has acknowledged must be done."""
        self.expected[self.queue.submit(**{"memory_gb": 4, **job}).job_id] = "done"

    def script(self) -> None:
        """What users do, by the number of the look."""
        n, draw = self.looks, self.draw
        if n == 0:
            for i, k in enumerate((1, 2, 1, 4, 4)):
                size = {"min_gpus": k, "max_gpus": k} if self.groups else {"max_gpus": 4}
                work = (60.0 + 40 * i) * (2 * k if self.groups else 1)
                self.submit(job_id=f"j{i}", model="m", total_work=work, **size)
            self.submit(job_id="endless", model="n", total_work=1e7, max_gpus=1)
        elif n == 3:
            self.submit(job_id="late", model="m", total_work=150.0, max_gpus=2, weight=3)
            with suppress(Refused):  # it is done by now
                self.queue.hold("j4")
        elif n == 6:
            self.queue.cancel("endless")
            self.expected["endless"] = "cancelled"
        elif n == 9:
            with suppress(Refused):
                self.queue.release("j4")
        elif self.nodes and n > 3:
            self.change_nodes()
        elif n in (12, 20) and draw.random() < 0.5:
            self.machines.set_gpus("a", draw.choice((self.gpus // 2, self.gpus)))
        elif n == 24:
            self.machines.set_gpus("a", self.gpus)

    def change_nodes(self) -> None:
        """What happens to nodes: they are drained, fail, and come back."""
        draw, node = self.draw, self.draw.choice(("n1", "n2", "n3", "n4"))
        if self.looks == 24:
            self.queue.change_nodes("n1", "n2", "n3", "n4", state="up")
        elif self.looks < 24 and draw.random() < 0.4:
            state = draw.choice(("up", "drain", "down"))
            if state == "down":
                self.machines.lose_node(node)
            self.queue.change_nodes(node, state=state)
            self.node_changes += 1

    def run(self) -> None:
        """Until everything is over."""
        while self.looks < 400:
            self.script()
            self._step(self.controller)
            self.check()
            self.looks += 1
            self.clock.sleep(LOOK_S)
            if self.looks > 26 and self.over():
                break
        self.check_end()

    def _step(self, controller: Controller) -> None:
        """One look; a crash makes another controller."""
        try:
            controller.step()
        except (Standby, LeaseLost, QueueUnavailable):
            pass
        except CrashHere:
            self.crashes += 1
            self.controller = self.new()

    def over(self) -> bool:
        counts = self.queue.counts()
        return (
            not sum(counts[s] for s in ("queued", "running", "paused", "held"))
            and not self.machines.observe()
        )

    def check(self) -> None:
        """What holds at every moment."""
        self.require(self.machines.breaches == [])
        t = allocations.c
        with self.queue.store.read() as connection:
            held = sa.select(t.pool, sa.func.sum(t.held_gpus)).group_by(t.pool)
            held = held.where(t.phase.in_(OPEN), t.held_gpus > 0)
            used = dict(connection.execute(held).all())
            self._check_holders(connection)
            most = dict(connection.execute(sa.select(pools.c.pool, pools.c.gpus)).all())
            numbers = [*connection.execute(sa.select(rounds.c.number).order_by("number")).scalars()]
            left = dict(connection.execute(sa.select(jobs.c.job_id, jobs.c.remaining_work)).all())
            self._check_books(connection)
            for row in read_nodes(connection):
                self.require(row["used"] <= row["gpus"])
                most[row["pool"]] = 8 if row["pool"] == "a" else 4
        self.require(all(used[p] <= most[p] for p in used))
        self.require(numbers == list(range(1, len(numbers) + 1)))
        self.require(set(self.expected) <= set(left))
        for job_id, work in left.items():
            self.require(work <= self.least.get(job_id, work) + 1e-9, job_id, "lost work")
        self.least = left

    def require(self, holds: bool, *about: object) -> None:
        """An assertion that tells the story where it fails."""
        story = f"seed {self.seed}, look {self.looks}: {self.fate.log}; {self.machines.breaches}"
        assert holds, (*about, story)

    def _check_holders(self, connection: Any) -> None:
        """A job holds its GPUs but those of its primary jobs, which share them with it alone."""
        t = allocations.c
        columns = (t.job_id, t.pool, t.gpus, t.host, t.held_gpus)
        rows = connection.execute(sa.select(*columns).where(t.phase.in_(OPEN))).all()
        gpus = {r.job_id: r.gpus for r in rows if not r.host}
        named = [(r.pool, name) for r in rows if r.host for name in r.host.split("|")]
        self.require(len(set(named)) == len(named))
        for row in rows:
            primaries = row.host.split("|") if row.host else []
            own = row.gpus - sum(gpus[name] for name in primaries)
            self.require(row.held_gpus == own >= 0)

    def _check_books(self, connection: Any) -> None:
        """Every second of every allocation is billed once: the books have what GPUs were held for,
        up to the last round. An end that is observed late, or by a controller that was paused while
        another one billed, was billed until it was known."""
        kept = json.loads(get_meta(connection, "longrun") or "{}")
        if not kept:
            return
        begin, self.booked_s = self.booked_s, kept["at_s"]
        t, begin = allocations.c, kept["account"]["opened_s"] if begin is None else begin
        changes: dict[tuple[str, int], list[tuple[float, int]]] = {}
        several = set()
        for r in connection.execute(sa.select(turns).order_by(turns.c.id)):
            changes.setdefault((r.job_id, r.generation), []).append((r.at_s, r.held_gpus))
            if r.host and ("|" in r.host or r.held_gpus):
                several.add((r.job_id, r.generation))
        self.joined_several = len(several)
        for name, generation, pool, gpus, ordered, ended in connection.execute(
            sa.select(t.job_id, t.generation, t.pool, t.gpus, t.ordered_s, t.ended_s)
        ).all():
            end = (ended or kept["at_s"], 0)
            steps = [(ordered, gpus), *changes.get((name, generation), []), end]
            for (start, own), (end, _) in itertools.pairwise(steps):
                billed_s = max(0.0, min(end, kept["at_s"]) - max(start, begin))
                self.costs_by_tenant += own * PRICES[pool] / 3600 * billed_s
        account, late = kept["account"], 10.0 if self.unreliable or self.held_up else 1e-6
        self.require(-1e-6 <= account["spent"] - self.costs_by_tenant <= late, account)
        income = 1000 * (kept["at_s"] - account["opened_s"]) / 3600
        self.require(abs(account["income"] - income) < 1e-6, account)

    def check_end(self) -> None:
        """The queue as a run without faults leaves it."""
        found, t, r = {j.job_id: j for j in self.queue.jobs()}, allocations.c, rounds.c
        self.require({n: j.state for n, j in found.items()} == self.expected)
        with self.queue.store.read() as connection:
            work = sa.select(t.job_id, sa.func.sum(t.work_done)).group_by(t.job_id)
            done = dict(connection.execute(work).all())
            kept = connection.execute(sa.select(r.snapshot, r.snapshot_digest, r.plan, r.outcome))
            for row in kept:
                self.require((row.plan is None) == (row.outcome == "failed"))
                digest = snapshots.unpack_snapshot(row.snapshot).digest
                self.require(digest == row.snapshot_digest)
        for name, job in found.items():
            if job.state == "done":
                self.require(abs(done[name] - job.total_work) < 1e-6, name)
                self.require(job.remaining_work == 0, name)
        self.require(not [*self.machines.observe(), *filter(None, self.machines.used.values())])
        self._check_journal()

    def _check_journal(self) -> None:
        """Every round with nodes is decided again to the same bytes, and every allocation in a pool
        with nodes names them."""
        if not self.nodes:
            return
        with self.queue.store.read() as connection:
            texts = connection.execute(sa.select(allocations.c.nodes, allocations.c.gpus)).all()
            decided = sa.select(rounds.c.number).where(rounds.c.plan.is_not(None))
            numbers = list(connection.execute(decided).scalars())
        assert all(sum(p.gpus for p in parse_parts(text)) == gpus for text, gpus in texts)
        for number in self.draw.sample(numbers, min(3, len(numbers))):
            found = replay(self.queue.store, number)
            self.require(found.same and found.is_digest_valid, number, found.first)
