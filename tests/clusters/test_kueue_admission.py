"""`allocator admit` and Kueue: when a workload may start, on which nodes, and when that is taken
back. The tests play Kueue: they set the conditions that it would set.
"""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    Object,
    flavor_quota,
    job,
    kueue_cluster,
    kueue_object,
    node,
    pod,
    workload,
)

from allocator.cli.clusters.admit import decide
from allocator.clusters.adapter import PlannedJob
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import Reader
from allocator.clusters.kubernetes.objects import Objects
from allocator.clusters.kubernetes.observe import observe
from allocator.clusters.kubernetes.suggestions.suggest import list_changes, suggest

A100 = "NVIDIA-A100-SXM4-80GB"
RESERVED = ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue")
ADMITTED = ("Admitted", "True", "Admitted", "admitted")
WAITING = ("QuotaReserved", "False", "Pending", "insufficient unused quota")


def cluster(**jobs: list[tuple[str, str, str, str]]) -> FakeServer:
    """Two A100 nodes and one V100 node of 8; a queue of 16 A100 and no other flavor; suspended jobs
    of 8 GPUs with their conditions, whose check is pending.
    """
    server = FakeServer(
        [
            node("n1"),
            node("n2"),
            node("v1", 8, "Tesla-V100"),
            kueue_object("ResourceFlavor", "a100", nodeLabels={"nvidia.com/gpu.product": A100}),
            kueue_object("ClusterQueue", "cq", resourceGroups=[flavor_quota("a100", 16)]),
            kueue_object("LocalQueue", "lq", "ml", clusterQueue="cq"),
            kueue_object(
                "AdmissionCheck", "gpus", controllerName="allocator.example/gpu-allocator"
            ),
        ]
    )
    for name, conditions in jobs.items():
        one = server.put(job(name, 1, 8, queue="lq", is_suspended=True))
        server.put(workload(one, 1, conditions=conditions, checks={"gpus": "Pending"}))
    return server


def admit(server: FakeServer) -> None:
    """One round of `allocator admit`."""
    answer_checks(Reader(server), lambda view: decide(view, None), 1.8e9)


def answer(server: FakeServer, name: str) -> tuple[str, set[str]]:
    """The state of the check of a job, and the nodes that it names."""
    (one,) = server.one("Workload", f"job-{name}")["status"]["admissionChecks"]
    updates = one.get("podSetUpdates") or ()
    return one["state"], {part["nodeSelector"]["kubernetes.io/hostname"] for part in updates}


def put_workload(server: FakeServer, name: str, *conditions: tuple[str, str, str, str]) -> Object:
    """Kueue gives the workload of a job other conditions."""
    found = server.one("Workload", f"job-{name}")
    made = workload(server.one("Job", name), 1, conditions=conditions)
    kept = found["status"]["admissionChecks"]
    return server.put({**found, "status": {**made["status"], "admissionChecks": kept}})


def cordon(server: FakeServer, name: str) -> None:
    """No pod is bound to a node any more."""
    server.one("Node", name)["spec"]["unschedulable"] = True


@pytest.mark.parametrize("conditions", [[], [WAITING]])
def test_no_answer_before_quota_is_reserved(conditions: list[Any]) -> None:
    """Nodes are free, and Kueue has reserved nothing: the check stays pending until it has."""
    server = cluster(a=conditions)
    admit(server)
    assert answer(server, "a") == ("Pending", set())
    put_workload(server, "a", RESERVED)
    admit(server)
    state, nodes = answer(server, "a")
    assert state == "Ready" and nodes < {"n1", "n2"}


def test_an_answer_names_nodes_of_the_flavor_only() -> None:
    """The A100 nodes are full and the V100 node is free: a job with A100 quota waits."""
    server = cluster(a=[RESERVED])
    for name in ("n1", "n2"):
        server.put(pod(f"other-{name}", name, 8))
    admit(server)
    assert answer(server, "a") == ("Pending", set())


def test_a_flavor_that_no_queue_lists_is_a_quota_of_0() -> None:
    """A row of 0 for the V100 pool. A plan with jobs for three nodes leaves that node idle."""
    server = cluster(a=[WAITING], b=[WAITING], c=[WAITING])
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    limits = {one["pool"]: one["max_gpus"] for one in view.tables["quotas.csv"]}
    assert limits == {"nvidia-a100-sxm4-80gb": 16, "tesla-v100": 0}
    pools = [one.pool for one in decide(view, None) if one.gpus]
    assert pools == ["nvidia-a100-sxm4-80gb"] * 2


