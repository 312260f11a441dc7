"""A cluster of Kubernetes as tables: what its objects become, from recorded answers of kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_tables import A100_POOL, show
from kubernetes_objects import (
    GPU,
    job,
    job_set,
    kueue_cluster,
    kueue_object,
    look,
    manifest,
    marks,
    meta,
    node,
    pod,
    pytorch_job,
    small_cluster,
    waiting_job,
    workload,
)

from allocator.cli.clusters.look import decide
from allocator.cli.main import run

A100 = "NVIDIA-A100-SXM4-80GB"


def test_jobs_have_what_their_owners_say_and_pods_of_nobody_occupy() -> None:
    """Range, model, preemption and length; a job that says nothing is rigid and stays. The
    notebook's 4 GPUs are no longer on the node; pods that are over or unbound hold none.
    """
    view = look(small_cluster())
    assert show(view, "jobs", "job_id state sizes preemptible") == (
        "ml/asleep held 2 False; ml/elastic running 2,4,6,8 True; "
        "ml/plain running 4 False; ml/waiting queued 4 False"
    )
    models = show(view, "jobs", "model remaining_work gpu_types").split("; ")
    assert models[1].startswith("bert ") and models[3] == f"resnet 600 {A100}"
    assert show(view, "nodes", "node gpus cpus") == "n1 8 64; n2 4 60; v1 4 64"


def test_states_of_nodes() -> None:
    """Cordoned nodes drain, nodes that are not ready are down; zones are levels."""
    leaves = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    nodes = [node("a"), node("b", is_cordoned=True), node("c", is_ready=False)]
    view = look([*nodes, node("d", taints=leaves)])
    assert show(view, "nodes", "node state zone") == "a up z1; b drain z1; c down z1; d drain z1"
    assert view.config["topology"] == {"levels": ["zone"]}
    assert show(view, "pools", "gpus") == "8"


def test_slices_of_gpus_are_a_type_of_their_own() -> None:
    """A node with whole GPUs and MIG slices is two nodes of two types; slices say their memory."""
    slices = "nvidia.com/mig-1g.10gb"
    mine = marks(managed="true")
    small = job("small", 2, 1, is_suspended=True, resource=slices, annotations=mine)
    view = look([node("n1", 4, more={slices: "14"}), small, pod("x", "n1", 1, resource=slices)])
    assert show(view, "nodes", "node gpus") == "n1 4; n1/1g.10gb 13"
    sliced = f"{A100}-MIG-1g.10gb"
    assert f"{sliced} 10 13" in show(view, "pools", "gpu_type memory_gb gpus")
    assert show(view, "jobs", "job_id gpu_types") == f"ml/small {sliced}"


def test_taints_and_selectors_split_a_product() -> None:
    """One of two jobs tolerates a taint: the tainted node is a GPU type that only it may use."""
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    mine = waiting_job("mine")
    mine["spec"]["template"]["spec"]["tolerations"] = [{**taint, "operator": "Equal"}]
    gpus = {"key": GPU, "effect": "NoSchedule"}
    nodes = [node("n1", taints=[gpus]), node("n2", taints=[taint, gpus])]
    view = look([*nodes, mine, waiting_job("other")])
    assert show(view, "jobs", "job_id gpu_types") == f"ml/mine -; ml/other {A100}"
    assert {row["gpu_type"] for row in view.tables["pools.csv"]} == {A100, f"{A100}-2"}
    assert any("some jobs may not use all nodes" in note for note in view.notes)


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [
        ("{operator: In, values: [z1]}", True),
        ("{operator: In, values: [z2]}", False),
        ("{operator: NotIn, values: [z2]}", True),
        ("{operator: Exists}", True),
        ("{operator: DoesNotExist}", False),
    ],
)
def test_node_affinity(rule: str, admitted: bool) -> None:
    """A job that no node admits is held, with a note."""
    wants = waiting_job("wants")
    expression = {"key": "topology.kubernetes.io/zone", **manifest(rule)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    wants["spec"]["template"]["spec"]["affinity"] = affinity
    view = look([node("n1"), wants])
    assert show(view, "jobs", "state") == ("queued" if admitted else "held")
    assert admitted != any("no node with GPUs admits it" in note for note in view.notes)


def test_job_sets_and_pytorch_jobs() -> None:
    """A JobSet has the GPUs of all its parts; the Jobs and pods that it owns are no jobs of their
    own. A PyTorchJob is elastic by its annotations, or by its own policy, here 2 to 4 workers.
    """
    gang, part = job_set("gang", 2, 4, is_suspended=False), job("gang-workers-0", 2, 4)
    owner = {key: gang[key] for key in ("kind", "apiVersion")}
    part["metadata"]["ownerReferences"] = [{**owner, "name": "gang", "uid": "uid-ml-gang"}]
    torch, elastic = pytorch_job("torch", 3, 2, min_gpus=4, max_gpus=10), pytorch_job("own", 3, 2)
    elastic["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
    pods = [pod(f"gang-{i}", "n1", 4, owner=part) for i in range(2)]
    view = look([node("n1"), gang, part, torch, elastic, *pods])
    assert show(view, "jobs", "job_id state gpus sizes gpus_per_pod") == (
        "ml/jobset/gang running 8 8 4; ml/pytorchjob/own queued - 6,8,10 2; "
        "ml/pytorchjob/torch queued - 4,6,8,10 2"
    )


def test_wrong_annotations_are_notes() -> None:
    """One owner's slip does not blind the allocator to the cluster."""
    view = look([node("n1"), waiting_job("wrong", max_gpus="many")])
    assert show(view, "jobs", "max_gpus") == "4"
    assert 'annotation max-gpus is "many"' in " ".join(view.notes)


