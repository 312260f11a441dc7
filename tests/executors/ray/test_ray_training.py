"""A training that the controller starts, shrinks, moves and grows on a real Ray."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from example_trainings import list_undisturbed_losses, read_log
from queues import build_stepper, cluster, submit_heavy_job, submit_training
from ray_cluster import shared_ray

from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.executors.ray.executor import RayExecutor
from allocator.queue.queue import Queue

STEPS, PATIENCE_S = 900, 90.0
TABLES = {
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\ns,A,16,1\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,3\nm,A,2,6\nm,A,4,12\nm,A,8,20\n",
    "tenants.csv": "tenant\nred\n",
    "nodes.csv": "node,pool,gpus\ns1,s,4\ns2,s,4\ns3,s,8\n",
}
COMMAND = f"-m allocator.executors.example_job --steps {STEPS} --rate 4 --checkpoint-every 0.5"


@pytest.mark.soak
def test_a_training_learns_the_same_wherever_it_runs(tmp_path: Path) -> None:
    """Four GPUs; two, since a heavier job needs the others; two of another node, as its own is
    drained; four again, as others end. Every loss is that of an undisturbed run, and no step is
    done twice.
    """
    Queue.create(str(tmp_path / "q.db"), cluster(**TABLES)).close()
    with Queue(str(tmp_path / "q.db")) as queue:
        nodes = watch_training(queue, tmp_path)
    rows = read_log(tmp_path / "state" / "jobs" / "training" / "work")
    steps = [int(row[2]) for row in rows]
    assert steps == sorted(steps) and steps[-1] == STEPS
    sizes = [row[3] for row in rows if row[0] == "start"]
    print(f"sizes {sizes}, nodes {nodes}")
    assert sizes == ["4", "2", "2", "4"] and nodes[1] != nodes[2]
    curve = list_undisturbed_losses(STEPS)
    assert [float(row[4]) for row in rows] == pytest.approx([curve[n] for n in steps], abs=1e-6)


def watch_training(queue: Queue, folder: Path) -> list[str]:
    """Let the controller disturb a training by other jobs and a drained node, until it is done.
    Return the nodes where it ran.
    """
    options = ControllerOptions(every_s=2.0, react_s=0.2, poll_s=0.2, learn=False)
    executor = RayExecutor(folder / "state", grace_s=20.0, address=shared_ray().address)
    controller = Controller(queue.store, executor, WallClock(), options)
    nodes: list[str] = []

    step_until = build_stepper(controller, queue, "training", PATIENCE_S)

    def wait_for_size(gpus: int, generation: int) -> None:
        """Until an allocation of this size has started and worked for a second."""
        row = ["start", str(generation), str(gpus)]
        work = folder / "state" / "jobs" / "training" / "work"
        step_until(lambda: any([a, g, n] == row for a, g, _, n, _ in read_log(work)))
        end = time.monotonic() + 1.0
        step_until(lambda: time.monotonic() > end)
        nodes.extend(row["node"] for row in queue.nodes() if "training" in row["jobs"])

    submit_heavy_job(queue, "whole", 8)
    submit_heavy_job(queue, "other", 4)
    step_until(lambda: queue.job("other").state == "running")
    submit_training(queue, STEPS, [1, 2, 4], sys.executable, *COMMAND.split())
    wait_for_size(4, 1)
    submit_heavy_job(queue, "large", 2)
    wait_for_size(2, 2)
    queue.cancel("other")
    queue.change_nodes(nodes[-1], state="drain")
    wait_for_size(2, 3)
    queue.cancel("large")
    wait_for_size(4, 4)
    step_until(lambda: queue.job("training").state == "done")
    return nodes
