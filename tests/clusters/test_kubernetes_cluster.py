"""A cluster of Kubernetes as tables: what its objects become, from recorded answers of kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes_objects import (
    GPU,
    Object,
    job,
    job_set,
    kueue_cluster,
    kueue_object,
    marks,
    node,
    pod,
    pytorch_job,
    small_cluster,
    workload,
    write_answers,
)

from allocator.cli.main import run
from allocator.clusters.adapter import ClusterView
from allocator.clusters.kubernetes.objects import Objects, newest_time
from allocator.clusters.kubernetes.observe import observe


def look(objects: list[Object]) -> ClusterView:
    """The view of the objects, at the newest time in them."""
    return observe(Objects(objects), newest_time(objects))


def rows(view: ClusterView, table: str, key: str) -> dict[str, Any]:
    """Rows of a table by a column."""
    return {row[key]: row for row in view.tables[table]}


def test_a_cluster_becomes_a_snapshot_that_is_solved(tmp_path: Path) -> None:
    """Recorded answers, observe, solve: the tables are valid, and the waiting job starts."""
    answers = write_answers(tmp_path / "answers", small_cluster())
    out = tmp_path / "look"
    assert run(["observe", "kubernetes", "--answers", str(answers), "--out", str(out)]) == 0
    assert run(["solve", str(out), "--out", str(out / "plan")]) == 0
    plan = json.loads((out / "plan" / "plan.json").read_text())
    actions = {one["job_id"]: (one["action"], one["gpus"]) for one in plan["jobs"]}
    assert actions["ml/waiting"] == ("start", 4)
    assert actions["ml/plain"] == ("keep", 4)
    assert actions["ml/asleep"] == ("wait", 0)
    assert "secret" not in (out / "cluster.json").read_text()


def test_jobs_have_what_their_owners_say() -> None:
    """Range, model, preemption and length; a job that says nothing is rigid and stays."""
    jobs = rows(look(small_cluster()), "jobs.csv", "job_id")
    assert set(jobs) == {"ml/elastic", "ml/plain", "ml/waiting", "ml/asleep"}
    elastic, plain = jobs["ml/elastic"], jobs["ml/plain"]
    assert (elastic["model"], elastic["sizes"], elastic["preemptible"]) == (
        "bert",
        [2, 4, 6, 8],
        True,
    )
    assert (plain["sizes"], plain["preemptible"]) == ([4], False)
    assert (jobs["ml/waiting"]["state"], jobs["ml/waiting"]["remaining_work"]) == ("queued", 600)
    assert jobs["ml/waiting"]["gpu_types"] == ["NVIDIA-A100-SXM4-80GB"]
    assert jobs["ml/asleep"]["state"] == "held"


def test_pods_of_nobody_are_occupied_gpus() -> None:
    """The notebook's 4 GPUs are no longer on the node; pods that are over or unbound hold none."""
    nodes = rows(look(small_cluster()), "nodes.csv", "node")
    assert {name: row["gpus"] for name, row in nodes.items()} == {"n1": 8, "n2": 4, "v1": 4}
    assert nodes["n2"]["cpus"] == 60.0


