"""Jobs through two controllers on a real Slurm under a seeded storm; the jobs' own stamps are the
witness: nothing is lost, nothing runs twice, no GPU has two jobs at any instant, and every job has
the GPUs and the node of its plan, or never starts and is lost, so that the next round mends it.

Nodes are drained and resumed, slurmd and slurmctld are killed and started again, controllers are
killed with -9, and users cancel, change and requeue jobs, and submit jobs of their own.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from queues import cluster
from slurm_cluster import FakeNodes, SlurmCluster

from allocator.queue.database.schema import allocations
from allocator.queue.node_space import parse_parts
from allocator.queue.queue import Queue

NODES = (FakeNodes("a", "n", 4, "a100", 4), FakeNodes("b", "v", 2, "v100", 8))
LISTED = "node,pool,gpus\n" + "".join(
    f"{name},{group.partition},{group.gpus}\n" for group in NODES for name in group.names
)
POOLS = "pool,gpu_type,gpus,price_per_gpu_hour\na,A,16,2.5\nb,B,16,1\n"
RATES = "model,gpu_type,gpus,work_per_s\nm,A,1,3\nm,A,2,5\nm,A,4,8\nm,B,1,2\nm,B,2,4\nm,B,4,7\n"
CHILD = Path(__file__).parents[1] / "support" / "processes" / "slurm_controller.py"
SCRIPT = """
stamp() {
    echo "$1 $ALLOCATOR_JOB $ALLOCATOR_GENERATION $EPOCHREALTIME $SLURMD_NODENAME \\
$CUDA_VISIBLE_DEVICES $ALLOCATOR_GPUS $n" >> $STAMPS
}
n=$(cat checkpoint 2>/dev/null || echo 0)
stamp start
trap 'stamp end; exit 143' TERM
while [ $n -lt $STEPS ]; do
    sleep 0.3
    n=$((n + 1)); echo $n > new; mv new checkpoint
    echo "$n $n" > $ALLOCATOR_PROGRESS.new; mv $ALLOCATOR_PROGRESS.new $ALLOCATOR_PROGRESS
    stamp step
