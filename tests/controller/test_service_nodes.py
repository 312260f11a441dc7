"""Nodes that are drained, fail and are missing while a controller runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster, copy_empty_queue, fresh
from service_worlds import LOOK_S, PLACED, World

from allocator.controller.adopt import adopt
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.preview import preview
from allocator.controller.reporting.status import format_status, status
from allocator.executors.files import FilesExecutor
from allocator.loop.executor import NodeStatus
from allocator.queue.jobs.verbs import history
from allocator.queue.queue import Queue


class WatchingExecutor(SimulatedExecutor):
    """It says what it observes of the nodes of pool "a"."""

    seen: Sequence[NodeStatus] = ()

    def observe_nodes(self) -> Sequence[NodeStatus]:
        return self.seen


class Service:
    """A queue with nodes, machines that stop jobs in ten seconds, and a controller."""

    def __init__(self, queue: Queue, clock: SimulatedClock, **gpus: int) -> None:
        self.queue, self.clock = queue, clock
        self.machines = SimulatedMachines(
            {"a": 8, "b": 4, **gpus},
            clock,
            MachineBehaviour(stop_s=lambda order: 10.0),
            nodes={"n1": 4, "n2": 4, "n3": 2, "n4": 2},
        )
        self.executor = WatchingExecutor(self.machines)
        self.controller = Controller(
            queue.store,
            self.executor,
            clock,  # type: ignore[arg-type]
            ControllerOptions(every_s=60.0, poll_s=20.0, react_s=1.0, policy="greedy", learn=False),
        )

    def submit(self, name: str, gpus: int, **more: object) -> None:
        values = {"model": "m", "total_work": 1000.0, "gpu_types": "A", "sizes": [gpus]}
        self.queue.submit(job_id=name, min_gpus=gpus, max_gpus=gpus, **{**values, **more})

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.controller.step()
            self.clock.sleep(20.0)
        assert self.machines.breaches == []

    def on(self) -> dict[str, list[str]]:
        """The jobs of each node that has some."""
        return {row["node"]: row["jobs"] for row in self.queue.nodes() if row["jobs"]}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    clock = SimulatedClock(NOW)
    with fresh("sqlite", tmp_path, cluster(**PLACED), clock.now) as queue:
        yield Service(queue, clock)


def test_a_drained_node_is_empty_after_one_pause_of_each_job(service: Service) -> None:
    """Its jobs move to the other node, others are not touched, and `status` names the node."""
    for name, gpus in (("j", 2), ("k", 1), ("l", 1)):
        service.submit(name, gpus)
    service.look(2)
    [node] = {n for n, jobs in service.on().items() if "j" in jobs}
    leave = service.on()[node]
    service.queue.change_nodes(node, state="drain")
    assert any(
        f"node        {node}: drain" in line for line in format_status(status(service.queue))
    )
    service.look(4)
    assert node not in service.on()
    generations = {job.job_id: job.generation for job in service.queue.jobs()}
    assert generations == {name: 2 if name in leave else 1 for name in ("j", "k", "l")}
    assert {job.state for job in service.queue.jobs()} == {"running"}
    assert any(f"moved: {leave[0]} to " in entry.detail for entry in service.queue.rounds())
    [line] = [x for x in format_status(status(service.queue)) if x.startswith("node ")]
    assert line == f"node        {node}: drain, empty"


def test_a_job_that_may_not_move_stays_on_a_drained_node(service: Service) -> None:
    """Others get the rest of the pool, though the drained GPUs are held."""
    service.submit("fixed", 4, preemptible=False)
    service.look(2)
    [node] = service.on()
    service.queue.change_nodes(node, state="drain")
    service.submit("j", 4)
    service.look(3)
    other = {"n1": "n2", "n2": "n1"}[node]
    assert service.on() == {node: ["fixed"], other: ["j"]}
    assert service.queue.job("fixed").generation == 1


def test_a_node_that_is_down_loses_its_jobs(service: Service) -> None:
    """The machine says nothing any more, and its jobs start again on other nodes."""
    service.submit("j", 4)
    service.look(2)
    [node] = service.on()
    service.machines.lose_node(node)
    service.queue.change_nodes(node, state="down")
    service.look(3)
    with service.queue.store.read() as connection:
        held = history(connection, "j")
    assert [(one["phase"], one["nodes"][0]["node"]) for one in held] == [
        ("lost", node),
        ("running", {"n1": "n2", "n2": "n1"}[node]),
    ]


def test_what_is_down_is_stopped_before_its_job_starts_again(service: Service) -> None:
    """A user says that a node is down whose job lives, and nothing else is free: the executor is
    told to stop it, the queue counts it as lost at once, and the end that comes later is no news.
    """
    for name in ("j", "k"):
        service.submit(name, 4)
    service.look(2)
    job = service.on()["n1"][0]
    service.queue.change_nodes("n1", state="down")
    service.look(1)
    assert service.queue.job(job).state == "paused" and "n1" not in service.on()
    service.look(3)
    service.queue.change_nodes("n1", state="up")
    service.look(3)
    assert sorted(service.on().values()) == [["j"], ["k"]]
    with service.queue.store.read() as connection:
        phases = [one["phase"] for one in history(connection, job)]
    assert phases == ["lost", "running"]


def test_gpus_that_the_executor_misses_are_on_nodes_without_jobs(service: Service) -> None:
    """Half of the machines are gone: the round takes them to be those of the empty node."""
    service.submit("j", 2)
    service.look(2)
    [node] = service.on()
    service.machines.gpus["a"] = 4
    service.submit("k", 4)
    service.submit("l", 2)
    service.look(3)
    assert service.on() == {node: ["j", "l"]}
    service.machines.gpus["a"] = 8
    service.look(3)
    assert service.on()[{"n1": "n2", "n2": "n1"}[node]] == ["k"]


def test_a_node_that_the_executor_sees_drained_is_left(service: Service) -> None:
    """The round moves its job away; the job stays on a node that is up for queue and executor."""
    service.submit("j", 2)
    service.look(2)
    [node] = service.on()
    other = {"n1": "n2", "n2": "n1"}[node]
    service.executor.seen = [NodeStatus(node, "a", 4, "drain"), NodeStatus(other, "a", 4)]
    service.look(3)
    assert service.on() == {other: ["j"]}
    service.queue.change_nodes(node, state="up")
    service.look(3)
    assert service.on() == {other: ["j"]} and service.queue.job("j").generation == 2


def test_gpus_that_others_hold_are_left_to_them_on_their_node(service: Service) -> None:
    """Others have three GPUs of n1, and n3 is not listed: pool "b", of which nothing is seen, is
    as before.
    """
    service.executor.seen = [NodeStatus("n1", "a", 1), NodeStatus("n2", "a", 4)]
    for name in ("j", "k"):
        service.submit(name, 2)
    service.submit("l", 1)
    service.submit("m", 1, gpu_types="B")
    service.look(2)
    assert sorted(service.on()["n2"]) == ["j", "k"] and service.on()["n1"] == ["l"]
    assert service.on().keys() & {"n3", "n4"}


def test_nodes_that_the_executor_adds_and_loses(service: Service) -> None:
    """A new node is added to the queue and used; one that is not listed any more is left."""
    service.machines.nodes["n5"] = 4
    service.machines.gpus["a"] = 12
    all_of_a = [NodeStatus(name, "a", 4) for name in ("n1", "n2", "n5")]
    service.executor.seen = [*all_of_a, NodeStatus("n6", "a", 4, "down"), NodeStatus("n3", "c", 4)]
    for name in ("j", "k", "l"):
        service.submit(name, 4)
    service.look(2)
    assert sorted(service.on()) == ["n1", "n2", "n5"]
    assert {row["node"] for row in service.queue.nodes()} == {"n1", "n2", "n3", "n4", "n5"}
    service.executor.seen = all_of_a[1:]
    service.look(3)
    assert sorted(service.on()) == ["n2", "n5"]
    assert len([job for job in service.queue.jobs() if job.state == "running"]) == 2


def test_a_dry_run_names_nodes(tmp_path: Path) -> None:
    clock = SimulatedClock(NOW)
    with fresh("sqlite", tmp_path, cluster(**PLACED), clock.now) as queue:
        service = Service(queue, clock)
        service.submit("j", 4)
        assert preview(queue.store, clock).steps in (
            ('would start job "j": 4 GPUs of pool "a" on n1:4',),
            ('would start job "j": 4 GPUs of pool "a" on n2:4',),
        )


@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.soak)])
def test_a_crash_at_every_point_loses_no_placement(every: int, tmp_path: Path) -> None:
    """One crash, at every 60th point or at each of a run with drains and failures of nodes: each is
    followed by the same end."""
    crashes, points = 0, range(1, 300, every)
    for point in points:
        folder = tmp_path / str(point)
        folder.mkdir()
        copy_empty_queue(folder / "queue.db")
        world = World(str(folder / "queue.db"), 3, faults=0, nodes=True)
        world.fate.plan[point] = "crash"
        try:
            world.run()
        finally:
            world.queue.close()
        crashes += world.crashes
        assert world.looks * LOOK_S > 0
    assert crashes > 0.85 * len(points)


def test_adopt_takes_over_nodes(tmp_path: Path) -> None:
    """A queue that is set back to before a start finds the nodes in the executor's order."""
    clock = SimulatedClock(NOW)
    folder = tmp_path / "state"
    name = tmp_path / "queue.db"
    with fresh("sqlite", tmp_path, cluster(**PLACED), clock.now) as queue:
        values = {"model": "m", "total_work": 9.0, "sizes": [4], "max_gpus": 4, "min_gpus": 4}
        queue.submit(job_id="j", gpu_types="A", command=["run"], **values)
    copy = name.read_bytes()
    options = ControllerOptions(every_s=60.0, policy="greedy", learn=False)
    for _ in range(2):
        with Queue(name, clock=clock.now) as queue:
            executor = FilesExecutor(folder)
            adopt(queue.store, executor, clock.now())
            clock.sleep(1000.0)
            controller = Controller(queue.store, executor, clock, options)  # type: ignore[arg-type]
            controller.run(once=True)
            [node] = [row["node"] for row in queue.nodes() if row["jobs"] == ["j"]]
            assert queue.job("j").generation == 1
            assert queue.job("j").to_dict()["want_nodes"] == [{"node": node, "gpus": 4}]
        for suffix in ("-wal", "-shm"):
            Path(f"{name}{suffix}").unlink(missing_ok=True)
        name.write_bytes(copy)