def test_states_of_nodes() -> None:
    """Cordoned nodes drain, nodes that are not ready are down; zones are levels."""
    view = look(
        [
            node("a"),
            node("b", is_cordoned=True),
            node("c", is_ready=False),
            node("d", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        ]
    )
    nodes = rows(view, "nodes.csv", "node")
    assert {name: row["state"] for name, row in nodes.items()} == {
        "a": "up",
        "b": "drain",
        "c": "down",
        "d": "drain",
    }
    assert (view.config["topology"], nodes["a"]["zone"]) == ({"levels": ["zone"]}, "z1")
    assert view.tables["pools.csv"][0]["gpus"] == 8


def test_slices_of_gpus_are_a_type_of_their_own() -> None:
    """A node with whole GPUs and MIG slices is two nodes of two types; slices say their memory."""
    slices = "nvidia.com/mig-1g.10gb"
    small = job(
        "small", 2, 1, is_suspended=True, resource=slices, annotations=marks(managed="true")
    )
    view = look([node("n1", 4, more={slices: "14"}), small, pod("x", "n1", 1, resource=slices)])
    nodes = rows(view, "nodes.csv", "node")
    assert {name: row["gpus"] for name, row in nodes.items()} == {"n1": 4, "n1/1g.10gb": 13}
    pools = rows(view, "pools.csv", "gpu_type")
    sliced = pools["NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"]
    assert (sliced["memory_gb"], sliced["gpus"]) == (10.0, 13)
    assert rows(view, "jobs.csv", "job_id")["ml/small"]["gpu_types"] == [sliced["gpu_type"]]


def test_taints_and_selectors_split_a_product() -> None:
    """One of two jobs tolerates a taint: the tainted node is a GPU type that only it may use."""
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    tolerates = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    mine = job(
        "mine", is_suspended=True, annotations=marks(managed="true"), tolerations=[tolerates]
    )
    other = job("other", is_suspended=True, annotations=marks(managed="true"))
    gpus = {"key": GPU, "effect": "NoSchedule"}
    view = look([node("n1", taints=[gpus]), node("n2", taints=[taint, gpus]), mine, other])
    jobs = rows(view, "jobs.csv", "job_id")
    product = "NVIDIA-A100-SXM4-80GB"
    assert jobs["ml/mine"]["gpu_types"] is None
    assert jobs["ml/other"]["gpu_types"] == [product]
    assert {row["gpu_type"] for row in view.tables["pools.csv"]} == {product, f"{product}-2"}
    assert any("some jobs may not use all nodes" in note for note in view.notes)


@pytest.mark.parametrize(
    ("operator", "values", "admitted"),
    [
        ("In", ["z1"], True),
        ("In", ["z2"], False),
        ("NotIn", ["z2"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_node_affinity(operator: str, values: list[str] | None, admitted: bool) -> None:
    """A job that no node admits is held, with a note."""
    rule = {"key": "topology.kubernetes.io/zone", "operator": operator}
    terms = [{"matchExpressions": [rule | ({} if values is None else {"values": values})]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    wants = job(
        "wants",
        is_suspended=True,
        annotations=marks(managed="true"),
        affinity={"nodeAffinity": required},
    )
    view = look([node("n1"), wants])
    assert view.tables["jobs.csv"][0]["state"] == ("queued" if admitted else "held")
    assert admitted != any("no node with GPUs admits it" in note for note in view.notes)


def test_job_sets_and_pytorch_jobs() -> None:
    """All parts count; jobs and pods below them are theirs; workers of a PyTorchJob are elastic."""
    gang = job_set("gang", 2, 4, is_suspended=False)
    part = job("gang-workers-0", 2, 4)
    part["metadata"]["ownerReferences"] = [
        {**{k: gang[k] for k in ("kind", "apiVersion")}, "name": "gang", "uid": "uid-ml-gang"}
    ]
    torch = pytorch_job("torch", 3, 2, min_gpus=4, max_gpus=10)
    view = look(
        [
            node("n1"),
            gang,
            part,
            torch,
            pod("gang-0", "n1", 4, owner=part),
            pod("gang-1", "n1", 4, owner=part),
        ]
    )
    jobs = rows(view, "jobs.csv", "job_id")
    assert set(jobs) == {"ml/jobset/gang", "ml/pytorchjob/torch"}
    assert (jobs["ml/jobset/gang"]["state"], jobs["ml/jobset/gang"]["gpus"]) == ("running", 8)
    assert jobs["ml/pytorchjob/torch"]["sizes"] == [4, 6, 8, 10]


def test_wrong_annotations_are_notes() -> None:
    """One owner's slip does not blind the allocator to the cluster."""
    wrong = job("wrong", is_suspended=True, annotations=marks(managed="true", max_gpus="many"))
    view = look([node("n1"), wrong])
    assert view.tables["jobs.csv"][0]["max_gpus"] == 4
    assert 'annotation max-gpus is "many"' in " ".join(view.notes)


def test_pods_that_still_stop_keep_their_gpus() -> None:
    """A job was suspended, and its pod has not ended: nobody gets these GPUs yet."""
    stopping = job("stopping", is_suspended=True, annotations=marks(managed="true"))
    view = look([node("n1"), stopping, pod("stopping-0", "n1", 4, owner=stopping)])
    assert view.tables["nodes.csv"][0]["gpus"] == 4
    assert view.tables["jobs.csv"][0]["state"] == "queued"


def test_queues_of_kueue_are_tenants() -> None:
    """Jobs belong to the cluster queue of their local queue, and may be stopped for others."""
    view = look(kueue_cluster())
    jobs = rows(view, "jobs.csv", "job_id")
    assert jobs["ml/running"]["tenant"] == "research-cq"
    assert jobs["ml/pending"]["tenant"] == "product-cq"
    assert all(one["preemptible"] for one in jobs.values())
    tenants = rows(view, "tenants.csv", "tenant")
    assert set(tenants) == {"all", "research-cq", "product-cq"}
    assert (tenants["research-cq"]["weight"], tenants["research-cq"]["parent"]) == (2.0, "all")


def test_borrowing_and_lending_are_quotas() -> None:
    """One queue takes back what it lends, and may borrow 4; the other never takes back its 2."""
    quotas = rows(look(kueue_cluster()), "quotas.csv", "tenant")
    found = {
        name: (row.get("guaranteed_gpus"), row["max_gpus"], row.get("lend_gpus"))
        for name, row in quotas.items()
    }
    assert found == {
        "research-cq": (10, 14, None),
        "product-cq": (4, None, None),
        "all": (None, 16, None),
    }
    assert {row["pool"] for row in quotas.values()} == {"nvidia-a100-sxm4-80gb"}


def test_stopped_queues_and_inactive_workloads_are_held() -> None:
    """Nothing of theirs starts; a workload that the allocator itself took out is only paused."""
    objects = kueue_cluster()
    queue = next(one for one in objects if one["metadata"]["name"] == "product")
    queue["spec"]["stopPolicy"] = "Hold"
    checked = next(one for one in objects if one["metadata"]["name"] == "job-checked")
    checked["spec"]["active"] = False
    jobs = rows(look(objects), "jobs.csv", "job_id")
    assert (jobs["ml/pending"]["state"], jobs["ml/checked"]["state"]) == ("held", "held")
    checked["metadata"]["annotations"] = marks(paused="true")
    assert rows(look(objects), "jobs.csv", "job_id")["ml/checked"]["state"] == "paused"


def test_quotas_of_namespaces_without_kueue() -> None:
    """ResourceQuota limits the GPUs of its namespace."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "ml"},
        "spec": {"hard": {f"requests.{GPU}": "6"}},
    }
    view = look([*small_cluster(), quota])
    assert view.tables["tenants.csv"] == [{"tenant": "ml", "max_gpus": 6}]


def test_answers_that_make_no_sense_are_faults_of_the_user(tmp_path: Path) -> None:
    """An empty folder, no JSON, another JSON, an unknown setting: exit code 2, nothing written."""
    for text in (None, "{", '{"a": 1}'):
        folder = tmp_path / f"answers-{text}"
        folder.mkdir()
        if text is not None:
            (folder / "a.json").write_text(text)
        out = tmp_path / "out"
        assert run(["observe", "kubernetes", "--answers", str(folder), "--out", str(out)]) == 2
        assert not out.exists()
    settings = tmp_path / "settings.toml"
    settings.write_text('contxt = "a"\n')
    command = ["observe", "kubernetes", "--settings", str(settings), "--out", str(tmp_path / "o")]
    assert run(command) == 2


def test_the_newest_workload_counts() -> None:
    """A finished workload of an earlier run says nothing about the job."""
    done = job("again", queue="research", is_suspended=True)
    old = workload(done, 1, conditions=[("Finished", "True", "Succeeded", "")], is_active=False)
    queues = [
        kueue_object("ClusterQueue", "cq"),
        kueue_object("LocalQueue", "research", "ml", clusterQueue="cq"),
    ]
    view = look([node("n1"), done, old, *queues])
    assert view.tables["jobs.csv"][0]["state"] == "queued"
