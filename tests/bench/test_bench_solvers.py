"""The solver benchmarks: measured in processes of their own, killed when late, resumed,
reported.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import pytest

from allocator.bench.solvers.runs import TRACE, grid, late_s
from allocator.bench.solvers.tables import RUNS, write_runs
from allocator.bench.sweep.executors import TaskOutcome, on_processes
from allocator.bench.sweep.store import SweepStore, sweep
from allocator.bench.sweep.tasks import METRICS_FILE, SweepTask
from allocator.cli import main
from allocator.cli.measure.bench import RUNNER
from allocator.report.solvers import markdown, read_results

TINY = "20x16x2"
Output = pytest.CaptureFixture[str]


def tasks(
    *engines: str, size: str = TINY, seeds: int = 1, limit_s: float = 20.0
) -> list[SweepTask]:
    how = {"gap_asked": 1e-3, "limit_s": limit_s, "threads": 1}
    return grid(engines, [size], seeds, ["standard"], ["cold"], [], **how)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the faulty back ends of the tests importable in measured processes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def rows(folder: Path, file: str = RUNS) -> list[dict[str, str]]:
    with (folder / file).open(newline="") as source:
        return list(csv.DictReader(source))


def test_two_engines_agree_and_every_column_is_filled(tmp_path: Path, capsys: Output) -> None:
    """A tiny run from the command line: both prove the gap; bars go to standard error, tables to
    standard output.
    """
    argv = f"bench solvers --engines auto,highs --sizes {TINY} --seeds 1 --rules all"
    argv = [*argv.split(), "--limit", "20", "--out", str(tmp_path)]
    assert main.run(argv) == 0
    said = capsys.readouterr()
    assert "auto (own proof)" in said.out and "HiGHS" in said.out and "seed 0" in said.err
    ours, highs = rows(tmp_path)
    assert float(ours["value"]) == pytest.approx(float(highs["value"]), rel=2e-4)
    for row in (ours, highs):
        assert float(row["gap"]) <= 1e-4 and row["ended"] == "gap" and float(row["peak_mb"]) > 10
        mine = [t for t in rows(tmp_path, TRACE) if t["run"] == row["run"]]
        assert mine[-1]["value"] == row["value"] and mine[-1]["bound"] == row["bound"]
    before = (tmp_path / RUNS).read_bytes()
    # nothing is measured twice
    assert main.run(argv) == 0 and (tmp_path / RUNS).read_bytes() == before


@pytest.mark.nightly
@pytest.mark.usefixtures("faulty")
def test_an_engine_that_hangs_is_killed_and_recorded(tmp_path: Path) -> None:
    """It never returns: killed after limit and grace, its row says so, and the next run goes on;
    what an engine reported before it hung counts."""
    engines = ("faulty_backends.has_children", "greedy", "faulty_backends.hangs_with_plan")
    with SweepStore(tmp_path) as store:
        assert sweep(tasks(*engines, limit_s=0.2), store, on_processes(1, RUNNER)) == []
        write_runs(store)
    told, hung, after = rows(tmp_path)
    assert hung["ended"] == "killed" and hung["value"] == hung["gap"] == ""
    assert float(hung["wall_s"]) == late_s(0.2)
    assert told["ended"] == "killed" and float(told["bound"]) == 20.0
    assert after["ended"] == "time_limit" and float(after["value"]) > 0
    assert "killed" in markdown(read_results(tmp_path))


@pytest.mark.usefixtures("faulty")
def test_an_engine_that_does_not_load_is_a_failure(tmp_path: Path, capsys: Output) -> None:
    """Nothing was measured: exit code 1, and no row."""
    argv = f"bench solvers --engines faulty_backends.fails_to_load --sizes {TINY} --seeds 1"
    assert main.run([*argv.split(), "--out", str(tmp_path)]) == 1
    assert "1 of 1 tasks failed" in capsys.readouterr().err and rows(tmp_path) == []


WRONG = ("--engines higs", "--engines ,", "--sizes XS", "--sizes 0x4x1", "--rules none", "report")


@pytest.mark.parametrize("argv", [*WRONG, "--rounds hot"])
def test_wrong_calls(tmp_path: Path, capsys: Output, argv: str) -> None:
    """Unknown names and a report of nothing: exit code 2, one line that says what is wrong."""
    assert main.run(["bench", "solvers", *argv.split(), "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().out == ""


def filled(folder: Path) -> Path:
    """Invented results: two sizes, three engines, one of which lies about its bound on seed 1."""
    found = {"highs": (100.0, 100.02), "pulp": (99.0, 101.0), "greedy": (90.0, "")}
    with SweepStore(folder) as store:
        for size, jobs in (("S", 100), ("M", 500)):
            for task in tasks(*found, size=size, seeds=2):
                value, bound = found[task.policy]
                if task.policy == "pulp" and task.seed:
                    bound = 99.5
                trace = f"cpu_s,wall_s,value,bound\n.25,.3,{value},\n.5,.6,{value},{bound}\n"
                figures = {"jobs": jobs, "ended": "gap", "cpu_s": 0.5 + task.seed, "ready_cpu_s": 0}
                files = {METRICS_FILE: json.dumps(figures).encode(), TRACE: trace.encode()}
                store.add(task, TaskOutcome(files))
        write_runs(store)
    (folder / "machine.txt").write_text("a small machine\n")
    return folder


def test_table_from_csv(tmp_path: Path) -> None:
    """Medians and worst of the seeds; what greedy lost against the best bound; the lie is found
    out.
    """
    text = markdown(read_results(filled(tmp_path)))
    lines = text.splitlines()
    assert (
        lines[0] == "Machine: a small machine."
        and "**S**, 100 jobs" in text
        and "2 seeds, asked for 0.1 %" in text
    )
    highs = next(line for line in lines if line.startswith("| HiGHS"))
    assert "| 2 | 0.250 / 0.250 | 0.500 / 0.500 | 0.500 / 0.500 | – | 0.500 / 0.500 |" in highs
    assert "| 1.00 / 1.50 | 0.02 % / 0.02 % |" in highs
    assert "WRONG: pulp proved 99.5 for S standard seed 1, highs found 100" in text
    assert text.index("**S**") < text.index("**M**")