def test_an_answer_is_taken_back_when_its_node_leaves() -> None:
    """Another check holds the workload up. Its node is cordoned: pending first, as Kueue refuses
    other nodes in an answer that is ready, and then ready on the other node; full, pending again.
    """
    server = cluster(a=[RESERVED])
    admit(server)
    state, (first,) = answer(server, "a")
    cordon(server, first)
    admit(server)
    assert (state, answer(server, "a")) == ("Ready", ("Pending", set()))
    admit(server)
    (other,) = {"n1", "n2"} - {first}
    assert answer(server, "a") == ("Ready", {other})
    server.put(pod("others", other, 8))
    admit(server)
    assert answer(server, "a") == ("Pending", set())


def test_an_answer_is_taken_back_when_the_quota_is_gone() -> None:
    """Ready, and the quota is reserved no more."""
    server = cluster(a=[RESERVED])
    admit(server)
    assert answer(server, "a")[0] == "Ready"
    put_workload(server, "a", WAITING)
    admit(server)
    assert answer(server, "a") == ("Pending", set())


def test_an_admitted_workload_whose_node_left_goes_back_into_its_queue() -> None:
    """Its pods want a node that takes none: they would hold its quota for ever."""
    server = cluster(a=[RESERVED])
    admit(server)
    _, (first,) = answer(server, "a")
    put_workload(server, "a", RESERVED, ADMITTED)
    admit(server)
    assert answer(server, "a") == ("Ready", {first})
    cordon(server, first)
    admit(server)
    assert answer(server, "a") == ("Retry", set())


def test_a_running_job_that_was_put_on_a_node_is_no_gpu_type_of_its_own() -> None:
    """Kueue writes the node of the answer into the job: a plan may still use the other node."""
    server = cluster(a=[RESERVED, ADMITTED])
    running = server.one("Job", "a")
    running["spec"]["suspend"] = False
    running["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    server.put(pod("a-0", "n1", 8, owner=running))
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    assert {one["gpu_type"] for one in view.tables["pools.csv"]} == {A100, "Tesla-V100"}


def test_gpus_are_kept_for_no_job_that_an_answer_cannot_start() -> None:
    """One node is free. The job with quota starts, though one without is worth ten times as much; a
    job of nobody's that runs stays, and so does its size.
    """
    server = cluster(a=[RESERVED], b=[WAITING])
    server.one("Job", "b")["metadata"]["annotations"]["allocator.example/weight"] = "10"
    marks = {"allocator.example/preemptible": "true", "allocator.example/max-gpus": "8"}
    own = server.put(job("own", 1, 4, annotations=marks))
    server.put(pod("own-0", "n1", 4, owner=own))
    plans = []

    def record(view: Any) -> list[PlannedJob]:
        plans.append({one.job_id: one.gpus for one in decide(view, None)})
        return list(decide(view, None))

    answer_checks(Reader(server), record, 1.8e9)
    assert plans == [{"ml/a": 8, "ml/b": 0, "ml/own": 4}]
    assert answer(server, "a") == ("Ready", {"n2"})


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_job_whose_workload_is_missing_is_left_to_kueue(is_installed: bool) -> None:
    """A queue label and no workload: no document un-suspends the job, and the file says why."""
    objects = [
        one
        for one in kueue_cluster()
        if one["kind"] in ("Node", "Job") or (is_installed and one["kind"] != "Workload")
    ]
    view = observe(Objects(objects), 1.8e9)
    plan = [PlannedJob("ml/checked", "start", "nvidia-a100-sxm4-80gb", 4, {"n1": 4})]
    assert [one.document for one in list_changes(plan, view.details)] == [None]
    assert "left to Kueue: it is in a queue" in suggest(plan, view.details)["3-start.yaml"]


def test_words_of_kueue_stand_over_jobs_of_kueue_only() -> None:
    """A Job without a queue starts and waits without a word of Kueue's conditions."""
    jobs = [job(name, is_suspended=True) for name in ("a", "b")]
    view = observe(Objects([node("n1"), *jobs]), 1.8e9)
    plan = [
        PlannedJob("ml/a", "start", "nvidia-a100-sxm4-80gb", 4, {"n1": 4}),
        PlannedJob("ml/b", "wait", reason="capacity", detail="4 of 4 GPUs are in use"),
    ]
    text = suggest(plan, view.details)["3-start.yaml"]
    assert "it waits (capacity: 4 of 4 GPUs are in use)" in text
    assert "Admitted" not in text and "QuotaReserved" not in text
