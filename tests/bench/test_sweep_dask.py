"""Sweeps on a real Dask cluster of processes on this machine: the same bytes, faults that end a
task or a worker.
"""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from waiting import gone, wait_for

from allocator.bench.sweep.executors import ProcessExecutor
from allocator.bench.sweep.on_dask import DaskExecutor
from allocator.bench.sweep.store import SweepStore
from allocator.bench.sweep.sweep import sweep
from allocator.bench.sweep.tasks import SweepTask, WorkloadSource, grid, source_of_folder
from allocator.errors import UsageError
from allocator.simulator import SimulationOptions

HERE = Path(__file__).resolve().parents[1] / "support" / "processes"
RUNNER = "fake_runners:as_named"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two worker processes, which see the fake runners and the places named in the environment."""
    from distributed import LocalCluster

    places = tmp_path_factory.mktemp("places")
    seen = {
        "PYTHONPATH": str(HERE),
        "FAULT": str(places / "fault"),
        "MARKER": str(places / "marker"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in seen.items():
            patch.setenv(name, value)
        with LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # any free port: two of these may run at once
            local_directory=str(places),
            silence_logs=50,
        ) as made:
            yield made


def tasks(*policies: str, seeds: int = 1) -> list[SweepTask]:
    return grid([WorkloadSource("made", (0.5,), 10)], policies, seeds, SimulationOptions())


def files(folder: Path) -> dict[str, bytes]:
    """Everything of a sweep that is no timing: no run.json, no decision_s in metrics.json and
    rounds.csv.
    """
    found = {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted((folder / "tasks").rglob("*"))
        if p.is_file()
    }
    for name in list(found):
        if name.endswith("metrics.json"):
            metrics = json.loads(found[name])
            found[name] = json.dumps(
                {k: v for k, v in metrics.items() if not k.startswith("decision_s")}
            ).encode()
        elif name.endswith("rounds.csv"):
            rows = list(csv.DictReader(found[name].decode().splitlines()))
            found[name] = json.dumps(
                [{k: v for k, v in row.items() if k != "decision_s"} for row in rows]
            ).encode()
        elif name.endswith("run.json"):
            del found[name]
    return found


def test_processes_and_dask_give_the_same_bytes(cluster: Any, tmp_path: Path) -> None:
    """A generator and a folder, which travels to the workers; and what Dask did, processes need
    not do again.
    """
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "workload.csv").write_text("job_id\nj1\n")
    asked = [
        *tasks("greedy", "mip", seeds=2),
        *grid([source_of_folder(folder)], ["mip"], 1, SimulationOptions()),
    ]
    for name, executor in (
        ("here", ProcessExecutor(2, RUNNER)),
        ("there", DaskExecutor(cluster.scheduler_address, RUNNER)),
    ):
        with SweepStore(tmp_path / name) as store:
            assert sweep(asked, store, executor).failed == ()
    assert (
        files(tmp_path / "here") == files(tmp_path / "there")
        and len(files(tmp_path / "here")) == 15
    )
    with SweepStore(tmp_path / "there") as store:
        assert sweep(asked, store, ProcessExecutor(2, RUNNER)).ran == 0


def test_simulations_give_the_same_bytes_everywhere(cluster: Any, tmp_path: Path) -> None:
    """Real simulations of two generators, with processes and on Dask: all files but the timings are
    the same to the byte."""
    asked = [
        task
        for source in (
            WorkloadSource("reproduction", (0.36,), 12),
            WorkloadSource("mixed", (0.8,), 6),
        )
        for task in grid([source], ["mip"], 1, SimulationOptions())
    ]
    for name, executor in (
        ("here", ProcessExecutor(2)),
        ("there", DaskExecutor(cluster.scheduler_address)),
    ):
        with SweepStore(tmp_path / name) as store:
            assert sweep(asked, store, executor).failed == ()
    here = files(tmp_path / "here")
    assert here == files(tmp_path / "there") and len(here) == 2 * 6
    assert all(len(content) > 50 for content in here.values())


def test_a_task_that_crashes_harms_no_worker(cluster: Any, tmp_path: Path) -> None:
    """A crash, a SIGKILL and a hang past the limit: recorded as with processes; both workers
    live, the rest is kept.
    """
    before = set(cluster.scheduler_info["workers"])
    with SweepStore(tmp_path) as store:
        swept = sweep(
            tasks("crashes", "killed", "hangs", "quick"),
            store,
            DaskExecutor(cluster.scheduler_address, RUNNER, limit_s=3.0),
        )
        assert {t.policy: o.failure for t, o in swept.failed} == {
            "crashes": "exit code 1",
            "killed": "killed by SIGKILL",
            "hangs": "killed at the time limit of the task",
        }
        assert store.is_done(tasks("quick")[0])
    assert set(cluster.scheduler_info["workers"]) == before


def test_a_worker_that_is_killed_takes_its_task_with_it(cluster: Any) -> None:
    """SIGKILL for the worker in the middle of a task: the task's process ends too, another worker
    does the task again, and the sweep gets its result."""
    from distributed import Client

    marker, fault = Path(os.environ["MARKER"]), Path(os.environ["FAULT"])
    marker.unlink(missing_ok=True)
    fault.touch()
    with (
        closing(
            DaskExecutor(cluster.scheduler_address, RUNNER).results(tasks("once-hangs", "quick"))
        ) as results,
        Client(cluster.scheduler_address, set_as_default=False) as client,
    ):
        assert next(results)[0].policy == "quick"
        wait_for(marker.exists)
        pids = [int(word) for word in marker.read_text().split()[:2]]
        parent = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent in client.run(os.getpid).values()
        fault.unlink()
        os.kill(parent, signal.SIGKILL)
        task, outcome = next(results)
    assert task.policy == "once-hangs" and not outcome.failure
    wait_for(lambda: all(map(gone, pids)))


def test_leaving_a_sweep_ends_its_tasks(cluster: Any) -> None:
    """The sweep is left (as Ctrl-C does) while a task hangs on a worker: the task and its child
    are gone soon.
    """
    marker = Path(os.environ["MARKER"])
    marker.unlink(missing_ok=True)
    with closing(
        DaskExecutor(cluster.scheduler_address, RUNNER).results(tasks("quick", "hangs"))
    ) as results:
        assert next(results)[0].policy == "quick"
        wait_for(marker.exists)
    wait_for(lambda: all(gone(int(word)) for word in marker.read_text().split()[:2]))


def test_files_that_changed_are_not_simulated(cluster: Any, tmp_path: Path) -> None:
    """The folder is edited between the naming of its task and its run: the task fails, and says
    why.
    """
    (tmp_path / "workload.csv").write_text("job_id\nj1\n")
    asked = grid([source_of_folder(tmp_path)], ["mip"], 1, SimulationOptions())
    (tmp_path / "workload.csv").write_text("job_id\nj2\n")
    ((_, outcome),) = DaskExecutor(cluster.scheduler_address, RUNNER).results(asked)
    assert "have changed" in outcome.failure


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler at the address: a usage error that names it."""
    monkeypatch.setattr("allocator.bench.sweep.on_dask.CONNECT_S", 0.5)
    with pytest.raises(UsageError, match=r"tcp://127\.0\.0\.1:9"):
        next(DaskExecutor("tcp://127.0.0.1:9", RUNNER).results(tasks("quick")))
