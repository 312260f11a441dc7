"""Jobs through two controllers on a real cluster under a seeded storm; the jobs' own stamps are the
witness: nothing is lost, nothing runs twice, no GPU has two jobs at any instant, and what differs
from its plan is noticed in time.
"""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from queues import cluster
from slurm_controller import EVERY_S

from allocator.executors.supervision.batch import LONGER_AT_MOST
from allocator.queue.database.schema import allocations, rounds
from allocator.queue.node_space import parse_parts
from allocator.queue.queue import Queue

RATES = "model,gpu_type,gpus,work_per_s\nm,A,1,3\nm,A,2,5\nm,A,4,8\nm,B,1,2\nm,B,2,4\nm,B,4,7\n"
SCRIPT = """
stamp() {
    echo "$1 $ALLOCATOR_JOB $ALLOCATOR_GENERATION $EPOCHREALTIME \\
${SLURMD_NODENAME:-${ALLOCATOR_NODES%%:*}} $CUDA_VISIBLE_DEVICES $ALLOCATOR_GPUS $n" >> $STAMPS
}
n=$(cat checkpoint 2>/dev/null || echo 0)
stamp start
# the step that was being done when the signal came is not in the checkpoint
trap 'n=$(cat checkpoint 2>/dev/null || echo 0); stamp end; exit 143' TERM
while [ $n -lt $STEPS ]; do
    sleep 0.3
    n=$((n + 1)); echo $n > new; mv new checkpoint
    echo "$n $n" > $ALLOCATOR_PROGRESS.new; mv $ALLOCATOR_PROGRESS.new $ALLOCATOR_PROGRESS
    stamp step
done
stamp end
"""


@dataclass(frozen=True)
class Span:
    """An allocation as its job saw it, from its first stamp to its last."""

    job: str
    generation: int
    begin_s: float
    end_s: float
    node: str
    indices: tuple[str, ...]
    gpus: int
    steps: tuple[int, ...]


def read_spans(path: Path) -> list[Span]:
    """The allocations of the stamps, in the order of their starts."""
    stamps: dict[tuple[str, int], list[list[str]]] = {}
    for line in path.read_text().splitlines():
        words = line.split()
        stamps.setdefault((words[1], int(words[2])), []).append(words)
    spans = []
    for (job, generation), lines in stamps.items():
        assert [words[0] for words in lines].count("start") == 1, f"{job} {generation} ran twice"
        times = [float(words[3]) for words in lines]
        indices, steps = tuple(lines[0][5].split(",")), tuple(int(w[7]) for w in lines)
        where, gpus = lines[0][4], int(lines[0][6])
        spans.append(Span(job, generation, min(times), max(times), where, indices, gpus, steps))
    return sorted(spans, key=lambda span: span.begin_s)


def find_overlaps(spans: list[Span], key: Callable[[Span], list[str]]) -> list[tuple[Span, Span]]:
    """Pairs of allocations with a key in common that ran at the same time."""
    last: dict[str, Span] = {}
    found = []
    for span in spans:
        for name in key(span):
            if name in last and span.begin_s < last[name].end_s:
                found.append((last[name], span))
            if name not in last or span.end_s > last[name].end_s:
                last[name] = span
    return found


@dataclass(frozen=True)
class Loss:
    """An allocation that was lost, and how long it took until the queue said so: since the last
    stamp of its job, which still had what the plan said; without a stamp since its order.
    """

    job: str
    generation: int
    has_run: bool
    took_s: float
    silence_s: float  # of that time no round was made though one was due
    patience_s: float  # that the executor declares
    detail: str  # why it was lost

    @property
    def late_s(self) -> float:
        """How much longer than declared it took; negative if it was in time."""
        return self.took_s - EVERY_S - self.patience_s - self.silence_s


def measure_silence(times: Sequence[float], begin_s: float, end_s: float) -> float:
    """The seconds between two instants in which a round was overdue, as no controller or no
    cluster answered. `times` are those of all rounds.
    """
    return sum(
        max(0.0, min(after, end_s) - max(before + EVERY_S, begin_s))
        for before, after in itertools.pairwise([*sorted(times), end_s])
    )


