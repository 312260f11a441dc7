"""The example job under the local executor and on Slurm: checkpoints, another size, progress, and
the same model in the end.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_trainings import list_undisturbed_losses, read_log
from executor_rigs import RIGS, LocalRig
from places import ROOT
from waiting import wait_for

from allocator.executors import example_job, report
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import NodePart, Order, Phase

STEPS = 120
SLOWLY = ("--rate", "6")  # for what is stopped in the middle: it must not end before that


def command(*more: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "allocator.executors.example_job",
        "--steps",
        str(STEPS),
        "--rate",
        "60",
        "--checkpoint-every",
        "0.2",
        *more,
    )


def test_resumes_with_another_size_and_learns_the_same(tmp_path: Path) -> None:
    """Two GPUs, told to stop in the middle; then one GPU, whose supervisor is killed; then four.
    Every start but the first goes on from a checkpoint, the work of the three adds up to all of it,
    the loss falls below half, and the weights are those of a run that was never disturbed."""
    rig = LocalRig(tmp_path)
    executor = rig.current
    folder = rig.folder / "jobs" / "j" / "work"
    left, ends = float(STEPS), []
    for generation, gpus in ((1, 2), (2, 1), (3, 4)):
        speed = SLOWLY if generation < 3 else ()
        executor.start(Order("j", generation, 1, "a", gpus, "A", left, command(*speed)))
        if generation == 1:
            rig.running("j", 25.0)
            executor.stop("j", generation, 1)
        elif generation == 2:
            rig.running("j", 10.0)
            supervisor = read_json(executor.ledger.place("j", generation) / "keeper.json")
            assert supervisor is not None
            os.kill(supervisor["pid"], signal.SIGKILL)
        seen = rig.ended("j")
        executor.acknowledge("j", generation)
        ends.append(seen.phase)
        left -= seen.work_done
    assert ends == [Phase.STOPPED, Phase.LOST, Phase.FINISHED] and left == 0.0
    rows = read_log(folder)
    starts = [(row[1], int(row[2]), row[3]) for row in rows if row[0] == "start"]
    assert [(g, n) for g, _, n in starts] == [("1", "2"), ("2", "1"), ("3", "4")]
    assert starts[0][1] == 0 and 25 <= starts[1][1] < starts[2][1] < STEPS
    assert float(rows[-1][4]) < 0.5 * float(rows[0][4]) and rows[-1][2] == str(STEPS)
    model, (x, y) = example_job.Model(0, np.zeros(20), np.zeros(20)), example_job.make_examples(0)
    for _ in range(STEPS):
        example_job.train(model, x, y, 0, 1)
    assert example_job.load(folder / "checkpoint.npz").weights == pytest.approx(
        model.weights, rel=1e-9
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["slurm", "ray"])
def test_on_a_cluster_it_is_shrunk_moved_and_grown_and_learns_the_same(
    kind: str, tmp_path: Path
) -> None:
    """Two GPUs of a node of a real Slurm or Ray, then one, then one of another node, then three and
    one on both. Each stop writes a checkpoint, each start goes on from it, so no step is done
    twice; every loss of the log is that of the same step of a run that was never disturbed.
    """
    rig = RIGS[kind](tmp_path)
    assert isinstance(rig, LocalRig)
    executor = rig.current
    shapes = [{"n1": 2}, {"n1": 1}, {"n2": 1}, {"n1": 3, "n2": 1}]
    left = float(STEPS)
    for generation, shape in enumerate(shapes, 1):
        nodes = tuple(NodePart(node, gpus) for node, gpus in shape.items())
        gpus = sum(shape.values())
        run = command(*(SLOWLY if generation < len(shapes) else ()))
        order = Order("j", generation, 1, "a", gpus, "A", left, run, nodes=nodes)
        executor.start(order)
        if generation < len(shapes):
            rig.running("j", 8.0)
            executor.stop("j", generation, 1)
        seen = rig.ended("j")
        assert seen.phase is (Phase.STOPPED if generation < len(shapes) else Phase.FINISHED)
        executor.acknowledge("j", generation)
        left -= seen.work_done
    assert left == 0.0
    rows = read_log(rig.folder / "jobs" / "j" / "work")
    steps = [int(row[2]) for row in rows]
    assert steps == sorted(steps) and [row[3] for row in rows if row[0] == "start"] == [*"2114"]
    resumed = [(a[2], b[2]) for a, b in itertools.pairwise(rows) if b[0] == "start"]
    assert all(checkpoint == start for checkpoint, start in resumed)
    curve = list_undisturbed_losses(STEPS)
    assert [float(row[4]) for row in rows] == pytest.approx([curve[n] for n in steps], abs=1e-6)


def test_by_itself(tmp_path: Path) -> None:
    """Without an allocator it trains in its folder, faster on more GPUs; SIGTERM: a checkpoint,
    and exit code 143.
    """
    run = subprocess.Popen(
        [*command("--rate", "10", "--overhead", "0")],
        cwd=tmp_path,
        env={
            **os.environ,
            "ALLOCATOR_GPUS": "8",
            "PYTHONPATH": str(ROOT),
        },
    )
    wait_for((tmp_path / "checkpoint.npz").exists)
    run.terminate()
    assert run.wait() == 143
    last = int(read_log(tmp_path)[-1][2])
    assert example_job.load(tmp_path / "checkpoint.npz").step == last < STEPS
    assert example_job.steps_per_second(8, 10.0, 0.0) == 80.0
    assert example_job.steps_per_second(2, 10.0, 0.5) == pytest.approx(20 / 1.5)


def test_reporting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, replaced; nothing happens outside an allocation."""
    monkeypatch.delenv("ALLOCATOR_PROGRESS", raising=False)
    report.progress(1, 1)
    monkeypatch.setenv("ALLOCATOR_PROGRESS", str(tmp_path / "progress"))
    report.progress(5, 3)
    report.progress(7.5, 5)
    assert (tmp_path / "progress").read_text() == "7.5 5\n"
    assert report.read(tmp_path / "progress") == (7.5, 5.0)
    assert os.listdir(tmp_path) == ["progress"]
