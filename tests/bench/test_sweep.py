"""Sweeps: tasks named by content, in processes of their own, killed when late, kept, resumed,
compared.
"""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_runners
import pytest
from examples import series
from waiting import PATIENCE_S, gone, in_time, wait_for

from allocator.bench.sweep.executors import TaskOutcome, on_processes, perform
from allocator.bench.sweep.store import SweepStore, sweep
from allocator.bench.sweep.tables import comparisons, list_results, markdown, write_tables
from allocator.bench.sweep.tasks import (
    METRICS_FILE,
    SweepTask,
    from_identity,
    grid,
    source_of_folder,
)
from allocator.errors import AllocatorError, UsageError
from allocator.simulator import SimulationOptions

RUNNER = "fake_runners:as_named"


@pytest.fixture(autouse=True)
def runners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Makes the fake runners importable in the processes of tasks."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("FAULT", str(tmp_path / "fault"))
    monkeypatch.setenv("MARKER", str(tmp_path / "marker"))


def tasks(*policies: str, seeds: int = 1, loads: tuple[float, ...] = (0.5,)) -> list[SweepTask]:
    sources = [SweepTask("made", load, jobs=10) for load in loads]
    return grid(sources, policies, seeds, SimulationOptions())


def run(folder: Path, asked: list[SweepTask]) -> SimpleNamespace:
    told: list[SweepTask] = []
    with SweepStore(folder) as store:
        before, executor = sum(map(store.is_done, asked)), on_processes(2, RUNNER)
        failed = sweep(asked, store, executor, lambda task, _: told.append(task))
    return SimpleNamespace(before=before, ran=len(told), failed=failed)


def test_a_task_is_what_its_result_depends_on(tmp_path: Path) -> None:
    """Every part of a task changes its key, the place of a folder does not, and the key survives
    JSON. The key of one task was written down when the format was made: a change would orphan every
    result there is."""
    task = SweepTask("made", 0.3, "mip", 1, 10)
    changes = {"workload": "other", "load": 0.4, "policy": "las", "seed": 2, "jobs": 11}
    others = [dataclasses.replace(task, **{name: value}) for name, value in changes.items()]
    others += [SweepTask("made", 0.3, "mip", 1, 10, "d", options={"noise": 0.2})]
    assert len({t.key for t in (task, *others)}) == 7
    for t in (task, *others):
        assert from_identity(json.loads(json.dumps(t.identity))) == t
    assert SweepTask("reproduction", 0.3, "mip", 0, 250).key.startswith("e8b9848a773be9c9")
    here, there = (tmp_path / name for name in ("a/demo", "b/demo"))
    for folder in (here, there):
        folder.mkdir(parents=True)
        (folder / "workload.csv").write_text("job_id\nj1\n")
    (there / "README.md").write_text("no part of it")
    sources = [source_of_folder(folder) for folder in (here, there)]
    one, two = (grid([source], ["mip"], 1, SimulationOptions())[0].key for source in sources)
    assert one == two and sources[0].digest == sources[1].digest
    with pytest.raises(UsageError, match="same name"):
        grid(sources, ["mip"], 1, SimulationOptions())
    (there / "workload.csv").write_text("job_id\nj2\n")
    assert source_of_folder(there).digest != sources[0].digest


def test_a_folder_in_a_world_without_chance_has_one_seed(tmp_path: Path) -> None:
    """Its simulation would be the same three times, and three equal pairs are one observation;
    with noise it is not.
    """
    (tmp_path / "workload.csv").write_text("job_id\nj1\n")
    sources = [source_of_folder(tmp_path), SweepTask("made", 0.5, jobs=10)]
    for noise, seeds in ((0.0, [0, 0, 1, 2]), (0.1, [0, 0, 1, 1, 2, 2])):
        made = grid(sources, ["mip"], 3, SimulationOptions(noise=noise))
        assert [t.seed for t in made] == seeds
    (tmp_path / "pools.csv").write_text("pool,revocations_per_gpu_hour\na,\nb,0.1\n")
    revocable = [source_of_folder(tmp_path)]
    assert len(grid(revocable, ["mip"], 3, SimulationOptions())) == 3
    assert len(grid(revocable, ["mip"], 3, SimulationOptions(revocations=0.0))) == 1


