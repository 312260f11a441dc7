"""Jobs through two controllers on a real Ray under a seeded storm (storms.py).

Raylets are killed and started again, nodes are drained and replaced, the dashboard halts,
controllers are killed with -9, users stop jobs in Ray, hold, release and resize them in the queue,
and submit jobs of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from ray_cluster import NODES, RayCluster, shared_ray
from storms import Storm

from allocator.clusters.ray.api import RayApi, RayUnreachable
from allocator.errors import AllocatorError
from allocator.queue.queue import Queue

NAMES = ("s1", "s2", "s3")
TABLES = {
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\ns,A,16,2.5\n",
    "nodes.csv": "node,pool,gpus\n" + "".join(f"{name},s,{NODES[name][1]}\n" for name in NAMES),
}


class RayStorm(Storm):
    """Faults of Ray, and users that do as they like."""

    differences = ("asked for", "Ray says: FAILED", "were not free")
    kind = "ray"

    def __init__(self, folder: Path, ray: RayCluster, jobs: int, seed: int) -> None:
        self.ray, self.harm = ray, HARM
        self.api = RayApi(ray.address)
        self.environment = {"RAY_API_SERVER_ADDRESS": ray.address}
        super().__init__(folder, jobs, seed, TABLES)

    def kill_raylet(self) -> None:
        """Of a node, for longer or shorter than Ray takes to notice."""
        node = self.luck.choice(NAMES)
        self.ray.call("kill_node", node)
        time.sleep(self.luck.choice((0.5, 6.0)))
        self.ray.call("start_node", node)

    def drain(self) -> None:
        """A node, which then ends and is replaced, as an autoscaler does it."""
        node = self.luck.choice(NAMES)
        self.ray.call("drain_node", node)
        time.sleep(self.luck.random() * 3.0)
        self.ray.call("kill_node", node)
        self.ray.call("start_node", node)

    def halt_dashboard(self) -> None:
        with self.ray.unreachable():
            time.sleep(self.luck.choice((0.5, 4.0)))

    def stop_in_ray(self) -> None:
        with suppress(RayUnreachable):
            jobs = self.api.list_records("jobs")
            mine = [one for one in jobs if one["status"] == "RUNNING" and one["submission_id"]]
            if mine:
                self.api.stop(self.luck.choice(mine)["submission_id"])

    def hold_and_release(self) -> None:
        name = self.luck.choice([*self.steps])
        with suppress(AllocatorError), Queue(str(self.queue)) as queue:
            queue.hold(name)
            time.sleep(self.luck.random())
            queue.release(name)

    def resize(self) -> None:
        name, sizes = self.luck.choice([*self.steps]), self.luck.choice(([1], [1, 2], [2, 4]))
        with suppress(AllocatorError), Queue(str(self.queue)) as queue:
            queue.change(name, sizes=sizes)

    def submit_another(self) -> None:
        """A user has a job of his own, which nobody else may end."""
        with suppress(RayUnreachable):
            self.api.submit(
                {
                    "entrypoint": f"sleep {self.luck.randrange(2, 8)}",
                    "submission_id": f"other-{os.urandom(4).hex()}",
                    "entrypoint_num_gpus": self.luck.randrange(1, 4),
                    "entrypoint_label_selector": {"allocator.example/pool": "s"},
                }
            )

    def heal(self) -> None:
        for node in NAMES:
            self.ray.call("start_node", node)


HARM: dict[str, Callable[[RayStorm], None]] = {
    "kill -9 of a controller": RayStorm.kill_controller,
    "kill -9 of a raylet": RayStorm.kill_raylet,
    "drained and replaced": RayStorm.drain,
    "dashboard halted": RayStorm.halt_dashboard,
    "stopped in Ray": RayStorm.stop_in_ray,
    "held and released": RayStorm.hold_and_release,
    "resized": RayStorm.resize,
    "job of another": RayStorm.submit_another,
}


@pytest.mark.parametrize(
    ("jobs", "limit_s", "pause_s"),
    [
        pytest.param(6, 300.0, 1.5, marks=pytest.mark.nightly),
        *(pytest.param(jobs, 1500.0, 3.0, marks=pytest.mark.soak) for jobs in (40, 200)),
    ],
)
def test_a_storm(tmp_path: Path, jobs: int, limit_s: float, pause_s: float) -> None:
    """Six jobs, on a machine that may be busy, forty and two hundred: every fault happens."""
    storm = RayStorm(tmp_path, shared_ray(), jobs, int(jobs >= 40))
    storm.pause_s = pause_s
    storm.run(limit_s)
    assert jobs < 40 or len(storm.faults) == len(HARM)
