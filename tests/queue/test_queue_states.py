"""The states of jobs against a model of a few lines: owners, a controller and an executor in any
order (SQLite).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from queues import Clock, Controller, Seen, fresh

from allocator.domain.rules.snapshot_rules import validate
from allocator.queue import cluster_tables
from allocator.queue.database.schema import OPEN, allocations
from allocator.queue.errors import Refused
from allocator.queue.holdings import VERBS, Retries
from allocator.queue.queue import Queue
from allocator.queue.snapshot import PreviousRows, build_snapshot

JOBS = ("j0", "j1", "j2")
WORK = 100.0
SEEN = ("running", "running", "stopped", "finished", "failed", "lost")
WORKS = (0.0, 5.0, 20.0, 60.0)


@dataclass
class Model:
    """What a job must be, by the words of the documentation."""

    state: str = "queued"
    request: str = ""
    began: bool = False
    failures: int = 0
    left: float = WORK
    done: float = 0.0  # by the open allocation
    open: tuple[str, int] | None = None  # what it holds

    @property
    def idle(self) -> str:
        return "paused" if self.began else "queued"

    def verb(self, verb: str) -> bool:
        """Whether it is allowed; it is done then."""
        over, running = self.state in ("done", "cancelled", "failed"), self.state == "running"
        if self.state == "done" or (verb != "cancel" and self.request == "cancel"):
            return False
        if (over and verb in ("hold", "release")) or (self.state == "held" and verb == "retry"):
            return False
        if verb == "hold":
            self.request, self.state = ("hold", self.state) if running else ("", "held")
        elif verb == "release":
            self.request, self.state = "", self.idle if self.state == "held" else self.state
        elif verb == "cancel":
            self.request, self.state = ("cancel", self.state) if running else ("", "cancelled")
        else:
            self.failures, self.state = 0, self.idle if over else self.state
        return True

    def end(self, phase: str, work: float, most: int) -> None:
        self.done = max(self.done, min(work, self.left))
        if phase in ("finished", "failed") or self.done > 0:
            self.began = True
        self.left = 0.0 if phase == "finished" else self.left - self.done
        if phase == "failed":
            self.failures += 1
        elif phase == "finished" or (phase == "stopped" and self.done > 0):
            self.failures = 0
        if phase == "finished":
            self.state = "done"
        elif self.request == "cancel":
            self.state = "cancelled"
        elif phase == "failed" and self.failures >= most:
            self.state = "failed"
        else:
            self.state = "held" if self.request == "hold" else self.idle
        self.request, self.open, self.done = "", None, 0.0


class Life:
    """Three jobs on eight GPUs."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.clock, self.queue = clock, queue
        queue.submit_many(
            [{"job_id": j, "model": "m", "total_work": WORK, "max_gpus": 8} for j in JOBS]
        )
        self.control = Controller(queue)
        self.rows = PreviousRows()
        self.retries = Retries(most=2, first_s=0.0)
        self.model = {j: Model() for j in JOBS}

    def owner(self, job: str, verb: str) -> None:
        """Verbs are allowed exactly where the model allows them, also twice in a row."""
        for _ in range(2):
            if self.model[job].verb(verb):
                getattr(self.queue, verb)(job)
            else:
                with pytest.raises(Refused):
                    getattr(self.queue, verb)(job)

    def decide(self, wanted: dict[str, tuple[str, int]], order: bool) -> None:
        """Wants are those of the round, but nothing for jobs that may not run."""
        self.control.want(**wanted)
        for job in self.queue.jobs():
            model = self.model[job.job_id]
            free = model.state in ("queued", "paused", "running") and model.request == ""
            assert (job.want_pool, job.want_gpus) == (
                wanted.get(job.job_id, ("", 0)) if free else ("", 0)
            )
        if order:
            self.order()

    def order(self) -> None:
        """Stops are of what is not wanted, starts fit, and both said again say the same."""
        stops = {name for name, _ in self.control.stops()}
        assert stops == {name for name, _ in self.control.stops()}
        for name in stops:
            assert self.model[name].open is not None
        starts = self.control.starts()
        assert starts == self.control.starts()
        for name, _ in starts:
            job, model = self.queue.job(name), self.model[name]
            if model.open is None:
                assert model.state in ("queued", "paused")
                model.open, model.state = (job.want_pool, job.want_gpus), "running"

    def executor(self, pick: int, phase: str, work: float, other: int) -> None:
        """Observations of the open allocation move the job, all others are as if never made."""
        self.clock.now += 1
        older, holding = other == 0, [name for name, model in self.model.items() if model.open]
        job = JOBS[pick] if other == 1 or not holding else holding[pick % len(holding)]
        before, model = self.queue.job(job), self.model[job]
        one = Seen(job, before.generation - older, self.clock.now, phase, work)
        changes = self.control.see(one, one, retries=self.retries)
        if model.open is None or older:
            assert changes == [] and self.queue.job(job) == before
        elif phase == "running":
            model.began, model.done = True, max(model.done, min(work, model.left))
        else:
            model.end(phase, work, self.retries.most)

    def agrees(self) -> None:
        for job in self.queue.jobs():
            model = self.model[job.job_id]
            assert (job.state, job.request, job.failures) == (
                model.state,
                model.request,
                model.failures,
            )
            assert job.remaining_work == pytest.approx(model.left - model.done)

    def machines_and_snapshot(self) -> None:
        """No pool beyond its GPUs; open allocations are those of the model; the snapshot is
        valid and says the same, also with the rows of the snapshot before.
        """
        with self.queue.store.read() as connection:
            used, capacity_by_pool = (
                cluster_tables.used(connection),
                cluster_tables.gpus(connection),
            )
            warm = build_snapshot(connection, self.clock.now, self.rows)
            assert warm == build_snapshot(connection, self.clock.now)
            held = {
                row.job_id: (row.pool, row.gpus)
                for row in connection.execute(
                    sa.select(allocations).where(allocations.c.phase.in_(OPEN))
                )
            }
        assert all(used[pool] <= capacity_by_pool[pool] for pool in capacity_by_pool)
        assert held == {name: model.open for name, model in self.model.items() if model.open}
        jobs = validate(warm).jobs
        assert set(jobs.job_id) == {
            name
            for name, model in self.model.items()
            if model.request != "cancel" and model.state not in ("done", "cancelled", "failed")
        }