def test_a_task_has_the_options_that_were_asked_for() -> None:
    """Those that are not as by default, by name, and no seed but its own; they give the
    simulator's options back."""
    given = {"objective": "cost", "budget_amount": 100.0, "until_s": 3600.0, "victims": "random"}
    asked = SimulationOptions(seed=7, gap=1e-3, **given)
    source = SweepTask("made", 0.5, jobs=10)
    first, second = grid([source], ["mip"], 2, asked)
    assert first.options == second.options == given
    again = SimulationOptions(seed=second.seed, **second.options)
    assert again == dataclasses.replace(asked, seed=1)
    assert grid([source], ["mip"], 1, SimulationOptions())[0].options == {}


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    """Six tasks, then six and two more: only the two run. A folder that lost its metrics is made
    anew.
    """
    first = run(tmp_path, tasks("greedy", "mip", seeds=3))
    assert (first.before, first.ran, first.failed) == (0, 6, [])
    key = tasks("mip")[0].key
    files = {path.name: path.read_bytes() for path in (tmp_path / "tasks" / key).iterdir()}
    assert {*files} == {"jobs.csv", "metrics.json", "run.json", "task.json"}
    assert json.loads(files["task.json"]) == tasks("mip")[0].identity
    again = run(tmp_path, tasks("greedy", "mip", seeds=4))
    assert (again.before, again.ran) == (6, 2)
    metrics = tmp_path / "tasks" / key / "metrics.json"
    assert metrics.read_bytes() == files["metrics.json"]
    metrics.unlink()
    assert run(tmp_path, tasks("greedy", "mip", seeds=4)).ran == 1


FAILURES = {
    "crashes": ("exit code 1", "RuntimeError: a bug of the simulator"),
    "killed": ("killed by SIGKILL", "about to be killed"),
    "full-disk": ("exit code 1", "File too large"),
    "nothing": ("left no metrics.json", ""),
}


@pytest.mark.parametrize("kind", series([*FAILURES], 2))
def test_a_task_that_fails_is_recorded_and_tried_again(tmp_path: Path, kind: str) -> None:
    """A crash, a SIGKILL, a full disk, no result: the others are kept, the failure is in failed/
    with its last words, and the next call, the fault mended, runs this task alone and removes the
    record."""
    failure, words = FAILURES[kind]
    asked = tasks("greedy", f"once-{kind}", "mip")
    (tmp_path / "fault").touch()
    swept = run(tmp_path, asked)
    ((task, outcome),) = swept.failed
    assert task == asked[1] and outcome.failure == failure and words in outcome.words
    record = tmp_path / "failed" / f"{task.key}.json"
    told = json.loads(record.read_text())
    assert told["failure"] == failure and words in told["words"] and told["policy"] == task.policy
    assert not (tmp_path / "tasks" / task.key).exists()
    (tmp_path / "fault").unlink()
    again = run(tmp_path, asked)
    assert (again.before, again.ran, again.failed) == (2, 1, []) and not record.exists()


def test_a_task_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """It sleeps and has a child that sleeps: both are gone after the limit, and so are their
    files.
    """
    with in_time(10.0):
        outcome = perform(tasks("hangs")[0], RUNNER, 2.0)
    assert outcome.failure == "killed at the time limit of the task"
    task, child, home = (tmp_path / "marker").read_text().split()
    wait_for(lambda: gone(int(task)) and gone(int(child)))
    assert not Path(home).exists()


def test_a_full_disk_of_results_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the results is full at the second task: the sweep ends with that error, the first
    task is there, nothing half is left, and the next call runs the second alone."""
    real, calls = os.fsync, []

    def fsync(file: int) -> None:
        calls.append(file)
        # machine.txt and its folder, four files and theirs, the third of the next
        if len(calls) == 2 + 5 + 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    with (
        monkeypatch.context() as patch,
        pytest.raises(AllocatorError, match="no space left"),
        SweepStore(tmp_path) as store,
    ):
        patch.setattr("os.fsync", fsync)
        sweep(tasks("greedy", "mip"), store, on_processes(1, RUNNER))
    assert [p.name for p in (tmp_path / "tasks").iterdir()] == [tasks("greedy")[0].key]
    assert run(tmp_path, tasks("greedy", "mip")).ran == 1


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second sweep into the same folder is refused until the first has ended."""
    with SweepStore(tmp_path), pytest.raises(UsageError, match="another sweep"):
        SweepStore(tmp_path)
    with SweepStore(tmp_path) as store, pytest.raises(UsageError, match="no sweep"):
        store.last_request()