class Storm:
    """Jobs, controllers, and faults by a seed, on a cluster that a subclass hurts."""

    child: Path  # program of a controller
    environment: Mapping[str, str]  # of a controller
    harm: Mapping[str, Callable[[Any], None]]
    differences: tuple[str, ...] = ("asked for",)  # in the end of what differed from its plan
    # By what its executor declares, an allocation has started or is lost after `starts_s` (it may
    # wait once to be submitted, and twice to start), twice and four times that after one and two
    # lost starts in succession; a job that was hit has ended or counts as dead after `ends_s`
    # (grace and lease). A job that the cluster itself lists as running is never believed dead; what
    # ends with the cluster's own words may take `cluster_s` more, until the cluster knows it.
    starts_s: float
    ends_s: float
    cluster_s = 0.0
    own_words: str  # how the end of an allocation begins of which the cluster said that it ended
    pause_s = 1.5  # seconds between two faults, on average

    def __init__(self, folder: Path, jobs: int, seed: int, tables: Mapping[str, str]) -> None:
        self.folder, self.luck = folder, random.Random(seed)
        self.queue, self.state, self.stamps = folder / "q.db", folder / "state", folder / "stamps"
        self.mended = 0  # allocations that got something else than the plan said
        self.noticed: dict[tuple[str, int], float] = {}  # when the queue first had it as lost
        self.losses: list[Loss] = []
        self.controllers: list[subprocess.Popen[bytes]] = []
        self.faults: dict[str, int] = {}
        self.steps = {f"j{i}": self.luck.randrange(5, 25) for i in range(jobs)}
        small = cluster(**{"rates.csv": RATES, "tenants.csv": "tenant\nred\n", **tables})
        with Queue.create(str(self.queue), small) as queue:
            for name, steps in self.steps.items():
                queue.submit(
                    job_id=name,
                    model="m",
                    tenant="red",
                    total_work=steps,
                    max_gpus=4,
                    placement="packed",
                    sizes=self.luck.choice(([1], [1, 2], [1, 2, 4], [2, 4])),
                    command=["bash", "-c", SCRIPT],
                    environment={"STAMPS": str(self.stamps), "STEPS": str(steps)},
                )

    def run(self, limit_s: float) -> None:
        """Until all jobs are done."""
        deadline = time.monotonic() + limit_s
        over = threading.Event()
        watcher = threading.Thread(target=self.watch_losses, args=(over,))
        watcher.start()
        try:
            for _ in range(2):
                self.start_controller()
            while self.list_open() and time.monotonic() < deadline:
                time.sleep(self.luck.random() * 2 * self.pause_s)
                name = self.luck.choice([*self.harm])
                self.faults[name] = self.faults.get(name, 0) + 1
                self.harm[name](self)
            self.heal()
            while (open_jobs := self.list_open()) and time.monotonic() < deadline + 60:
                time.sleep(1.0)
        finally:
            for child in self.controllers:
                child.terminate()
            for child in self.controllers:
                child.wait(60)
            over.set()
            watcher.join()
        assert not open_jobs, (open_jobs, (self.folder / "log").read_text()[-5000:])

    def watch_losses(self, over: threading.Event) -> None:
        """Note when the queue first says of an allocation that it was lost."""
        lost = "SELECT job_id, generation FROM allocations WHERE phase = 'lost'"
        with closing(sqlite3.connect(f"file:{self.queue}?mode=ro", uri=True)) as connection:
            is_last = False
            while not is_last:
                is_last = over.wait(0.2)
                with suppress(sqlite3.OperationalError):  # it is locked
                    for key in connection.execute(lost).fetchall():
                        self.noticed.setdefault(key, time.time())

    def list_losses(self, spans: list[Span]) -> list[Loss]:
        """All allocations that were lost."""
        last_s = {(span.job, span.generation): span.end_s for span in spans}
        with Queue(str(self.queue)) as queue, queue.store.read() as connection:
            times = [row.at_s for row in connection.execute(sa.select(rounds.c.at_s))]
            rows = connection.execute(
                sa.select(allocations)
                .where(allocations.c.phase == "lost")
                .order_by(allocations.c.generation)
            ).all()
        found: list[Loss] = []
        for row in rows:
            key = (row.job_id, row.generation)
            last_run = max(
                (n for job, n in last_s if job == row.job_id and n < row.generation), default=0
            )
            lost_starts = sum(one.job == row.job_id and one.generation > last_run for one in found)
            begin_s, noticed_s = last_s.get(key, row.ordered_s), self.noticed[key]
            silence_s = measure_silence(times, begin_s, noticed_s)
            starts_s = self.starts_s * 2 ** min(lost_starts, LONGER_AT_MOST)
            ends_s = self.ends_s + self.cluster_s * row.detail.startswith(self.own_words)
            patience_s = ends_s if key in last_s else starts_s
            took_s = noticed_s - begin_s
            found.append(Loss(*key, key in last_s, took_s, silence_s, patience_s, row.detail))
        return found

    def list_open(self) -> list[str]:
        with Queue(str(self.queue)) as queue:
            return [one.job_id for one in queue.jobs() if one.state != "done"]

    def start_controller(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.controllers.append(
                subprocess.Popen(
                    [sys.executable, str(self.child), str(self.queue), str(self.state)],
                    env={**os.environ, **self.environment},
                    stderr=log,
                )
            )

    def kill_controller(self) -> None:
        child = self.controllers.pop(self.luck.randrange(len(self.controllers)))
        child.kill()
        child.wait()
        self.start_controller()

    def heal(self) -> None:
        """Bring all nodes back."""

    def check(self, slack_s: float) -> None:
        """What the jobs say of themselves, and what the queue says of them. A loss may be noticed
        `slack_s` later than declared.
        """
        spans = read_spans(self.stamps)
        assert find_overlaps(spans, lambda span: [span.job]) == []
        cards = find_overlaps(spans, lambda span: [f"{span.node}:{i}" for i in span.indices])
        assert cards == []
        with Queue(str(self.queue)) as queue, queue.store.read() as connection:
            rows = connection.execute(sa.select(allocations)).all()
        ordered = {(row.job_id, row.generation): row for row in rows}
        for span in spans:
            row = ordered[span.job, span.generation]
            [part] = parse_parts(row.nodes)
            assert (span.node, len(span.indices), span.gpus) == (part.node, row.gpus, row.gpus)
        differed = [row for row in rows if any(words in row.detail for words in self.differences)]
        assert {row.phase for row in differed} <= {"lost"}
        self.mended = len(differed)
        self.losses = self.list_losses(spans)
        late = [loss for loss in self.losses if loss.late_s > slack_s]
        assert not late, late
        for job, steps in self.steps.items():
            said = [n for span in spans if span.job == job for n in span.steps]
            assert said == sorted(said) and said[-1] == steps
            worked = [n for span in spans if span.job == job for n in sorted(set(span.steps[1:]))]
            assert len(worked) - len(set(worked)) <= len(spans)
            saved = self.state / "jobs" / job / "work" / "checkpoint"
            assert int(saved.read_text()) == steps
        assert os.listdir(self.state / "open") == []

    def describe(self) -> str:
        """What happened, how many losses there were, and how long it took to notice them."""
        spans = len(read_spans(self.stamps))
        words = [f"{len(self.steps)} jobs, {spans} runs, {self.mended} mended; {self.faults}"]
        for has_run, when in ((True, "after their start"), (False, "before their start")):
            some = [one for one in self.losses if one.has_run == has_run]
            most_s = max((one.took_s for one in some), default=0.0)
            over_s = max((one.took_s - one.silence_s for one in some), default=0.0)
            words.append(
                f"{len(some)} lost {when}: at most {most_s:.1f} s, {over_s:.1f} s without silence"
            )
        return "; ".join(words)
