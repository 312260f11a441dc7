"""All documents that the allocator writes fit the published schemas.

Those are the schemas of Kubernetes 1.34, and what the definitions of Kueue, JobSet and PyTorchJob
say of the fields that the allocator writes.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from cluster_tables import plan
from crd_schemas import find_core_faults, find_faults
from examples import series
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    Object,
    check,
    job_set,
    kueue_cluster,
    look,
    node,
    pytorch_job,
    small_cluster,
)
from places import ROOT

from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import Reader
from allocator.clusters.kubernetes.suggestions.suggest import Change, list_changes

RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r3"}


def faults_of(document: Object) -> list[str]:
    """Faults of a document by the schema of its kind; a part of a Job is completed first."""
    if document["kind"] != "Job":
        return find_faults(document)
    return find_core_faults("JobSpec", document["spec"])


def changes_of(objects: list[Object], text: str) -> list[Change]:
    """Changes of a plan on these objects."""
    return list_changes(plan(text), look(objects).details)


def kueue_with(version: str, **fields: Any) -> list[Object]:
    """The cluster with that version of Kueue, where workloads have other fields: a part
    "spec" or "status" by the name of the job.
    """
    made = kueue_cluster()
    for one in made:
        if one["apiVersion"].startswith("kueue"):
            one["apiVersion"] = f"kueue.x-k8s.io/{version}"
        for part, value in fields.get(one["metadata"]["name"].removeprefix("job-"), {}).items():
            if one["kind"] == "Workload":
                one[part] |= value
    return made


@pytest.mark.parametrize("version", series(["v1beta2", "v1beta1"], 1))
def test_answers_to_kueue_fit_its_schemas(version: str) -> None:
    """Taken out of its queue, let in again, ready, evicted, and a check that becomes active."""
    ready = {"status": {"admissionChecks": [{"name": "gpus", "state": "Ready"}]}}
    changes = [
        *changes_of(kueue_with(version), "ml/running pause was 4; ml/checked start n1:4"),
        *changes_of(kueue_with(version, running=ready), "ml/running pause was 4"),
        *changes_of(
            kueue_with(version, pending={"spec": {"active": False}}), "ml/pending start n2:8"
        ),
    ]
    documents = [dict(one.document) for one in changes if one.document]
    assert [one["kind"] for one in documents] == ["Workload"] * 4
    assert [find_faults(one) for one in documents] == [[]] * 4
    assert len(find_faults(documents[0] | {"spec": {"active": "no"}})) == 1
    server = FakeServer(kueue_with(version))
    answer_checks(Reader(server), lambda view: [], 1.8e9)  # the fake refuses what does not fit
    assert server.one("AdmissionCheck", "gpus")["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(
    "text",
    ["start n1:N", "start n1:H,n2:H", "move n1:N was 4", "move n1:H,n2:H was 4", "pause was 4"],
)
@pytest.mark.parametrize("gpus", series([4, 2, 8], 1))
def test_documents_of_jobs_fit_their_schemas(text: str, gpus: int) -> None:
    """Jobs, JobSets and PyTorchJobs start, shrink, move, grow and pause, on one node and on two."""
    torch = pytorch_job("torch", 3, 2, min_gpus=4, max_gpus=8)
    objects = [*small_cluster(), job_set("gang", 2, 4), torch]
    jobs = (("ml/elastic", gpus), ("ml/jobset/gang", 8), ("ml/pytorchjob/torch", gpus))
    told = [f"{name} {text.replace('N', str(n)).replace('H', str(n // 2))}" for name, n in jobs]
    documents = [one.document or {} for one in changes_of(objects, ";".join(told))]
    assert documents and [one for one in documents if faults_of(dict(one))] == []


def test_a_job_set_is_placed_by_one_label() -> None:
    """Its affinity is immutable, its node selector is not while it is suspended: one node by its
    name, two nodes by the label that both have and the fewest others.
    """
    label = "topology.kubernetes.io/rack"
    nodes = [node(name, labels={label: rack}) for name, rack in RACKS.items()]
    server = FakeServer([*nodes, job_set("gang", 2, 4)])

    def changes(text: str) -> list[Change]:
        return changes_of(list(server.objects.values()), f"ml/jobset/gang {text}")

    def apply(change: Change) -> dict[str, Any]:
        """Node selectors of the parts of the JobSet after a change."""
        parts = server.apply(change.document or {})["spec"]["replicatedJobs"]
        pods = {one["name"]: one["template"]["spec"]["template"]["spec"] for one in parts}
        return {name: spec["nodeSelector"] for name, spec in pods.items() if "nodeSelector" in spec}

    (start,) = changes("start n1:4,n2:4")
    assert apply(start) == {"workers": {label: "r1"}} and start.before == ()
    (stop, again) = changes("move n3:8 was 8")
    assert apply(stop) == {}
    assert "delete job -n ml -l jobset.sigs.k8s.io/jobset-name=gang" in again.before[0]
    assert apply(again) == {"workers": {"kubernetes.io/hostname": "n3"}}
    (stop, again) = changes("move n1:4,n3:4 was 8")
    assert "any node with" in " ".join(again.comment)
    # its own pin makes no GPU type of the node
    assert len(look(server.objects.values()).tables["pools.csv"]) == 1


def test_resources_in_the_documentation_fit_their_schemas() -> None:
    """Each block of YAML of docs/kubernetes.md."""
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    documents = [one for block in blocks for one in yaml.safe_load_all(block)]
    assert documents
    for one in documents:
        assert (check(one) and []) if "." not in one["apiVersion"] else find_faults(one) == []
