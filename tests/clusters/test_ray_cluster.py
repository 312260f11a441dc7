"""Ray in and out: recorded answers and a real cluster as a snapshot, and plans as its commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_tables import plan, show
from commands import call
from places import ROOT
from ray_cluster import shared_ray
from waiting import wait_for

from allocator.clusters.ray import adapter
from allocator.clusters.ray.adapter import write_script
from allocator.clusters.ray.api import ANSWERS, RayApi, RayUnreachable, read_answers, unwrap_list
from allocator.clusters.ray.observe import RaySettings, observe_ray
from allocator.errors import UsageError
from allocator.io.progress_sources import Metric, Progress
from allocator.objects import Record

RECORDED = ROOT / "data" / "recorded" / "ray"
TRAP = "trap 'exit 143' TERM; sleep 600 & wait"
STATED = '{"min_gpus": 1, "max_gpus": 8, "model": "bert", "total_work": 9000}'

RATES = "model,gpu_type,gpus,work_per_s\nbert,a,1,1\nbert,a,8,8\nbert,s,1,1\nbert,s,8,8\n"


def by(table: Sequence[Mapping[str, Any]], key: str) -> dict[str, Mapping[str, Any]]:
    return {row[key]: row for row in table}


def test_progress_that_a_job_prints_is_work_that_is_not_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only running jobs that name a source and their work are asked; who gives no log stays as it
    said. Metrics are asked for on the node of the entrypoint. A source alone makes nobody elastic.
    """
    answers, asked = read_answers(RECORDED), []
    stated = {**json.loads(STATED), "progress_log": r"step (?P<step>\d+)"}
    counted = {"total_work": 50, "progress_url": "http://far:80/", "progress_metric": "steps"}
    said = {"train": stated, "waits": counted, "waits2": stated, "fixed": {"progress_log": "("}}
    for job in answers["jobs"]:
        if job.get("submission_id") in said:
            metadata = {"allocator": json.dumps(said[str(job["submission_id"])])}
            job.update(metadata=metadata)  # type: ignore[attr-defined]

    class Api(RayApi):
        def read_log(self, submission_id: str, *_: str) -> bytes:
            asked.append(submission_id)
            return b"step 4000\n"

    def fetch(metric: Metric) -> Progress:
        asked.append(metric.url)
        return 20.0, 20.0

    monkeypatch.setattr(Metric, "fetch", fetch)
    found = adapter.ask_jobs(Api(), answers)
    assert found == {"train": (4000.0, 4000.0), "waits": (20.0, 20.0)}
    [address] = {n["node_ip"] for n in answers["nodes"]}
    assert sorted(asked) == [f"http://{address}:80/", "train"]
    view = observe_ray(answers, RaySettings(), 1.8e9, found)
    left = show(view, "jobs", "job_id remaining_work progress_log")
    assert all(f"{row} -" in left for row in ("train 5000", "waits 30", "waits2 9000"))
    assert "fixed: what it says of itself does not count" in " ".join(view.notes)


