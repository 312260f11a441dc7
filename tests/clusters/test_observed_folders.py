"""The seam of clusters: what an adapter observes becomes a snapshot folder, and a plan of it goes
back to the adapter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from allocator import Problem, read_snapshot, read_workload, simulate, write_workload
from allocator.cli.main import run
from allocator.clusters.adapter import (
    Capabilities,
    ClusterUnreachable,
    ClusterView,
    ObserveRequest,
    PlannedJob,
)
from allocator.clusters.registry import REGISTRY, register_cluster


class SmallCluster:
    """Two nodes, one job that runs and one that waits."""

    capabilities = Capabilities(pins_nodes=True)
    pool_gpus = 8

    def observe(self, request: ObserveRequest) -> ClusterView:
        if request.settings.get("silent"):
            raise ClusterUnreachable("small: no answer within 20 s")
        jobs = [
            {
                "job_id": "1",
                "model": "bert",
                "submitted_s": 0.0,
                "remaining_work": 900.0,
                "max_gpus": 4,
                "requested_gpus": 4,
                "state": "running",
                "pool": "a",
                "gpus": 4,
            },
            {
                "job_id": "2",
                "model": "bert",
                "submitted_s": 5.0,
                "remaining_work": 90.0,
                "max_gpus": 2,
                "requested_gpus": 2,
            },
        ]
        tables = {
            "jobs.csv": jobs,
            "pools.csv": [
                {"pool": "a", "gpu_type": "A", "gpus": self.pool_gpus, "gpus_per_node": 4}
            ],
            "nodes.csv": [{"node": name, "pool": "a", "gpus": 4} for name in ("n1", "n2")],
            "placements.csv": [{"job_id": "1", "node": "n1", "gpus": 4}],
        }
        return ClusterView(tables, {"now_s": 10.0}, ("job 3 is left out",), {"version": "1"})

    def commands(self, jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> Mapping[str, str]:
        lines = [f"{job.action} {job.job_id} on {dict(job.nodes)}" for job in jobs]
        return {"plan.txt": "\n".join([f"version {details['version']}", *lines, ""])}


@pytest.fixture(autouse=True)
def _small_cluster() -> None:
    register_cluster("small", SmallCluster)


def test_a_cluster_is_observed_solved_and_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of an observation can be solved, and the plan comes back as commands."""
    out = str(tmp_path / "look")
    assert run(["observe", "small", "--out", out]) == 0
    said = capsys.readouterr().err
    assert "note: job 3 is left out" in said and "2 jobs" in said
    assert run(["solve", out, "--out", f"{out}/plan"]) == 0
    capsys.readouterr()
    assert run(["plan", out, "--as", "small"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines() == ["version 1", "keep 1 on {'n1': 4}", "start 2 on {'n2': 2}"]
    assert run(["plan", out, "--as", "small", "--out", str(tmp_path / "files")]) == 0
    assert (tmp_path / "files" / "plan.txt").read_text() == said


def test_an_observation_replaces_an_older_one_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second look replaces the first one and its plan; other files are left alone."""
    out = tmp_path / "look"
    assert run(["observe", "small", "--out", str(out)]) == 0
    assert run(["solve", str(out), "--out", str(out / "plan")]) == 0
    assert run(["observe", "small", "--out", str(out)]) == 0
    assert not (out / "plan").exists()
    assert os.listdir(tmp_path) == ["look"]
    (out / "mine.txt").write_text("x")
    assert run(["observe", "small", "--out", str(out)]) == 2
    assert "mine.txt" in capsys.readouterr().err
    assert (out / "mine.txt").exists() and (out / "jobs.csv").exists()


def test_files_that_the_cluster_does_not_know_are_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates are copied into the snapshot; a file that the cluster gives, or a strange one, is
    refused.
    """
    out, rates = tmp_path / "look", tmp_path / "rates.csv"
    rates.write_text("model,gpu_type,gpus,work_per_s\nbert,A,1,1\nbert,A,4,3\n")
    assert run(["observe", "small", "--out", str(out), "--add", str(rates)]) == 0
    assert len(read_snapshot(out).tables["rates.csv"]) == 2
    assert run(["observe", "small", "--out", str(out), "--add", str(out / "jobs.csv")]) == 2
    assert run(["observe", "small", "--out", str(out), "--add", str(out / "cluster.json")]) == 2
    assert "no file of a snapshot" in capsys.readouterr().err


def test_nothing_is_written_if_the_cluster_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer and an invalid view leave no folder, and the older look as it was."""
    settings = tmp_path / "silent.toml"
    settings.write_text("silent = true\n")
    out = tmp_path / "look"
    assert run(["observe", "small", "--out", str(out), "--settings", str(settings)]) == 1
    assert "no answer" in capsys.readouterr().err
    assert run(["observe", "small", "--out", str(out)]) == 0
    before = (out / "jobs.csv").read_bytes()
    monkeypatch.setattr(SmallCluster, "pool_gpus", -1)
    assert run(["observe", "small", "--out", str(out)]) == 3
    assert (out / "jobs.csv").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["look", "silent.toml"]


def test_a_plan_of_another_snapshot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan belongs to one look; a folder that was not observed has no commands."""
    out = tmp_path / "look"
    assert run(["plan", str(out), "--as", "small"]) == 2
    assert "was not observed" in capsys.readouterr().err
    assert run(["observe", "small", "--out", str(out)]) == 0
    assert run(["plan", str(out), "--as", "small"]) == 2
    assert "there is no plan" in capsys.readouterr().err
    assert run(["solve", str(out), "--out", str(out / "plan")]) == 0
    text = (out / "jobs.csv").read_text()
    (out / "jobs.csv").write_text(text.replace("900", "901"))
    assert run(["plan", str(out), "--as", "small"]) == 2
    assert "is not of the snapshot" in capsys.readouterr().err
    cluster = json.loads((out / "cluster.json").read_text())
    (out / "cluster.json").write_text(json.dumps({**cluster, "cluster": "other"}))
    assert run(["plan", str(out), "--as", "small"]) == 2
    assert "observed from other" in capsys.readouterr().err


def test_an_unknown_cluster_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not known is answered with those that are."""
    assert run(["observe", "smal", "--out", "x"]) == 2
    assert 'did you mean "small"' in capsys.readouterr().err
    assert "small" in REGISTRY.names()


def test_an_observed_cluster_can_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rates, too: 900 s and 90 s of work at 1 work/s on GPUs that are free take 900 s. What
    is assumed is said, with the results, too, and the workload is the same when it is read again.
    """
    look, out = tmp_path / "look", tmp_path / "results"
    assert run(["observe", "small", "--out", str(look)]) == 0
    assert run(["simulate", str(look), "--policy", "static", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "is a snapshot: each of its jobs starts anew" in said
    assert "not known" not in said
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["policies"]["static"]["makespan_s"] == 900
    assert "at an assumed speed of 1 work/s" in results["warnings"][0]
    workload = Problem.read(look).to_workload()
    again = read_workload(write_workload(tmp_path / "again", workload))
    assert simulate(again, policy="static").metrics["makespan_s"] == 900
