"""Sweeps on a real Dask cluster of processes on this machine: the same bytes, faults that end a
task or a worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from waiting import gone, wait_for

from allocator.bench.sweep.executors import on_dask, on_processes
from allocator.bench.sweep.store import SweepStore, sweep
from allocator.bench.sweep.tasks import SweepTask, grid, source_of_folder
from allocator.bench.workloads import generate
from allocator.errors import UsageError
from allocator.simulator import SimulationOptions

HERE = Path(__file__).resolve().parents[1] / "support" / "processes"
RUNNER = "fake_runners:as_named"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two worker processes, which see the fake runners and the places named in the environment."""
    from distributed import LocalCluster

    places = tmp_path_factory.mktemp("places")
    options = {"n_workers": 2, "threads_per_worker": 1, "silence_logs": 50}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        for name in ("FAULT", "MARKER"):
            patch.setenv(name, str(places / name.lower()))
        # any free port: two of these may run at once
        with LocalCluster(
            processes=True, dashboard_address=":0", local_directory=str(places), **options
        ) as made:
            yield made


def tasks(*policies: str, seeds: int = 1) -> list[SweepTask]:
    return grid([SweepTask("made", 0.5, jobs=10)], policies, seeds, SimulationOptions())


def jobs(folder: Path) -> dict[str, str]:
    """The jobs of every task of a sweep."""
    return {path.parent.name: path.read_text() for path in folder.rglob("jobs.csv")}


@pytest.mark.nightly
def test_processes_and_dask_give_the_same_bytes(cluster: Any, tmp_path: Path) -> None:
    """Real simulations of a generator and of a folder, which travels to the workers: all jobs are
    the same to the byte. What Dask did, processes need not do again."""
    folder = generate("diurnal", seed=3, load=0.8, jobs=5).write(tmp_path / "small")
    sources = [SweepTask("reproduction", 0.36, jobs=6), source_of_folder(folder)]
    asked = grid(sources, ["mip"], 1, SimulationOptions())
    for name, executor in (
        ("here", on_processes(2)),
        ("there", on_dask(cluster.scheduler_address)),
    ):
        with SweepStore(tmp_path / name) as store:
            assert sweep(asked, store, executor) == []
    here = jobs(tmp_path / "here")
    assert here == jobs(tmp_path / "there") and len(here) == 2
    with SweepStore(tmp_path / "there") as store:
        assert all(map(store.is_done, asked))


@pytest.mark.nightly
def test_a_worker_that_is_killed_takes_its_task_with_it(cluster: Any) -> None:
    """SIGKILL for the worker in the middle of a task: the task's process ends too, another worker
    does the task again, and the sweep gets its result."""
    from distributed import Client

    marker, fault = Path(os.environ["MARKER"]), Path(os.environ["FAULT"])
    marker.unlink(missing_ok=True)
    fault.touch()
    with (
        closing(
            on_dask(cluster.scheduler_address, RUNNER)(tasks("once-hangs", "quick"))
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


@pytest.mark.nightly
def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler at the address: a usage error that names it."""
    monkeypatch.setattr("allocator.bench.sweep.executors.CONNECT_S", 0.5)
    with pytest.raises(UsageError, match=r"tcp://127\.0\.0\.1:9"):
        next(on_dask("tcp://127.0.0.1:9", RUNNER)(tasks("quick")))