def test_recorded_answers_as_a_snapshot() -> None:
    """A job that states itself is elastic; others keep their GPUs; groups, actors and tasks are
    counted out of their nodes; what waits keeps its size, and too much is held.
    """
    answers = read_answers(RECORDED)
    now_s = max(job["start_time"] for job in answers["jobs"]) / 1000.0 + 60.0
    view = observe_ray(answers, RaySettings(), now_s)
    assert show(view, "jobs", "job_id state model tenant pool gpus sizes preemptible") == (
        "waits2 queued waits2 ray - - 15 -; train running bert red s 4 1,2,3,4,5,6,7,8 -; "
        "fixed running fixed ray a 2 2 False; huge held huge ray - - 64 -; "
        "waits running waits ray a 16 16 False"
    )
    # two strange drivers hold a group, an actor and a task on n1: five GPUs each
    assert show(view, "nodes", "node gpus") == "n1 6; n2 16; s1 4; s2 3; s3 7"
    assert [note.partition(":")[0] for note in view.notes] == ["own-workers", "huge"]
    stated = [{**one, "metadata": {}} for one in answers["jobs"]]
    refused = {"error_type": "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "metadata": {}}
    refused["metadata"] = {"allocator_node": view.details["nodes"]["s3"]}
    drained = observe_ray({**answers, "jobs": [*stated, refused]}, RaySettings(), now_s)
    assert "s3 drain" in show(drained, "nodes", "node state")
    assert "train" not in show(drained, "jobs", "job_id").split("; ")


def test_no_answer_is_not_an_empty_list(tmp_path: Path) -> None:
    """Half a list, no list, no JSON, nobody there: each is said."""
    whole = json.loads((RECORDED / "nodes.json").read_text())
    whole["data"]["result"]["num_filtered"] = 10_001
    for answer in (whole, {}, [], {"data": {"result": {"result": None, "num_filtered": 0}}}):
        with pytest.raises(RayUnreachable, match="Ray gave"):
            unwrap_list(answer, "nodes")
    with pytest.raises(RayUnreachable, match="Connection refused"):
        RayApi("http://127.0.0.1:9").list_records("jobs")
    with pytest.raises(UsageError, match="begins with http"):
        RayApi("127.0.0.1:8265")
    with pytest.raises(UsageError, match="cannot be read"):
        read_answers(tmp_path)


def test_a_plan_as_commands() -> None:
    """What changes is stopped and submitted again with another id, GPUs and node; what pauses and
    what waits is said; the autoscaler is asked for all of it.
    """
    details = observe_ray(read_answers(RECORDED), RaySettings(), time.time()).details
    lacks = {"reason": "capacity", "detail": "no GPUs are free"}
    goes_on = plan("train grow s3:7 was 4; fixed keep n1:2 was 2", "s")
    waits = [replace(one, **lacks) for one in plan("waits pause was 16; waits2 wait", "a")]
    script = write_script([*goes_on, *waits], details)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    body = script.partition("expect train")[2].splitlines()
    [line] = [line for line in body if line.startswith("submit train.r2 ")]
    assert "--entrypoint-num-gpus 7" in line and details["nodes"]["s3"] in line
    assert '"ALLOCATOR_GPUS": "7"' in line and line.endswith("-- sh -c 'sleep 60'")
    assert [line for line in body if line.startswith("stop ")] == ["stop train", "stop waits"]
    assert any(line.startswith("# submit waits.r2 --entrypoint-num-gpus 16") for line in body)
    [request] = [line for line in body if line.startswith("request ")]
    assert request == 'request \'[{"GPU": 7}, {"GPU": 2}, {"GPU": 16}, {"GPU": 15}]\''
    assert "fixed" not in "".join(line for line in body if not line.startswith(("#", "\n#")))
    two = plan("train grow s1:4,s2:4 was 4", "s")
    assert "one node only; it is left as it is" in write_script(two, details)


@pytest.fixture
def train(tmp_path: Path) -> str:
    """A job that states itself, with two GPUs of a real Ray."""
    api, ident = RayApi(shared_ray().address), f"train-{os.urandom(4).hex()}"
    selector = {"allocator.example/pool": "a"}
    request = {"entrypoint": TRAP, "entrypoint_num_gpus": 2, "entrypoint_label_selector": selector}
    api.submit({**request, "submission_id": ident, "metadata": {"allocator": STATED}})
    wait_for(lambda: state_of(api, ident) == "RUNNING", every_s=0.2)
    return ident


def state_of(api: RayApi, ident: str) -> str:
    jobs = by(api.list_records("jobs"), "submission_id")
    return str(jobs[ident]["status"]) if ident in jobs else ""


@pytest.mark.nightly
def test_advice_changes_nothing(
    train: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look, solve and plan on a real Ray, which got GET only."""
    api, methods, send = RayApi(shared_ray().address), set(), RayApi._send

    def note_method(self: RayApi, method: str, *rest: Any) -> Any:
        methods.add(method)
        return send(self, method, *rest)

    monkeypatch.setattr(RayApi, "_send", note_method)
    look = tmp_path / "look"
    (tmp_path / "rates.csv").write_text(RATES)
    options = f"--address {api.address} --add {tmp_path}/rates.csv"
    assert call(capsys, f"observe ray --out {look} {options}")[0] == 0
    assert methods == {"GET"}
    assert call(capsys, f"solve {look} --out {look}/plan")[0] == 0
    code, script, _ = call(capsys, f"plan {look} --as ray")
    assert code == 0 and f"expect {train}" in script and f"submit {train}.r2 " in script
    api.stop(train)


@pytest.mark.soak
def test_the_commands_of_a_plan_do_what_it_says(train: str, tmp_path: Path) -> None:
    """The script is run on a real Ray: the job runs on with the GPUs and on the node of the plan;
    a second run changes nothing, as the job is not as it was.
    """
    address = shared_ray().address
    api = RayApi(address)
    view = observe_ray({kind: api.list_records(kind) for kind in ANSWERS}, RaySettings(), 0.0)
    script = write_script(plan(f"{train} grow n2:6 was 2", "a"), view.details)
    ray = tmp_path / "ray"
    ray.write_text(f'#!/bin/sh\nexec {sys.executable} -m ray.scripts.scripts "$@"\n')
    ray.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "RAY_API_SERVER_ADDRESS": address,
    }
    runs = [
        subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 1], runs
    assert f"{train} does not run any more" in runs[1].stderr
    wait_for(lambda: state_of(api, f"{train}.r2") == "RUNNING", every_s=0.2)
    job: Record = by(api.list_records("jobs"), "submission_id")[f"{train}.r2"]
    assert job["driver_node_id"] == view.details["nodes"]["n2"]
    actors = by(api.list_records("actors"), "name")
    held = actors[f"_ray_internal_job_actor_{train}.r2"]["required_resources"]
    assert held["GPU"] == 6 and state_of(api, train) == "STOPPED"
    api.stop(f"{train}.r2")
