"""The seam of clusters: what an adapter observes becomes a snapshot folder, and a plan of it goes
back to the adapter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Output, call
from text_tables import columns

from allocator import Problem, read_snapshot, read_workload, simulate, write_workload
from allocator.clusters.adapter import (
    ClusterUnreachable,
    ClusterView,
    ObserveRequest,
    PlannedJob,
    register_cluster,
)

TABLES = {
    "jobs": "job_id model submitted_s remaining_work max_gpus requested_gpus state pool gpus:"
    "1 bert 0 900 4 4 running a 4; 2 bert 5 90 2 2 queued - -",
    "pools": "pool gpu_type gpus gpus_per_node: a A 8 4",
    "nodes": "node pool gpus: n1 a 4; n2 a 4",
    "placements": "job_id node gpus: 1 n1 4",
}
Do = Callable[[str], tuple[int, str, str]]


class SmallCluster:
    """Two nodes, one job that runs and one that waits."""

    tables = TABLES

    def observe(self, request: ObserveRequest) -> ClusterView:
        if request.settings.get("silent"):
            raise ClusterUnreachable("small: no answer within 20 s")
        tables = {
            f"{name}.csv": [
                {key: cell for key, cell in row.items() if cell != "-"} for row in columns(text)
            ]
            for name, text in self.tables.items()
        }
        return ClusterView(tables, {"now_s": 10.0}, ("job 3 is left out",), {"version": "1"})

    def commands(self, jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> Mapping[str, str]:
        lines = [f"{job.action} {job.job_id} on {dict(job.nodes)}" for job in jobs]
        return {"plan.txt": "\n".join([f"version {details['version']}", *lines, ""])}


@pytest.fixture
def do(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> Do:
    """A command in an empty folder, with its exit code and both outputs."""
    register_cluster("small", SmallCluster)
    monkeypatch.chdir(tmp_path)
    return lambda line: call(capsys, line)


LOOK, SOLVE, PLAN = "observe small --out look", "solve look --out look/plan", "plan look --as small"


def test_a_cluster_is_observed_solved_and_planned(do: Do) -> None:
    """The folder of an observation can be solved, and the plan comes back as commands. A second
    look replaces the first one and its plan; other files are left alone.
    """
    said = do(LOOK)[2]
    assert "note: job 3 is left out" in said and "2 jobs" in said
    assert do(SOLVE)[0] == 0
    code, said, _ = do(PLAN)
    assert said.splitlines() == ["version 1", "keep 1 on {'n1': 4}", "start 2 on {'n2': 2}"]
    assert do(f"{PLAN} --out files")[0] == code == 0
    assert Path("files/plan.txt").read_text() == said
    assert do(LOOK)[0] == 0
    assert sorted(os.listdir()) == ["files", "look"] and not Path("look/plan").exists()
    Path("look/mine.txt").write_text("x")
    code, _, said = do(LOOK)
    assert code == 2 and "mine.txt" in said
    assert Path("look/mine.txt").exists() and Path("look/jobs.csv").exists()


def test_files_that_the_cluster_does_not_know_are_added(do: Do) -> None:
    """Rates are copied into the snapshot; a file that the cluster gives, or a strange one, is
    refused.
    """
    Path("rates.csv").write_text("model,gpu_type,gpus,work_per_s\nbert,A,1,1\nbert,A,4,3\n")
    assert do(f"{LOOK} --add rates.csv")[0] == 0
    assert len(read_snapshot("look").tables["rates.csv"]) == 2
    assert do(f"{LOOK} --add look/jobs.csv")[0] == 2
    code, _, said = do(f"{LOOK} --add look/cluster.json")
    assert code == 2 and "no file of a snapshot" in said


def test_nothing_is_written_if_the_cluster_does_not_answer(
    do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer and an invalid view leave no folder, and the older look as it was."""
    Path("silent.toml").write_text("silent = true\n")
    code, _, said = do(f"{LOOK} --settings silent.toml")
    assert code == 1 and "no answer" in said and os.listdir() == ["silent.toml"]
    assert do(LOOK)[0] == 0
    before = Path("look/jobs.csv").read_bytes()
    wrong = "pool gpu_type gpus gpus_per_node: a A -1 4"
    monkeypatch.setattr(SmallCluster, "tables", {**TABLES, "pools": wrong})
    assert do(LOOK)[0] == 3
    assert Path("look/jobs.csv").read_bytes() == before
    assert sorted(os.listdir()) == ["look", "silent.toml"]


def test_a_queue_leaves_the_jobs_to_their_cluster(do: Do) -> None:
    """`queue init --from` a look takes pools and nodes: its jobs would be started a second time."""
    do(LOOK)
    assert do("queue init q.db --from look")[2].endswith("0 jobs, 1 pool, 8 GPUs\n")
    assert do("queue export q.db out")[0] == 0
    assert [len(read_snapshot("out").tables[f"{n}.csv"]) for n in ("jobs", "nodes")] == [0, 2]


def test_a_plan_of_another_snapshot_is_refused(do: Do) -> None:
    """A plan belongs to one look; a folder that was not observed has no commands. A cluster that is
    not known is answered with one that is.
    """

    def is_refused(line: str, words: str) -> bool:
        code, _, said = do(line)
        return code == 2 and words in said

    assert is_refused(PLAN, "was not observed")
    assert do(LOOK)[0] == 0
    assert is_refused(PLAN, "there is no plan")
    assert do(SOLVE)[0] == 0
    jobs, cluster = Path("look/jobs.csv"), Path("look/cluster.json")
    jobs.write_text(jobs.read_text().replace("900", "901"))
    assert is_refused(PLAN, "is not of the snapshot")
    cluster.write_text(json.dumps({**json.loads(cluster.read_text()), "cluster": "other"}))
    assert is_refused(PLAN, "observed from other")
    assert is_refused("observe smal --out x", 'did you mean "small"')


def test_an_observed_cluster_can_be_simulated(do: Do) -> None:
    """Without rates, too: 900 s and 90 s of work at 1 work/s on GPUs that are free take 900 s. What
    is assumed is said, with the results, too, and the workload is the same when it is read again.
    """
    assert do(LOOK)[0] == 0
    code, _, said = do("simulate look --policy static --out results")
    assert code == 0 and "is a snapshot: each of its jobs starts anew" in said
    assert "not known" not in said
    results = json.loads(Path("results/results.json").read_text(encoding="utf-8"))
    assert results["policies"]["static"]["makespan_s"] == 900
    assert "at an assumed speed of 1 work/s" in results["warnings"][0]
    again = read_workload(write_workload("again", Problem.read("look").to_workload()))
    assert simulate(again, policy="static").metrics["makespan_s"] == 900
