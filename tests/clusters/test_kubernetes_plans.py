"""Plans as documents for server-side apply: what they make of jobs on a fake API server, which
refuses what an API server refuses of Jobs.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tables import plan, show
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    Object,
    job,
    kubeconfig,
    kueue_cluster,
    look,
    manifest,
    marks,
    node,
    pod,
    pytorch_job,
    rights,
    small_cluster,
    waiting_job,
)

from allocator.cli.clusters.look import decide
from allocator.clusters.adapter import ClusterUnreachable, ObserveRequest
from allocator.clusters.kubernetes.adapter import KubernetesCluster
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import MERGE, RESOURCES, ClientApi, Reader, Request, path_of
from allocator.clusters.kubernetes.observe import observe_cluster
from allocator.clusters.kubernetes.suggestions.suggest import (
    Change,
    list_changes,
    suggest,
    yaml_text,
)
from allocator.errors import UsageError

A100 = "NVIDIA-A100-SXM4-80GB"
ELASTIC = {"min_gpus": 2, "max_gpus": 8, "preemptible": "true"}


def changes(server: FakeServer, text: str) -> list[Change]:
    """What a plan changes on the server."""
    return list_changes(plan(text), look(server.objects.values()).details)


def carry_out(server: FakeServer, text: str) -> list[Object]:
    """Apply all changes of a plan in their order, and return the answers."""
    answers = []
    for change in changes(server, text):
        for line in change.before:
            words = shlex.split(line)
            path = path_of(RESOURCES["Job"], "ml", words[3]) + "/status"
            server.send(Request("PATCH", path, json.loads(words[-1]), MERGE))
        if change.document is not None:
            answers.append(server.apply(change.document))
            server.step()
            server.step()
    return answers


def rules(value: Any) -> dict[str, list[str]]:
    """Values by key of the node affinity of a Job's template."""
    required = value["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {rule["key"]: rule["values"] for rule in term["matchExpressions"]}


def test_a_job_is_paused_and_starts_again_elsewhere_with_another_size() -> None:
    """Stop keeps what was applied before; the next start takes it away and pins it elsewhere."""
    own = manifest("""
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: NotIn, values: [z9]}]}]
    """)
    elastic = waiting_job("a", 1, 2, **ELASTIC)
    elastic["spec"]["template"]["spec"]["affinity"] = own
    server = FakeServer([node("n1"), node("n2"), elastic])
    carry_out(server, "ml/a start n1:4")
    assert server.used("n1") == 4
    carry_out(server, "ml/a pause was 4")
    assert (server.used("n1"), server.one("Job", "a")["spec"]["suspend"]) == (0, True)
    assert show(look(server.objects.values()), "jobs", "state") == "paused"
    carry_out(server, "ml/a start n2:6")
    assert (server.used("n1"), server.used("n2")) == (0, 6)
    assert rules(server.one("Job", "a")) == {"zone": ["z9"], "kubernetes.io/hostname": ["n2"]}


@pytest.mark.parametrize(("action", "gpus"), [("grow", 8), ("shrink", 2), ("move", 4)])
def test_a_running_job_is_stopped_before_it_changes(action: str, gpus: int) -> None:
    """Its pods end first; its start time is taken away, or the template could not change."""
    elastic = marks(managed="true", **ELASTIC)
    server = FakeServer([node("n1"), node("n2"), job("a", 2, 2, annotations=elastic)])
    server.step()
    stopped, started = carry_out(server, f"ml/a {action} n2:{gpus} was 4")
    assert (stopped["spec"]["suspend"], stopped["spec"]["parallelism"]) == (True, 2)
    assert (started["spec"]["suspend"], started["spec"]["parallelism"]) == (False, gpus // 2)
    assert (server.used("n1"), server.used("n2")) == (0, gpus)


def test_nodes_that_cannot_hold_the_pods_are_not_pinned() -> None:
    """Pods of 4 GPUs on parts of 6: the whole pool is named, and a comment says so."""
    server = FakeServer([node("n1"), node("n2"), waiting_job("a", 3, 4, **ELASTIC)])
    (change,) = changes(server, "ml/a start n1:6,n2:6")
    assert "do not fit the nodes" in " ".join(change.comment)
    assert rules(change.document)["kubernetes.io/hostname"] == ["n1", "n2"]


def test_kueue_is_asked_and_never_told() -> None:
    """A check of ours is answered in the status; without one the workload is taken out of its
    queue, and let in again when its quota is free; what Kueue has no quota for is left to it. No
    document sets status.admission."""
    details = look(FakeServer(kueue_cluster()).objects.values()).details
    stops, *others = plan("ml/running pause was 4; ml/checked start n1:4; ml/pending start n2:8")
    stops = replace(stops, reason="outranked", detail="others gain more")
    texts = suggest([stops, *others], details)
    assert list(texts) == ["1-stop.yaml", "3-start.yaml", "4-ready.yaml"]
    (stop,), (ready,) = (
        [one for one in yaml.safe_load_all(texts[file]) if one]
        for file in ("1-stop.yaml", "4-ready.yaml")
    )
    assert stop["spec"] == {"active": False}
    moves = suggest(plan("ml/running move n2:4 was 4"), details)["3-start.yaml"]
    assert "QuotaReserved=false" in moves
    (answer,) = ready["status"]["admissionChecks"]
    assert (answer["name"], answer["state"]) == ("gpus", "Ready")
    assert answer["podSetUpdates"][0]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert "insufficient unused quota" in texts["3-start.yaml"]
    assert "its GPUs go to others (outranked: others gain more)" in texts["1-stop.yaml"]
    assert "admission:" not in "".join(texts.values())


def test_yaml_is_read_back_as_it_was() -> None:
    """Nothing changes its type on the way through YAML."""
    value = {
        "a": [{"b": [1, 2.5, None, True]}, {"c": {}}, "null", "1e3", "~"],
        "d": [],
        "e": "",
        "on": "no",
        "x": "12",
        "y": "a: b",
        "z": "ü # \n",
        "é": "-",
    }
    assert yaml.safe_load(yaml_text(value)) == value


def test_progress_is_asked_of_the_pods_of_jobs_that_name_its_source() -> None:
    """A log of a Job, metrics of a PyTorchJob, whatever machine their
    address names. The work that is left is what no checkpoint holds. Nobody else's pod is asked,
    and the manifests allow just that. A pattern without a group is a note.
    """
    server = FakeServer(small_cluster())
    pattern = r"step (?P<step>\d+) saved (?P<safe>\d+)"
    where = {"progress_url": "http://elsewhere:8000/metrics", "progress_metric": "steps"}
    logged, _, wrong = (
        server.put(job(name, 1, 1, annotations=marks(total_work=work, progress_log=log)))
        for name, work, log in (
            ("logged", 100, pattern),
            ("silent", 70, pattern),
            ("wrong", 9, "step"),
        )
    )
    counted = server.put(pytorch_job("counted", 1, 1))
    counted["metadata"]["annotations"] = marks(total_work=50, **where)
    counted["spec"]["runPolicy"]["suspend"] = False
    for one in (logged, counted, wrong):
        server.put(pod(f"{one['metadata']['name']}-0", "n1", 1, owner=one))
    server.main_log = "step 40 saved 30\nbye\n"
    server.metrics["8000/metrics"] = "steps 20\n"
    view = observe_cluster(Reader(server), 1.8e9)
    rows = show(view, "jobs", "job_id total_work remaining_work")
    for row in ("logged 100 70", "silent 70 70", "wrong 9 9", "pytorchjob/counted 50 30"):
        assert f"ml/{row}" in rows
    asked = [one for one in server.requests if one[0] == "get"]
    assert len(asked) == 2 and set(asked) == rights("progress")
    (note,) = (note for note in view.notes if "progress" in note)
    assert note.startswith("ml/wrong: its source of progress is ignored: ")


def test_a_server_that_is_not_there_is_no_empty_cluster(tmp_path: Path) -> None:
    """No answer is an error; so is a context that the kubeconfig has not. A connection whose
    certificate nobody checks is told.
    """
    skips = {"insecure-skip-tls-verify": True}
    path = str(kubeconfig(tmp_path, "https://127.0.0.1:9", **skips))
    assert "its certificate is not checked" in ClientApi(None, path).notes[0]
    with pytest.raises(ClusterUnreachable, match="does not answer"):
        KubernetesCluster().observe(ObserveRequest({"kubeconfig": path}))
    with pytest.raises(UsageError, match="kubeconfig cannot be used"):
        ClientApi("another", path)


def test_a_round_writes_answers_and_nothing_else() -> None:
    """The check becomes active, the workload ready, and nothing but the two statuses is written; a
    second round changes nothing.
    """
    server = FakeServer(kueue_cluster())
    reserved = server.one("Workload", "job-checked")["status"]["admission"]
    answer_checks(Reader(server), lambda view: decide(view, None), 1.8e9)
    checked = server.one("Workload", "job-checked")["status"]
    assert [one["state"] for one in checked["admissionChecks"]] == ["Ready"]
    assert checked["admission"] == reserved
    (active,) = server.one("AdmissionCheck", "gpus")["status"]["conditions"]
    assert (active["type"], active["status"]) == ("Active", "True")
    assert {one for one in server.requests if one[0] not in ("get", "list")} == rights("check")
    after = json.dumps(list(server.objects.values()))
    answer_checks(Reader(server), lambda view: decide(view, None), 1.8e9)
    assert json.dumps(list(server.objects.values())) == after
