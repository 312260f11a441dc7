"""Nodes that are drained, fail and are missing while a controller runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from controller_rigs import Rig
from fakes.simulated_executor import SimulatedExecutor
from service_worlds import PLACED

from allocator.loop.executor import NodeStatus

OTHER = {"n1": "n2", "n2": "n1"}


class WatchingExecutor(SimulatedExecutor):
    """It says what it observes of the nodes of pool "a"."""

    seen: Sequence[NodeStatus] = ()

    def observe_nodes(self) -> Sequence[NodeStatus]:
        return self.seen


@pytest.fixture
def service(make: Callable[..., Rig]) -> Rig:
    """Two nodes of four GPUs in pool "a" and two of two in "b"; jobs stop in ten seconds."""
    nodes = {"n1": 4, "n2": 4, "n3": 2, "n4": 2}
    options = {"poll_s": 20.0, "react_s": 1.0, "policy": "greedy", "learn": False}
    rig = make(tables=PLACED, nodes=nodes, executor=WatchingExecutor, **options)
    rig.behave(rate=lambda order: 1.0, stop_s=lambda order: 10.0)
    return rig


def submit(rig: Rig, jobs: str, **more: object) -> None:
    """Jobs of pool "a", written name/GPUs, and two looks of the controller."""
    for name, gpus in (text.split("/") for text in jobs.split()):
        size = {"gpus": int(gpus), "sizes": [int(gpus)]}
        rig.submit(name, **{"work": 1000.0, "gpu_types": "A", **size, **more})
    look(rig, 2)


def look(rig: Rig, times: int = 3) -> None:
    rig.steps(20.0 * times, 20.0)


def on(rig: Rig) -> dict[str, list[str]]:
    """The jobs of each node that has some."""
    return {row["node"]: row["jobs"] for row in rig.queue.nodes() if row["jobs"]}


def test_a_drained_node_is_empty_after_one_pause_of_each_job(service: Rig) -> None:
    """Its jobs move to the other node, others are not touched, and `status` names the node."""
    submit(service, "j/2 k/1 l/1")
    [node] = {n for n, jobs in on(service).items() if "j" in jobs}
    leave = on(service)[node]
    service.queue.change_nodes(node, state="drain")
    assert f"{node}: drain" in " ".join(service.said("node "))
    look(service, 4)
    assert node not in on(service)
    jobs = service.queue.jobs()
    assert {job.job_id: job.generation for job in jobs} == {n: 1 + (n in leave) for n in "jkl"}
    assert {job.state for job in jobs} == {"running"}
    assert any(f"moved: {leave[0]} to " in entry.detail for entry in service.queue.rounds())
    assert service.said("node ") == [f"node        {node}: drain, empty"]


def test_what_is_down_is_stopped_before_its_job_starts_again(service: Rig) -> None:
    """A user says that a node is down whose job lives, and nothing else is free: the executor is
    told to stop it, the queue counts it as lost at once, and the end that comes later is no news.
    """
    submit(service, "j/4 k/4")
    job = on(service)["n1"][0]
    service.queue.change_nodes("n1", state="down")
    look(service, 1)
    assert service.queue.job(job).state == "paused" and "n1" not in on(service)
    look(service)
    service.queue.change_nodes("n1", state="up")
    look(service)
    assert sorted(on(service).values()) == [["j"], ["k"]]
    assert [one["phase"] for one in service.history(job)] == ["lost", "running"]


def test_gpus_that_the_executor_misses_are_on_nodes_without_jobs(service: Rig) -> None:
    """Half of the machines are gone: the round takes them to be those of the empty node."""
    submit(service, "j/2")
    [node] = on(service)
    service.machines.gpus["a"] = 4
    submit(service, "k/4 l/2")
    look(service, 1)
    assert on(service) == {node: ["j", "l"]}
    service.machines.gpus["a"] = 8
    look(service)
    assert on(service)[OTHER[node]] == ["k"]


def test_a_node_that_the_executor_sees_drained_is_left(service: Rig) -> None:
    """The round moves its job away; the job stays on a node that is up for queue and executor."""
    submit(service, "j/2")
    [node] = on(service)
    other = OTHER[node]
    service.executor.seen = [NodeStatus(node, "a", 4, "drain"), NodeStatus(other, "a", 4)]
    look(service)
    assert on(service) == {other: ["j"]}
    service.queue.change_nodes(node, state="up")
    look(service)
    assert on(service) == {other: ["j"]} and service.queue.job("j").generation == 2


def test_gpus_that_others_hold_are_left_to_them_on_their_node(service: Rig) -> None:
    """Others have three GPUs of n1, and n3 is not listed: pool "b", of which nothing is seen, is
    as before.
    """
    service.executor.seen = [NodeStatus("n1", "a", 1), NodeStatus("n2", "a", 4)]
    service.submit("m", gpus=1, gpu_types="B", work=1000.0)
    submit(service, "j/2 k/2 l/1")
    assert sorted(on(service)["n2"]) == ["j", "k"] and on(service)["n1"] == ["l"]
    assert on(service).keys() & {"n3", "n4"}


def test_nodes_that_the_executor_adds_and_loses(service: Rig) -> None:
    """A new node is added to the queue and used; one that is not listed any more is left."""
    service.machines.nodes["n5"] = 4
    service.machines.gpus["a"] = 12
    all_of_a = [NodeStatus(name, "a", 4) for name in ("n1", "n2", "n5")]
    service.executor.seen = [*all_of_a, NodeStatus("n6", "a", 4, "down"), NodeStatus("n3", "c", 4)]
    submit(service, "j/4 k/4 l/4")
    assert sorted(on(service)) == ["n1", "n2", "n5"]
    assert {row["node"] for row in service.queue.nodes()} == {"n1", "n2", "n3", "n4", "n5"}
    service.executor.seen = all_of_a[1:]
    look(service)
    assert sorted(on(service)) == ["n2", "n5"] and service.queue.counts()["running"] == 2