def take_step(life: Life, chance: random.Random) -> None:
    """Anybody does something; the controller and the executor get on with their work."""
    what = chance.random()
    if what < 0.25:
        life.owner(chance.choice(JOBS), chance.choice((*VERBS, "release", "retry")))
    elif what < 0.5:
        wanted = {
            j: (chance.choice("aab"), chance.randrange(1, 7)) for j in JOBS if chance.random() < 0.7
        }
        life.decide(wanted, chance.random() < 0.8)
    elif what < 0.6:
        life.order()
    else:
        pick, phase = chance.randrange(3), chance.choice(SEEN)
        life.executor(pick, phase, chance.choice(WORKS), chance.randrange(10))
    life.agrees()
    life.machines_and_snapshot()


@pytest.mark.parametrize(
    ("seed", "left"),
    [
        (0, 80),
        pytest.param(1, 2000, marks=pytest.mark.nightly),
        *(pytest.param(seed, 5000, marks=pytest.mark.soak) for seed in range(2, 30)),
    ],
)
def test_random_lives(seed: int, left: int, tmp_path: Path) -> None:
    """Two hundred steps, two thousand, and many lives of five thousand."""
    chance = random.Random(seed)
    while left:
        (folder := tmp_path / str(left)).mkdir()
        clock = Clock()
        with fresh("sqlite", folder, clock=clock) as queue:
            life = Life(queue, clock)
            while left and any(model.state != "done" for model in life.model.values()):
                take_step(life, chance)
                left -= 1


def test_pauses_after_failures() -> None:
    """30 s doubled each time, at most an hour, for any number of failures."""
    retries = Retries(most=10**6)
    assert [retries.wait_s(n) for n in (1, 7, 8, 2000)] == [30, 1920, 3600, 3600]