done
stamp end
"""
PAUSE_S = 1.5  # seconds between two faults, on average


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
    """Jobs, controllers, and faults by a seed."""

    def __init__(self, folder: Path, slurm: SlurmCluster, jobs: int, seed: int) -> None:
        self.folder, self.slurm, self.luck = folder, slurm, random.Random(seed)
        self.queue, self.state, self.stamps = folder / "q.db", folder / "state", folder / "stamps"
        self.mended = 0  # allocations that got something else than the plan said
        self.controllers: list[subprocess.Popen[bytes]] = []
        self.faults: dict[str, int] = {}
        self.steps = {f"j{i}": self.luck.randrange(5, 25) for i in range(jobs)}
        tables = {"pools.csv": POOLS, "rates.csv": RATES, "tenants.csv": "tenant\nred\n"}
        small = cluster(**tables, **{"nodes.csv": LISTED})
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
        for _ in range(2):
            self.start_controller()
        while (open_jobs := self.list_open()) and time.monotonic() < deadline:
            time.sleep(self.luck.random() * 2 * PAUSE_S)
            name = self.luck.choice([*HARM])
            self.faults[name] = self.faults.get(name, 0) + 1
            HARM[name](self)
        self.heal()
        while (open_jobs := self.list_open()) and time.monotonic() < deadline + 60:
            time.sleep(1.0)
        for child in self.controllers:
            child.terminate()
            child.wait(60)
        assert not open_jobs, (open_jobs, (self.folder / "log").read_text()[-5000:])

    def list_open(self) -> list[str]:
        with Queue(str(self.queue)) as queue:
            return [one.job_id for one in queue.jobs() if one.state != "done"]

    def start_controller(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.controllers.append(
                subprocess.Popen(
                    [sys.executable, str(CHILD), str(self.queue), str(self.state)],
                    env={**os.environ, "SLURM_CONF": str(self.slurm.conf)},
                    stderr=log,
                )
            )

    def kill_controller(self) -> None:
        child = self.controllers.pop(self.luck.randrange(len(self.controllers)))
        child.kill()
        child.wait()
        self.start_controller()

    def kill_slurmctld(self) -> None:
        self.slurm.kill("slurmctld")
        time.sleep(self.luck.random())
        self.slurm.start_controller()

    def kill_slurmd(self) -> None:
        """Of a node, for longer or shorter than Slurm waits for it."""
        node = self.luck.choice(self.slurm.node_names)
        self.slurm.kill(node)
        time.sleep(self.luck.choice((0.5, 8.0)))
        self.slurm.start_node(node)

    def drain(self) -> None:
        node = self.luck.choice(self.slurm.node_names)
        self.slurm.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=storm")

    def resume(self) -> None:
        """Every node that is not in service; Slurm drains some by itself."""
        nodes = self.slurm.call("sinfo", "-h", "-N", "-t", "drain,down", "-o", "%N").stdout.split()
        for node in set(nodes):
            self.slurm.call("scontrol", "update", f"nodename={node}", "state=resume")

    def meddle(self) -> None:
        """A user cancels or changes a job of the queue, or tries to."""
        ids = self.slurm.call("squeue", "-h", "-o", "%A").stdout.split()
        if ids:
            job = self.luck.choice(ids)
            command = self.luck.choice(
                (
                    ("scancel", job),
                    ("scontrol", "requeue", job),
                    ("scontrol", "hold", job),
                    ("scontrol", "update", f"JobId={job}", "TresPerNode=gres:gpu:3"),
                )
            )
            self.slurm.call(*command)

    def submit_another(self) -> None:
        """A user has a job of his own, which nobody else may end."""
        partition = self.luck.choice(("a", "b"))
        self.slurm.call(
            "sbatch",
            "--output=/dev/null",
            f"--partition={partition}",
            f"--gres=gpu:{self.luck.randrange(1, 4)}",
            f"--wrap=sleep {self.luck.randrange(2, 8)}",
        )

    def heal(self) -> None:
        self.resume()

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
        differed = [
            row for row in rows if "asked for" in row.detail or "Slurm says: R" in row.detail
        ]
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


HARM: dict[str, Callable[[Storm], None]] = {
    "kill -9 of a controller": Storm.kill_controller,
    "kill -9 of slurmctld": Storm.kill_slurmctld,
    "kill -9 of slurmd": Storm.kill_slurmd,
    "drain": Storm.drain,
    "resume": Storm.resume,
    "all resumed": Storm.resume,
    "meddling": Storm.meddle,
    "job of another": Storm.submit_another,
}


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(NODES, slurmd_timeout_s=5, config="MessageTimeout=5\n") as made:
        yield made


def weather(folder: Path, slurm: SlurmCluster, jobs: int, seed: int, limit_s: float) -> Storm:
    """A storm that was survived."""
    storm = Storm(folder, slurm, jobs, seed)
    storm.run(limit_s)
    storm.check()
    print(
        f"{jobs} jobs, {len(read_spans(storm.stamps))} allocations, {storm.mended} differed from"
        f" their plan and were mended, {sum(storm.faults.values())} faults: {storm.faults}"
    )
    return storm


def test_a_small_storm(tmp_path: Path, slurm: SlurmCluster) -> None:
    """Twenty jobs."""
    storm = weather(tmp_path, slurm, 20, 0, 300.0)
    assert sum(storm.faults.values()) > 3


@pytest.mark.soak
def test_a_storm(tmp_path: Path, slurm: SlurmCluster) -> None:
    """Two hundred jobs."""
    storm = weather(tmp_path, slurm, 200, 1, 900.0)
    assert min(storm.faults.values()) > 1 and len(storm.faults) == len(HARM)
