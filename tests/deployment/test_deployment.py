"""The files of `allocator examples deployment`: units, image, manifests, alerts, a dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Output, call
from kubernetes_objects import check
from machine import find_program, lack

from allocator.controller.reporting.telemetry import HELP, PREFIX
from allocator.io.shipped import find_shipped

FOLDER = find_shipped("deployment")
PROGRAM = "/opt/allocator/bin/allocator"
MOST_EXPOSED = 20  # tenths: "OK" in the words of systemd-analyze
PARTS = ("", "_bucket", "_sum", "_count")  # names that Prometheus makes of one metric


def run(*words: str, cwd: Path | None = None) -> str:
    """Run a program that must succeed, and return what it prints."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["allocator-run", "allocator-serve"])
def test_units_are_right_and_closed(name: str, tmp_path: Path) -> None:
    """systemd has no warning about a unit, and rates its exposure at 2 of 10 or less. The unit
    calls the command with options that the command has."""
    systemd = find_program("systemd-analyze") or lack("units of systemd need systemd-analyze")
    text = (FOLDER / "systemd" / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace(PROGRAM, sys.executable))
    verified = subprocess.run(
        [systemd, "verify", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    run(systemd, "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", str(unit))
    start = re.search(rf"^ExecStart={PROGRAM} (\w+) (.*)$", text, re.M)
    options = re.search(r'^Environment=ALLOCATOR_OPTIONS="(.*)"$', text, re.M)
    assert start is not None
    given = f"{start[2]} {options[1] if options else ''}"
    helped = run(sys.executable, "-m", "allocator", start[1], "--help")
    assert set(re.findall(r"--[\w-]+", given)) <= set(re.findall(r"--[\w-]+", helped))


def test_the_image_installs_what_there_is() -> None:
    """The recipe asks for extras that the package has, and does not start the program as root."""
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    metadata = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = re.search(r"\[([\w,]+)\]\"", "\n".join(lines))
    assert extras is not None
    assert all(f"\n{extra} = [" in metadata for extra in extras[1].split(","))
    assert 'ENTRYPOINT ["allocator"]' in lines and "USER 10001" in lines


def read_manifests() -> list[dict[str, Any]]:
    """Return the objects that kubectl would apply."""
    kubectl = find_program("kubectl") or lack("manifests need kubectl")
    return list(yaml.safe_load_all(run(kubectl, "kustomize", str(FOLDER / "kubernetes"))))


def test_manifests_are_right() -> None:
    """Every object fits its published schema. The volumes, accounts and ports that it names exist,
    and every container has the least rights."""
    objects = [check(one) for one in read_manifests()]
    named = {(one["kind"], one["metadata"]["name"].rpartition("-")[0]) for one in objects}
    named |= {(one["kind"], one["metadata"]["name"]) for one in objects}
    (pod,) = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in named
    volumes = {volume["name"] for volume in pod["volumes"]}
    for volume in pod["volumes"]:
        if claim := volume.get("persistentVolumeClaim"):
            assert ("PersistentVolumeClaim", claim["claimName"]) in named
        if settings := volume.get("configMap"):
            assert ("ConfigMap", settings["name"].rpartition("-")[0]) in named
    assert pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        least = container["securityContext"]
        assert least["readOnlyRootFilesystem"] and not least["allowPrivilegeEscalation"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    ports = {port["name"] for one in pod["containers"] for port in one["ports"]}
    (service,) = [one["spec"] for one in objects if one["kind"] == "Service"]
    assert {port["targetPort"] for port in service["ports"]} == ports


def test_the_role_is_the_printed_one(capsys: Output) -> None:
    """The role in the manifests is exactly what `allocator rbac run` prints."""
    assert call(capsys, "rbac run")[1] == (FOLDER / "kubernetes" / "rbac.yaml").read_text()


def test_the_pod_starts_with_a_queue(tmp_path: Path, capsys: Output) -> None:
    """The snapshot in the manifests makes a queue, of which a round can be decided."""
    queue = tmp_path / "cluster.db"
    assert call(capsys, f"queue init {queue} --from {FOLDER / 'kubernetes' / 'cluster'}")[0] == 0
    assert call(capsys, f"run {queue}")[0] == 0


def test_alerts_and_dashboard_name_metrics_that_there_are() -> None:
    """Every metric that an expression names is one that the controller writes."""
    there = {PREFIX + name + part for name in HELP for part in PARTS}
    alerts = yaml.safe_load((FOLDER / "prometheus" / "alerts.yml").read_text())
    board = json.loads((FOLDER / "grafana" / "allocator.json").read_text())
    rules = [rule["expr"] for rule in alerts["groups"][0]["rules"]]
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(rules) == 11 and len(asked) > 20
    for expression in (*rules, *asked):
        names = set(re.findall(rf"\b{PREFIX}\w+", expression))
        assert names and names <= there, expression


def test_each_alert_fires_and_not_before(tmp_path: Path) -> None:
    """promtool runs the alerts against the series in tests/data/deployment. Each alert stays quiet
    until its time, and fires then."""
    tool = find_program("promtool") or lack(
        "alerts need promtool (as root: apt-get install prometheus)"
    )
    tests = Path(__file__).parents[1] / "data" / "deployment" / "alerts_test.yml"
    for file in (FOLDER / "prometheus" / "alerts.yml", tests):
        shutil.copy(file, tmp_path)
    alerts = yaml.safe_load((tmp_path / "alerts.yml").read_text())["groups"][0]["rules"]
    tried = yaml.safe_load((tmp_path / tests.name).read_text())["tests"]
    assert {rule["alert"] for rule in alerts} == {test["name"] for test in tried[1:]}
    assert "SUCCESS" in run(tool, "test", "rules", tests.name, cwd=tmp_path)