def test_pods_that_still_stop_keep_their_gpus() -> None:
    """A job was suspended, and its pod has not ended: nobody gets these GPUs yet."""
    stopping = waiting_job("stopping")
    view = look([node("n1"), stopping, pod("stopping-0", "n1", 4, owner=stopping)])
    assert (show(view, "nodes", "gpus"), show(view, "jobs", "state")) == ("4", "queued")


def test_queues_of_kueue_are_tenants_and_their_limits_quotas() -> None:
    """Jobs belong to the cluster queue of their local queue, and may be stopped for others. One
    queue takes back what it lends, and may borrow 4; the other never takes back its 2.
    """
    view = look(kueue_cluster())
    assert show(view, "jobs", "job_id tenant preemptible") == (
        "ml/checked research-cq True; ml/pending product-cq True; ml/running research-cq True"
    )
    tenants = show(view, "tenants", "tenant weight parent").split("; ")
    assert len(tenants) == 3 and "research-cq 2 all" in tenants
    assert sorted(
        show(view, "quotas", "tenant guaranteed_gpus max_gpus lend_gpus").split("; ")
    ) == [
        "all - 16 -",
        "product-cq 4 - -",
        "research-cq 10 14 -",
    ]
    assert {row["pool"] for row in view.tables["quotas.csv"]} == {A100_POOL}


def test_guarantees_that_the_nodes_cannot_keep_are_cut() -> None:
    """14 GPUs are guaranteed, and one node of 8 is left: 5 and 2 of them, a note, and a plan."""
    objects = [one for one in kueue_cluster() if one["metadata"]["name"] != "n2"]
    view = look(objects)
    assert show(view, "quotas", "guaranteed_gpus") == "2; 5; -"
    assert f"quotas guarantee 14 GPUs of {A100_POOL}, whose nodes have 8" in view.notes
    assert decide(view, None)


def test_stopped_queues_and_inactive_workloads_are_held() -> None:
    """Nothing of theirs starts; a workload that the allocator itself took out is only paused."""
    objects = kueue_cluster()
    named = {one["metadata"]["name"]: one for one in objects}
    named["product"]["spec"]["stopPolicy"] = "Hold"
    checked = named["job-checked"]
    checked["spec"]["active"] = False
    assert show(look(objects), "jobs", "state") == "held; held; running"
    checked["metadata"]["annotations"] = marks(paused="true")
    assert show(look(objects), "jobs", "state") == "paused; held; running"


def test_quotas_of_namespaces_without_kueue() -> None:
    """ResourceQuota limits the GPUs of its namespace."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("gpus", "ml")}
    view = look([*small_cluster(), {**quota, "spec": {"hard": {f"requests.{GPU}": "6"}}}])
    assert view.tables["tenants.csv"] == [{"tenant": "ml", "max_gpus": 6}]


def test_answers_that_make_no_sense_are_faults_of_the_user(tmp_path: Path) -> None:
    """An empty folder, no JSON, another JSON, an unknown setting: exit code 2, nothing written."""
    out, settings = tmp_path / "out", tmp_path / "settings.toml"
    settings.write_text('contxt = "a"\n')
    (tmp_path / "empty").mkdir()
    for name, text in (("half", "{"), ("other", '{"a": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(text)
    given = [f"--answers {tmp_path / name}" for name in ("empty", "half", "other")]
    for words in (*given, f"--settings {settings}"):
        assert run(f"observe kubernetes {words} --out {out}".split()) == 2
        assert not out.exists()


def test_the_newest_workload_counts() -> None:
    """A finished workload of an earlier run says nothing about the job."""
    done = job("again", queue="research", is_suspended=True)
    old = workload(done, 1, conditions=[("Finished", "True", "Succeeded", "")], is_active=False)
    own = kueue_object("LocalQueue", "research", "ml", clusterQueue="cq")
    view = look([node("n1"), done, old, kueue_object("ClusterQueue", "cq"), own])
    assert show(view, "jobs", "state") == "queued"