SCRIPT = """
import sys
from allocator.bench.sweep.executors import on_processes
from allocator.cli import main
from allocator.cli.measure import bench
import fake_runners
bench.build_executor = lambda args: on_processes(2, fake_runners.__name__ + ":as_named")
bench.write_policy_report = lambda folder: folder / "report.html"
bench.policy = lambda name: None
sys.exit(main.run(sys.argv[1:]))
"""


def start(folder: Path, *policies: str) -> subprocess.Popen[str]:
    """The command with fake runners, in a process of its own."""
    words = f"bench policies --workloads reproduction --loads 0.3 --seeds 1 --out {folder}"
    argv = [sys.executable, "-c", SCRIPT, *words.split(), "--policies", ",".join(policies)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.nightly)],
)
def test_a_sweep_that_is_stopped_goes_on_later(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGKILL while a task hangs: what was finished is kept, the task and its
    child are gone, and the next call runs the rest only."""
    out = tmp_path / "out"
    (tmp_path / "fault").touch()
    process = start(out, "quick", "once-hangs", "slow")
    wait_for(
        lambda: (tmp_path / "marker").exists() and len(list((out / "tasks").glob("[0-9a-f]*"))) == 3
    )
    process.send_signal(sent)
    said, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code and said == "" and "Traceback" not in told
    assert ("the same command goes on after" in told) == (sent != signal.SIGKILL)
    pids = [int(word) for word in (tmp_path / "marker").read_text().split()[:2]]
    wait_for(lambda: all(map(gone, pids)))
    (tmp_path / "fault").unlink()
    process = start(out, "quick", "once-hangs", "slow")
    said, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and said.startswith("# Policies against greedy")
    assert told.count(" seed 0: ") == 1 and "once-hangs seed 0" in told


@pytest.mark.nightly
def test_failed_tasks_make_the_command_fail(tmp_path: Path) -> None:
    """Exit code 1, a line per task on standard error, and the tables of what is there."""
    process = start(tmp_path, "crashes")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "1 of 2 tasks failed" in err and "Traceback" not in err
    assert "crashes seed 0: FAILED, exit code 1: RuntimeError: a bug of the simulator" in err
    assert "Incomplete: 1 of 2 tasks" in out


def test_tables_by_hand(tmp_path: Path) -> None:
    """Fake runs in which mip queues 20 % less than greedy and las 10 % more, at every load and
    seed: the interval has no width, Wilcoxon's p of 7 equal signs is 2 / 2**7, and the pooled row
    counts each seed once."""
    asked = tasks("greedy", "mip", "las", seeds=7, loads=(0.5, 1.0))
    with SweepStore(tmp_path) as store:
        for task in asked:
            fake_runners.as_named(task, tmp_path)
            files = {METRICS_FILE: (tmp_path / METRICS_FILE).read_bytes()}
            store.add(task, TaskOutcome(files))
        text = write_tables(store, asked, "greedy")
    with (tmp_path / "results.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 42 and rows[0]["queue_s_mean"] == "50.0" and rows[0]["task"] == asked[0].key
    with (tmp_path / "comparison.csv").open(newline="") as source:
        found = {(r["load"], r["policy"], r["metric"]): r for r in csv.DictReader(source)}
    assert {load for load, *_ in found} == {"0.5", "1", "all"} and len(found) == 3 * 2 * 8
    for load, mean in (("0.5", 200.0), ("1", 400.0), ("all", 300.0)):
        mip = found[load, "mip", "queue_s_mean"]
        assert mip["n"] == "7" and mip["verdict"] == "better" and mip["lower"] == "7"
        assert float(mip["baseline_mean"]) == pytest.approx(mean)
        assert float(mip["wilcoxon_p"]) == pytest.approx(2 / 2**7)
    assert found["all", "las", "jct_s_mean"]["verdict"] == "worse"
    assert "| all | mip | **-20.0** [-20.0, -20.0] |" in text and "| all | las | _+10.0_ [" in text


def test_the_share_of_the_bound_by_hand() -> None:
    """`least` is 60 s and 100 s, and the mean of mip 120 s and 125 s: 50 and 80 %. las has one."""
    means = {"least": (60.0, 100.0), "mip": (120.0, 125.0), "las": (100.0, None)}
    asked = {t: {"jct_s_mean": means[t.policy][t.seed]} for t in tasks(*means, seeds=2)}
    results = list_results(asked)
    text = markdown(comparisons(results, "las"), results, len(asked), "las")
    assert "completion below 80 s (`least`)" in text and "mip 65%, las 60%." in text
