"""Jobs through two controllers on a real cluster under a seeded storm; the jobs' own stamps are the
witness: nothing is lost, nothing runs twice, no GPU has two jobs at any instant, and what differs
from its plan is noticed.

    python storms.py KIND QUEUE STATE     a controller, which may be killed: `allocator run QUEUE
                                          --executor KIND` with less patience
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from allocator.cli.queue.run import stop_on_signals
from allocator.clusters.ray import api
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.telemetry import Telemetry
from allocator.executors.ray.executor import RayExecutor
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.queue.database.connection import open_queue
from allocator.queue.database.schema import allocations
from allocator.queue.holdings import Retries, parse_parts
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


class Storm:
    """Jobs, controllers, and faults by a seed, on a cluster that a subclass hurts."""

    kind: str  # of the executor
    environment: Mapping[str, str]  # of a controller
    harm: Mapping[str, Callable[[Any], None]]
    differences: tuple[str, ...] = ("asked for",)  # in the end of what differed from its plan
    pause_s = 1.5  # seconds between two faults, on average

    def __init__(self, folder: Path, jobs: int, seed: int, tables: Mapping[str, str]) -> None:
        from queues import cluster

        self.folder, self.luck = folder, random.Random(seed)
        self.queue, self.state, self.stamps = folder / "q.db", folder / "state", folder / "stamps"
        self.mended = 0  # allocations that got something else than the plan said
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
        """Until all jobs are done; then look at what they did."""
        deadline = time.monotonic() + limit_s
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
        assert not open_jobs, (open_jobs, (self.folder / "log").read_text()[-5000:])
        self.check()
        print(self.describe())
        assert sum(self.faults.values()) > 3

    def list_open(self) -> list[str]:
        with Queue(str(self.queue)) as queue:
            return [one.job_id for one in queue.jobs() if one.state != "done"]

    def start_controller(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.controllers.append(
                subprocess.Popen(
                    [sys.executable, __file__, self.kind, str(self.queue), str(self.state)],
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

    def check(self) -> None:
        """What the jobs say of themselves, and what the queue says of them."""
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
        for job, steps in self.steps.items():
            said = [n for span in spans if span.job == job for n in span.steps]
            assert said == sorted(said) and said[-1] == steps
            worked = [n for span in spans if span.job == job for n in sorted(set(span.steps[1:]))]
            assert len(worked) - len(set(worked)) <= len(spans)
            saved = self.state / "jobs" / job / "work" / "checkpoint"
            assert int(saved.read_text()) == steps
        assert os.listdir(self.state / "open") == []

    def describe(self) -> str:
        """What happened."""
        spans = len(read_spans(self.stamps))
        return f"{len(self.steps)} jobs, {spans} runs, {self.mended} mended; {self.faults}"


def run_controller(kind: str, queue: str, state: str) -> None:
    """Run a controller until a signal comes."""
    api.TIMEOUT_S = 2.0
    clock, limits = WallClock(), {"grace_s": 3.0, "lease_s": 3.0}
    executor: Any = (
        RayExecutor(Path(state), patience_s=20.0, **limits)
        if kind == "ray"
        else SlurmExecutor(Path(state), patience_s=5.0, **limits)
    )
    options = ControllerOptions(
        every_s=4.0, react_s=0.5, poll_s=0.5, retries=Retries(most=100, first_s=0.5, factor=1.0)
    )
    log = Telemetry(clock.now, sys.stderr)
    controller = Controller(open_queue(queue), executor, clock, options, telemetry=log)
    with stop_on_signals(controller, clock.wake):
        controller.run()


if __name__ == "__main__":
    run_controller(*sys.argv[1:])
