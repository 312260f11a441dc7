"""Jobs of Kubernetes behind the executor: refusals, lost answers, strangers, ends of pods, rights.

The server is a fake (tests/fakes/kubernetes_server.py); no API server can be had here.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from executor_rigs import KubernetesRig
from kubernetes_objects import check, node, pod, rights
from waiting import PATIENCE_S, wait_for

from allocator.errors import UsageError
from allocator.executors.kubernetes import executor as kubernetes_executor
from allocator.executors.kubernetes.executor import KubernetesExecutor
from allocator.executors.kubernetes.manifest import SAY_PROGRESS
from allocator.loop.executor import ColocatedAllocation, NodePart, NodeStatus, NotNow, Phase

METRICS = {
    "ALLOCATOR_PROGRESS_URL": "http://localhost:8000/metrics",
    "ALLOCATOR_PROGRESS_METRIC": "steps",
}


@pytest.fixture
def rig(tmp_path: Path) -> KubernetesRig:
    """A fake cluster with one node of four GPUs."""
    return KubernetesRig(tmp_path)


def only_job(rig: KubernetesRig) -> dict[str, Any]:
    """The single Job there is."""
    (found,) = rig.server.all("Job")
    return found


def test_the_job_is_what_was_ordered(rig: KubernetesRig) -> None:
    """GPUs, nodes, environment and grace; the published schema takes it."""
    rig.server.put(node("n2", 8, labels={"allocator.example/pool": "a"}))
    rig.current.start(rig.order("j", gpus=8, nodes=(NodePart("n1", 4), NodePart("n2", 4))))
    job = check(only_job(rig))
    spec = job["spec"]["template"]["spec"]
    main = spec["containers"][0]
    assert (job["spec"]["parallelism"], main["resources"]["limits"]["nvidia.com/gpu"]) == (2, "4")
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["n1", "n2"]
    assert (job["spec"]["backoffLimit"], spec["restartPolicy"]) == (0, "Never")
    assert {one["name"]: one["value"] for one in main["env"]}["ALLOCATOR_GPUS"] == "8"
    rig.running("j")
    assert {one["spec"]["nodeName"] for one in rig.server.all("Pod")} == {"n1", "n2"}
    rig.end("j")
    assert rig.server.breaches == []


def test_a_job_that_the_cluster_refuses_for_good_has_failed(rig: KubernetesRig) -> None:
    """It is said once, with the words of the cluster, and asked for no more."""
    rig.server.faults.append("422")
    seen = rig.outcome(rig.order("j"))
    assert (seen.phase, "422" in seen.detail) == (Phase.FAILED, True)
    rig.current.acknowledge("j", 1)
    assert rig.server.all("Job") == []


def test_a_job_that_the_cluster_changed_is_not_believed(
    rig: KubernetesRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook halves the GPUs: the Job is deleted, and the allocation failed, with both."""
    honest = rig.server.put

    def halving(value: dict[str, Any]) -> dict[str, Any]:
        if value["kind"] == "Job" and value["spec"]["parallelism"] == 1:
            limits = value["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
            limits["nvidia.com/gpu"] = "1"
        return honest(value)

    monkeypatch.setattr(rig.server, "put", halving)
    executor = rig.current
    seen = rig.outcome(rig.order("j", gpus=2))
    assert seen.phase is Phase.FAILED
    assert "asked for {'nvidia.com/gpu': 2}" in seen.detail
    executor.acknowledge("j", 1)
    rig.pass_time()
    executor.observe()
    rig.pass_time()
    assert rig.server.all("Job") == []


def test_a_start_that_is_sent_again_ends_no_suspension(rig: KubernetesRig) -> None:
    """The answer to the first request is lost, and Kueue suspends the Job meanwhile."""
    rig.server.faults.append("500 after")
    rig.current.start(rig.order("j"))
    only_job(rig)["spec"]["suspend"] = True
    rig.executor().start(rig.order("j"))
    assert only_job(rig)["spec"]["suspend"]


def test_a_list_that_became_too_old_is_read_again(rig: KubernetesRig) -> None:
    """410 between two pages: the list is read from its beginning, and no job is missing."""
    for name in "abc":
        rig.current.start(rig.order(name))
    rig.server.page, rig.server.expire_pages = 1, 1
    assert {one.job_id for one in rig.current.observe()} == set("abc")


def test_a_job_that_somebody_deletes_is_lost_when_its_pods_are_gone(rig: KubernetesRig) -> None:
    """As long as a pod runs, the allocation does; its work is counted."""
    rig.begin(rig.order("j"), 3.0)
    del rig.server.objects["Job", "ml", only_job(rig)["metadata"]["name"]]
    assert [one.phase for one in rig.current.observe()] == [Phase.RUNNING]
    rig.server.finish(rig.server.all("Pod")[0], 143)
    seen = rig.ended("j")
    assert (seen.phase, seen.work_done) == (Phase.LOST, 3.0)


def test_another_job_of_the_same_name_is_none_of_ours(rig: KubernetesRig) -> None:
    """The Job was deleted and made anew by somebody: it is not ours, and is left alone."""
    rig.current.start(rig.order("j"))
    job = only_job(rig)
    rig.server.put({**job, "metadata": {**job["metadata"], "uid": "another"}})
    assert rig.ended("j").phase is Phase.LOST
    assert "deletionTimestamp" not in only_job(rig)["metadata"]


@pytest.mark.parametrize(
    ("code", "reason", "phase", "words"),
    [
        (7, "", Phase.FAILED, "exit code 7"),
        (137, "Evicted", Phase.LOST, "Evicted"),
        (0, "", Phase.FINISHED, ""),
    ],
)
def test_how_a_pod_ended(
    rig: KubernetesRig, code: int, reason: str, phase: Phase, words: str
) -> None:
    """By itself, by the cluster, or with all work done."""
    rig.begin(rig.order("j"), 3.0)
    rig.server.finish(rig.server.all("Pod")[0], code, reason=reason)
    seen = rig.ended("j")
    assert (seen.phase, words in seen.detail) == (phase, True)
    assert seen.work_done == (10.0 if phase is Phase.FINISHED else 3.0)


def test_capacity_is_what_others_leave(rig: KubernetesRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of others are not ours to give; what ours hold on a cordoned node still counts. Nodes
    are observed one by one, as the queue lists them.
    """
    monkeypatch.setattr(kubernetes_executor, "FRESH_S", 0.0)
    rig.server.put(node("n2", 8, labels={"allocator.example/pool": "b"}))
    rig.server.put(pod("notebook", "n2", 3))
    executor = rig.current
    assert executor.capacity() == {"a": 4, "b": 5}
    rig.begin(rig.order("j", gpus=2))
    rig.running("j")
    assert executor.capacity() == {"a": 4, "b": 5}
    rig.server.one("Node", "n1")["spec"]["unschedulable"] = True
    assert executor.capacity() == {"a": 2, "b": 5}
    assert executor.observe_nodes() == [NodeStatus("n1", "a", 2, "drain"), NodeStatus("n2", "b", 5)]
    rig.server.one("Node", "n2")["status"]["conditions"][0]["status"] = "Unknown"
    assert executor.capacity() == {"a": 2, "b": 0}
    assert executor.observe_nodes()[1] == NodeStatus("n2", "b", 0, "down")


def test_a_look_at_nodes_serves_a_whole_round(rig: KubernetesRig) -> None:
    """Nodes and pods are listed once for all questions of a round, and jobs by their label."""
    executor = rig.current
    executor.start(rig.order("j"))
    executor.observe()
    for _ in range(3):
        executor.capacity()
        executor.observe_nodes()
    lists = [kind for verb, _, kind in rig.server.requests if verb == "list"]
    assert lists == ["nodes", "pods", "jobs", "pods"]


def test_pods_share_no_gpus(rig: KubernetesRig) -> None:
    """A job that needs the GPUs of another one does not start; one that does not need them does."""
    executor, order = rig.current, rig.order("s")
    executor.start(rig.order("p"))
    with pytest.raises(NotNow, match="no two jobs share GPUs"):
        executor.start(replace(order, beside=(ColocatedAllocation("p", 1),)))
    executor.start(replace(order, beside=(ColocatedAllocation("p", 1, needed=False),)))
    assert len(rig.server.all("Job")) == 2


@pytest.mark.parametrize(
    "text", [None, "image = 3", 'imag = "a"', 'namespace = "ml"', "=", 'image = "a"\npod = "b"']
)
def test_settings_that_make_no_sense_are_faults_of_the_user(
    tmp_path: Path, text: str | None
) -> None:
    """No file, a wrong type, an unknown name, no image."""
    if text is not None:
        (tmp_path / "kubernetes.toml").write_text(text)
    with pytest.raises(UsageError, match=r"kubernetes\.toml"):
        KubernetesExecutor(tmp_path)


def test_the_sidecar_says_the_progress_and_leaves_it_as_last_words(tmp_path: Path) -> None:
    """Its script in a real shell: lines while it runs, the last line when it is told to end."""
    report, last = tmp_path / "progress", tmp_path / "last"
    report.write_text("5 4\n")
    environment = {
        **os.environ,
        "ALLOCATOR_PROGRESS": str(report),
        "ALLOCATOR_LAST_WORDS": str(last),
        "ALLOCATOR_SAY_EVERY_S": "0.05",
    }
    said = tmp_path / "said"
    with said.open("w") as out:
        child = subprocess.Popen(["sh", "-c", SAY_PROGRESS], env=environment, stdout=out)
        wait_for(lambda: said.read_text().count("5 4") >= 2)
        report.write_text("9 8\n")
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
    assert last.read_text() == "9 8\n"


def test_pods_are_asked_for_a_limited_time(
    rig: KubernetesRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time for questions a look says what it knows."""
    monkeypatch.setattr(kubernetes_executor, "ASKING_S", 0.0)
    rig.begin(rig.order("j"))
    rig.pass_time()
    assert rig.current.observe()[0].work_done == 0.0
    assert ("get", "", "pods/log") not in rig.server.requests


def test_the_rights_of_run_are_those_that_it_uses(rig: KubernetesRig) -> None:
    """Start, look, stop, clean up: what was asked of the server is what the manifest allows."""
    rig.begin(rig.order("j"), 3.0)
    rig.begin(rig.order("k", environment=METRICS))
    rig.current.observe()
    rig.current.capacity()
    rig.end("j")
    rig.current.observe()
    assert set(rig.server.requests) == rights("run")
