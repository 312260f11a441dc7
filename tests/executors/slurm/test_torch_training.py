"""A training with a real framework (PyTorch on CPUs) that the controller starts, shrinks, moves and
grows on a real Slurm.

It needs a Python with PyTorch, 2.13 or so, which the test extra does not have:

    python -m venv /tmp/torch; /tmp/torch/bin/pip install "torch==2.13.0+cpu" numpy
    ALLOCATOR_TORCH_PYTHON=/tmp/torch/bin/python ./scripts/test -m torch
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from queues import build_stepper, cluster, submit_heavy_job, submit_training
from slurm_cluster import FakeNodes, SlurmCluster

from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.queue.queue import Queue

PYTHON = os.environ.get("ALLOCATOR_TORCH_PYTHON", sys.executable)
TRAINING = Path(__file__).parents[2] / "support" / "clusters" / "torch_training.py"
STEPS, STEP_S = 400, 0.3
TABLES = {
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na,A,6,1\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,3\nm,A,2,6\nm,A,3,9\n",
    "tenants.csv": "tenant\nred\n",
    "nodes.csv": "node,pool,gpus\nn1,a,3\nn2,a,3\n",
}
PATIENCE_S = 90.0


def train(folder: Path, workers: int) -> list[list[str]]:
    """The rows of losses.csv of a training that nobody disturbs."""
    folder.mkdir()
    subprocess.run(
        [PYTHON, TRAINING, "--steps", str(STEPS), "--step-s", "0"],
        env={**os.environ, "ALLOCATOR_GPUS": str(workers), "ALLOCATOR_WORKDIR": str(folder)},
        check=True,
    )
    return read_losses(folder)


def read_losses(folder: Path) -> list[list[str]]:
    """The rows of losses.csv: generation, workers, step, loss."""
    path = folder / "losses.csv"
    return [line.split(",") for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.torch
def test_a_training_learns_the_same_wherever_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers; one, since a heavier job needs the GPUs; one on another node, as its own is
    drained; two and three, as others end. Every loss is that of an undisturbed training, and no
    step is done twice or left out.
    """
    found = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{PYTHON} has no PyTorch; the head of this file says how to get it")
    with SlurmCluster((FakeNodes("a", "n", 2, "a100", 3),)) as slurm:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, slurm.environment[name])
        Queue.create(str(tmp_path / "q.db"), cluster(**TABLES)).close()
        with Queue(str(tmp_path / "q.db")) as queue:
            watch_training(queue, slurm, tmp_path)
    rows = read_losses(tmp_path / "state" / "jobs" / "training" / "work")
    sizes = [int(workers) for _, workers, _, _ in rows]
    assert [int(step) for _, _, step, _ in rows] == list(range(1, STEPS + 1))
    assert [size for i, size in enumerate(sizes) if i == 0 or rows[i - 1][0] != rows[i][0]] == [
        3,
        1,
        1,
        2,
        3,
    ]
    losses = [float(loss) for _, _, _, loss in rows]
    for workers in (1, 3):
        alone = [float(row[3]) for row in train(tmp_path / f"alone-{workers}", workers)]
        print(f"{workers} workers: largest difference {max(map(distance, losses, alone)):.2g}")
        assert losses == pytest.approx(alone, abs=1e-9)
    print(
        f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, rows by size",
        {n: sizes.count(n) for n in sizes},
    )


def distance(a: float, b: float) -> float:
    """How far two losses are apart."""
    return abs(a - b)


def watch_training(queue: Queue, slurm: SlurmCluster, folder: Path) -> None:
    """Let the controller disturb a training by other jobs and a drained node, until it is done."""
    options = ControllerOptions(every_s=2.0, react_s=0.2, poll_s=0.2, learn=False)
    executor = SlurmExecutor(folder / "state", grace_s=20.0)
    controller = Controller(queue.store, executor, WallClock(), options)
    losses = folder / "state" / "jobs" / "training" / "work"

    step_until = build_stepper(controller, queue, "training", PATIENCE_S)

    def wait_for_size(workers: int, generation: int) -> None:
        """Until so many workers of this allocation have made ten steps."""
        row = [str(generation), str(workers)]
        step_until(lambda: sum(one[:2] == row for one in read_losses(losses)) >= 10)

    submit_heavy_job(queue, "other", 3)
    step_until(lambda: queue.job("other").state == "running")
    command = (PYTHON, str(TRAINING), "--steps", str(STEPS), "--step-s", str(STEP_S))
    submit_training(queue, STEPS, [1, 2, 3], *command)
    wait_for_size(3, 1)
    submit_heavy_job(queue, "large", 2)
    wait_for_size(1, 2)
    [node] = [row["node"] for row in queue.nodes() if "training" in row["jobs"]]
    queue.cancel("other")
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    wait_for_size(1, 3)
    submit_heavy_job(queue, "small", 1)
    queue.cancel("large")
    wait_for_size(2, 4)
    queue.cancel("small")
    wait_for_size(3, 5)
    step_until(lambda: queue.job("training").state == "done")
