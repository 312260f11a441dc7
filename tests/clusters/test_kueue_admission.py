"""`allocator admit` and Kueue: when a workload may start, on which nodes, and when that is taken
back. The tests play Kueue: they set the conditions that it would set.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from cluster_tables import A100_POOL, plan, show
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    flavor_quota,
    job,
    job_set,
    kueue_cluster,
    kueue_object,
    look,
    marks,
    node,
    pod,
    refer_to,
    workload,
)

from allocator.cli.clusters.look import decide
from allocator.clusters.adapter import PlannedJob
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import Reader
from allocator.clusters.kubernetes.suggestions.suggest import ELASTIC, list_changes, suggest

A100 = "NVIDIA-A100-SXM4-80GB"
RESERVED = ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue")
ADMITTED = ("Admitted", "True", "Admitted", "admitted")
WAITING = ("QuotaReserved", "False", "Pending", "insufficient unused quota")
Condition = tuple[str, str, str, str]


class Kueue(FakeServer):
    """Two A100 nodes and one V100 node of 8; a queue of 16 A100 and no other flavor; suspended jobs
    of 8 GPUs with their conditions, whose check is pending.
    """

    def __init__(self, **jobs: list[Condition]) -> None:
        super().__init__(
            [
                *(node("n1"), node("n2"), node("v1", 8, "Tesla-V100")),
                kueue_object("ResourceFlavor", "a100", nodeLabels={"nvidia.com/gpu.product": A100}),
                kueue_object("ClusterQueue", "cq", resourceGroups=[flavor_quota("a100", 16)]),
                kueue_object("LocalQueue", "lq", "ml", clusterQueue="cq"),
                kueue_object(
                    "AdmissionCheck", "gpus", controllerName="allocator.example/gpu-allocator"
                ),
            ]
        )
        for name, conditions in jobs.items():
            one = self.put(job(name, 1, 8, queue="lq", is_suspended=True))
            self.put(workload(one, 1, conditions=conditions, checks={"gpus": "Pending"}))

    def admit(self) -> str:
        """Run one round of `allocator admit`, and return the answer for job "a"."""
        answer_checks(Reader(self), lambda view: decide(view, None), 1.8e9)
        return self.answer()

    def answer(self) -> str:
        """Return the state of the check of job "a" and the nodes that it names, as "Ready n1"."""
        (one,) = self.one("Workload", "job-a")["status"]["admissionChecks"]
        updates = one.get("podSetUpdates") or ()
        nodes = (part["nodeSelector"]["kubernetes.io/hostname"] for part in updates)
        return " ".join([one["state"], *nodes])

    def tell(self, *conditions: Condition) -> None:
        """Replace the conditions of the workload of job "a", as Kueue does."""
        found = self.one("Workload", "job-a")
        made = workload(self.one("Job", "a"), 1, conditions=conditions)
        found["status"]["conditions"] = made["status"]["conditions"]
        self.put(found)

    def cordon(self, name: str) -> None:
        """No pod is bound to a node any more."""
        self.one("Node", name)["spec"]["unschedulable"] = True


@pytest.mark.parametrize("conditions", [[], [WAITING]])
def test_no_answer_before_quota_is_reserved(conditions: list[Condition]) -> None:
    """Nodes are free, and Kueue has reserved nothing: the check stays pending until it has, and is
    taken back when the quota is gone.
    """
    server = Kueue(a=conditions)
    assert server.admit() == "Pending"
    server.tell(RESERVED)
    assert server.admit() in ("Ready n1", "Ready n2")
    server.tell(WAITING)
    assert server.admit() == "Pending"


def test_an_answer_is_not_given_to_a_workload_that_changed_since_the_look() -> None:
    """The quota goes while the plan is worked out: the server refuses the answer, and says why."""
    server = Kueue(a=[RESERVED])

    def lose(view: Any) -> list[PlannedJob]:
        server.tell(WAITING)
        return list(decide(view, None))

    lines = answer_checks(Reader(server), lose, 1.8e9)
    assert server.answer() == "Pending"
    assert "not taken: the object has been modified" in lines[-1]


def test_an_answer_names_nodes_of_the_flavor_only() -> None:
    """The A100 nodes are full and the V100 node is free: a job with A100 quota waits."""
    server = Kueue(a=[RESERVED])
    for name in ("n1", "n2"):
        server.put(pod(f"other-{name}", name, 8))
    assert server.admit() == "Pending"


def test_a_flavor_that_no_queue_lists_is_a_quota_of_0() -> None:
    """A row of 0 for the V100 pool. A plan with jobs for three nodes leaves that node idle."""
    view = look(Kueue(a=[WAITING], b=[WAITING], c=[WAITING]).objects.values())
    assert show(view, "quotas", "pool max_gpus") == f"{A100_POOL} 16; tesla-v100 0"
    assert [one.pool for one in decide(view, None) if one.gpus] == [A100_POOL] * 2


def test_an_answer_is_taken_back_when_its_node_leaves() -> None:
    """Another check holds the workload up. Its node is cordoned: pending first, as Kueue refuses
    other nodes in an answer that is ready, and then ready on the other node; full, pending again.
    """
    server = Kueue(a=[RESERVED])
    ready, _, first = server.admit().partition(" ")
    (other,) = {"n1", "n2"} - {first}
    server.cordon(first)
    assert [ready, server.admit(), server.admit()] == ["Ready", "Pending", f"Ready {other}"]
    server.put(pod("others", other, 8))
    assert server.admit() == "Pending"


def test_an_admitted_workload_whose_node_left_goes_back_into_its_queue() -> None:
    """One of its pods waits for a node that takes no pods, and would hold its quota for ever. While
    no pod waits the answer stays: the pods do not exist yet, or they have ended. A pod that runs
    does not change that. While Kueue evicts it there is no second answer.
    """
    server = Kueue(a=[RESERVED])
    answer = server.admit()
    server.tell(RESERVED, ADMITTED)
    server.cordon(answer.removeprefix("Ready "))
    assert server.admit() == answer
    owner = server.one("Job", "a")
    server.put(pod("a-0", "n1", 8, owner=owner, phase="Succeeded"))
    assert server.admit() == answer
    server.put(pod("a-1", "n1", 4, owner=owner))
    assert server.admit() == answer
    server.put(pod("a-2", None, 4, owner=owner, phase="Pending"))
    assert server.admit() == "Retry"
    server.tell(RESERVED, ADMITTED, ("Evicted", "True", "AdmissionCheck", ""))
    server.one("Workload", "job-a")["status"]["admissionChecks"][0]["state"] = "Pending"
    assert server.admit() == "Pending"


def test_a_running_job_that_was_put_on_a_node_is_no_gpu_type_of_its_own() -> None:
    """Kueue writes the node of the answer into the job: a plan may still use the other node."""
    server = Kueue(a=[RESERVED, ADMITTED])
    running = server.one("Job", "a")
    running["spec"]["suspend"] = False
    running["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    server.put(pod("a-0", "n1", 8, owner=running))
    assert show(look(server.objects.values()), "pools", "gpu_type") == f"{A100}; Tesla-V100"


def test_a_round_goes_on_while_a_job_is_bound_in_part() -> None:
    """One of two pods has its node: the job counts as what it holds, and keeps its answer."""
    server = Kueue(a=[RESERVED])
    server.one("Job", "a")["spec"] |= {"parallelism": 2, "completions": 2}
    answer = server.admit()
    server.tell(RESERVED, ADMITTED)
    server.put(pod("a-0", "n1", 8, owner=server.one("Job", "a")))
    assert server.admit() == answer


def test_gpus_are_kept_for_no_job_that_an_answer_cannot_start() -> None:
    """One node is free. The job with quota starts, though one without is worth ten times as much; a
    job of nobody's that runs stays, and so does its size.
    """
    server = Kueue(a=[RESERVED], b=[WAITING])
    server.one("Job", "b")["metadata"]["annotations"] = marks(weight=10)
    own = server.put(job("own", 1, 4, annotations=marks(preemptible="true", max_gpus=8)))
    server.put(pod("own-0", "n1", 4, owner=own))
    plans = []

    def record(view: Any) -> list[PlannedJob]:
        plans.append({one.job_id: one.gpus for one in decide(view, None)})
        return list(decide(view, None))

    answer_checks(Reader(server), record, 1.8e9)
    assert plans == [{"ml/a": 8, "ml/b": 0, "ml/own": 4}]
    assert server.answer() == "Ready n2"


def test_no_listing_and_no_plan_unsuspends_a_job_of_a_queue() -> None:
    """300 listings that lack some objects, and any plan for their jobs: a suspended job, an
    elastic one that runs, and a part of a JobSet, all in queues. Without its workload a job is left
    to Kueue, and the file says so.
    """
    said = marks(managed="true", min_gpus=1, max_gpus=8, preemptible="true")
    grows = job("grows", 2, 2, queue="product", annotations=said | {ELASTIC: "true"})
    gang = job_set("gang", 2, 4, is_suspended=False)
    gang["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "product"}
    part = job("part", 1, 4, is_suspended=True, annotations=said)
    part["metadata"]["ownerReferences"] = [refer_to(gang)]
    admitted = workload(grows, 2, conditions=[RESERVED, ADMITTED], checks={"gpus": "Ready"})
    more = [grows, gang, part, admitted, pod("grows-0", "n1", 2, owner=grows)]
    left = 0
    for seed in range(300):
        rng = Random(seed)
        details = (view := look(o for o in [*kueue_cluster(), *more] if rng.random() < 0.8)).details
        for action in ("start", "grow", "shrink", "move", "pause"):
            planned = [
                PlannedJob(row["job_id"], action, A100_POOL, gpus, {"n1": gpus}, None, held)
                for row in view.tables["jobs.csv"]
                for gpus in [0 if action == "pause" else rng.choice(row["sizes"])]
                for held in [row.get("gpus") or 0]
                if "n1" in details["hostnames"]
            ]
            for one in list_changes(planned, details):
                assert (one.document or {}).get("spec", {}).get("suspend") is not False
            left += suggest(planned, details)["3-start.yaml"].count("left to Kueue: it is in a")
    assert left > 100


def test_words_of_kueue_stand_over_jobs_of_kueue_only() -> None:
    """A Job without a queue starts and waits without a word of Kueue's conditions."""
    view = look([node("n1"), *(job(name, is_suspended=True) for name in ("a", "b"))])
    waits = PlannedJob("ml/b", "wait", reason="capacity", detail="4 of 4 GPUs are in use")
    text = suggest([*plan("ml/a start n1:4"), waits], view.details)["3-start.yaml"]
    assert "it waits (capacity: 4 of 4 GPUs are in use)" in text
    assert "Admitted" not in text and "QuotaReserved" not in text
