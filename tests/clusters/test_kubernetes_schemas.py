"""All documents that the allocator writes fit the published schemas.

Those are the schemas of Kubernetes 1.34, and what the definitions of Kueue, JobSet and PyTorchJob
say of the fields that the allocator writes.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from crd_schemas import find_core_faults, find_faults
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    Object,
    check,
    job_set,
    kueue_cluster,
    node,
    pytorch_job,
    small_cluster,
)
from places import ROOT

from allocator.clusters.adapter import PlannedJob
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import APPLY, Reader, Request, path_of
from allocator.clusters.kubernetes.objects import Objects
from allocator.clusters.kubernetes.observe import observe
from allocator.clusters.kubernetes.suggestions.suggest import Change, list_changes

POOL = "nvidia-a100-sxm4-80gb"
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r3"}


def faults_of(document: Object) -> list[str]:
    """Faults of a document by the schema of its kind; a part of a Job is completed first."""
    if document["kind"] != "Job":
        return find_faults(document)
    return find_core_faults("JobSpec", document["spec"])


def changes_of(objects: list[Object], plan: list[PlannedJob]) -> list[Change]:
    """Changes of a plan on these objects."""
    return list_changes(plan, observe(Objects(objects), 1.8e9).details)


def with_version(objects: list[Object], version: str) -> list[Object]:
    """The objects with another version of Kueue."""
    made = copy.deepcopy(objects)
    for one in made:
        if one["apiVersion"].startswith("kueue"):
            one["apiVersion"] = f"kueue.x-k8s.io/{version}"
    return made


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_answers_to_kueue_fit_its_schemas(version: str) -> None:
    """Taken out of its queue, let in again, ready, evicted, and a check that becomes active."""
    objects = with_version(kueue_cluster(), version)
    evicted = copy.deepcopy(objects)
    for one in evicted:
        if one["metadata"]["name"] == "job-running":
            one["status"]["admissionChecks"] = [{"name": "gpus", "state": "Ready"}]
    stopped = copy.deepcopy(objects)
    for one in stopped:
        if one["metadata"]["name"] == "job-pending":
            one["spec"]["active"] = False
    pause = PlannedJob("ml/running", "pause", None, 0, {}, POOL, 4)
    plans = [
        (objects, [pause, PlannedJob("ml/checked", "start", POOL, 4, {"n1": 4})]),
        (evicted, [pause]),
        (stopped, [PlannedJob("ml/pending", "start", POOL, 8, {"n2": 8})]),
    ]
    documents = [one.document for made, plan in plans for one in changes_of(made, plan)]
    assert [one["kind"] for one in documents if one] == ["Workload"] * 4
    assert [find_faults(one) for one in documents if one] == [[]] * 4
    server = FakeServer(objects)
    answer_checks(Reader(server), lambda view: [], 1.8e9)  # the fake refuses what does not fit
    assert server.one("AdmissionCheck", "gpus")["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize("action", ["start", "grow", "shrink", "move", "pause"])
def test_documents_of_jobs_fit_their_schemas(action: str) -> None:
    """Jobs, JobSets and PyTorchJobs, on one node and on two."""
    objects = [
        *small_cluster(),
        job_set("gang", 2, 4),
        pytorch_job("torch", 3, 2, min_gpus=4, max_gpus=8),
    ]
    gpus = {"grow": 8, "shrink": 2, "pause": 0}.get(action, 4)
    before = {} if action == "start" else {"previous_pool": POOL, "previous_gpus": 4}
    for nodes in ({"n1": gpus}, {"n1": gpus // 2, "n2": gpus // 2}):
        plan = [
            PlannedJob(name, action, POOL, n, nodes if gpus else {}, **before)
            for name, n in (
                ("ml/elastic", gpus),
                ("ml/jobset/gang", 8 if gpus else 0),
                ("ml/pytorchjob/torch", gpus),
            )
        ]
        documents = [one.document for one in changes_of(objects, plan)]
        assert [faults_of(dict(one)) for one in documents if one] == [[]] * len(documents)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("status", "admissionChecks", 0, "state"), "Admitted", "not one of"),
        (("status", "admissionChecks", 0, "podSetUpdate"), [], "unexpected"),
        (("status", "admissionChecks", 0, "message"), "x" * 32769, "too long"),
        (("status", "admissionChecks", 0, "lastTransitionTime"), "today", "does not match"),
        (("status", "admission"), {}, "unexpected"),
        (("spec",), {"active": "no"}, "not of type 'boolean'"),
        (("apiVersion",), "kueue.x-k8s.io/v9", "no rows"),
    ],
)
def test_faults_are_found(path: tuple[Any, ...], value: object, words: str) -> None:
    """One slip in an answer to Kueue is one fault."""
    plan = [PlannedJob("ml/checked", "start", POOL, 4, {"n1": 4})]
    (change,) = changes_of(kueue_cluster(), plan)
    document: Any = copy.deepcopy(dict(change.document or {}))
    assert find_faults(document) == []
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (fault,) = find_faults(document)
    assert words in fault


def apply(server: FakeServer, document: Object) -> Object:
    """The answer to a document that is applied."""
    resource = Reader(server).resource(document["kind"])
    assert resource is not None
    path = path_of(resource, "ml", document["metadata"]["name"])
    return server.send(
        Request("PATCH", path + "?fieldManager=allocator&force=true", document, APPLY)
    )


def selectors(server: FakeServer) -> dict[str, Any]:
    """Node selectors of the parts of the JobSet."""
    parts = server.one("JobSet", "gang")["spec"]["replicatedJobs"]
    return {one["name"]: one["template"]["spec"]["template"]["spec"] for one in parts}


def test_a_job_set_is_placed_by_one_label() -> None:
    """Its affinity is immutable, its node selector is not while it is suspended: one node by its
    name, two nodes by the label that both have and the fewest others.
    """
    zones = {name: {"topology.kubernetes.io/rack": rack} for name, rack in RACKS.items()}
    gang = job_set("gang", 2, 4)
    server = FakeServer([*(node(name, labels=found) for name, found in zones.items()), gang])

    def plan(action: str, nodes: dict[str, int], gpus: int = 0) -> list[Change]:
        objects = list(server.objects.values())
        planned = PlannedJob("ml/jobset/gang", action, POOL, sum(nodes.values()), nodes, POOL, gpus)
        return changes_of(objects, [planned])

    (start,) = plan("start", {"n1": 4, "n2": 4})
    apply(server, dict(start.document or {}))
    assert selectors(server)["workers"]["nodeSelector"] == {"topology.kubernetes.io/rack": "r1"}
    assert "nodeSelector" not in selectors(server)["driver"]
    assert start.before == ()
    (stop, again) = plan("move", {"n3": 8}, 8)
    apply(server, dict(stop.document or {}))
    assert "nodeSelector" not in selectors(server)["workers"]
    assert "delete job -n ml -l jobset.sigs.k8s.io/jobset-name=gang" in again.before[0]
    apply(server, dict(again.document or {}))
    assert selectors(server)["workers"]["nodeSelector"] == {"kubernetes.io/hostname": "n3"}
    (stop, again) = plan("move", {"n1": 4, "n3": 4}, 8)
    assert "any node with" in " ".join(again.comment)
    view = observe(Objects(list(server.objects.values())), 1.8e9)
    assert len(view.tables["pools.csv"]) == 1  # its own pin makes no GPU type of the node


def test_an_elastic_policy_is_the_word_of_an_owner() -> None:
    """Two to four workers of 2 GPUs: the sizes, without an annotation of the allocator."""
    torch = pytorch_job("torch", 3, 2)
    torch["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
    view = observe(Objects([node("n1"), torch]), 1.8e9)
    assert view.tables["jobs.csv"][0]["sizes"] == [6, 8, 10]


def test_resources_in_the_documentation_fit_their_schemas() -> None:
    """Each block of YAML of docs/kubernetes.md."""
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    documents = [one for block in blocks for one in yaml.safe_load_all(block)]
    assert documents
    for one in documents:
        assert (check(one) and []) if "." not in one["apiVersion"] else find_faults(one) == []
