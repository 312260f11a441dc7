"""The solver benchmarks: measured in processes of their own, killed when late, resumed,
reported.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest

from allocator.bench.solvers.process import Point, measure
from allocator.bench.solvers.records import RUNS, TRACE, MeasurementStore, run_all
from allocator.bench.solvers.runs import SolverRun
from allocator.cli import main
from allocator.errors import UsageError
from allocator.report.solvers.results import markdown, read_results

TINY = "20x16x2"
Output = pytest.CaptureFixture[str]


def run(
    engine: str, instance: str = TINY, rules: str = "standard", limit_s: float = 20.0
) -> SolverRun:
    return SolverRun(instance, rules, 0, engine, 1e-4, limit_s)


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
    runs = [run("faulty_backends.has_children", limit_s=0.2), run("greedy")]
    assert run_all(runs, MeasurementStore(tmp_path)) == 2
    hung, after = rows(tmp_path)
    assert hung["ended"] == "killed" and hung["value"] == hung["gap"] == ""
    assert after["ended"] == "time_limit" and float(after["value"]) > 0
    told, trace = measure(run("faulty_backends.hangs_with_plan", limit_s=0.2))
    assert told["ended"] == "killed" and trace[-1].bound == 20.0
    assert "killed" in markdown(read_results(tmp_path))


def engine(folder: Path, body: str) -> None:
    """The module pack.engine in the folder, whose `solve` has that body."""
    (folder / "pack").mkdir()
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / "pack" / "engine.py").write_text(
        "import os, pathlib, subprocess, sys, time\n"
        f"from allocator.solvers.base import SolverResult, Termination\n"
        f"def solve(model, limits, hint, report):\n{lines}\n"
    )


def test_a_killed_benchmark_leaves_files_that_go_on(tmp_path: Path) -> None:
    """Half a line at the end is cut, the row it stood for is measured again; other headers are
    refused.
    """
    store = MeasurementStore(tmp_path)
    store.add(run("greedy"), {}, ())
    with (tmp_path / RUNS).open("a") as out:
        out.write("S,standard,0,hi")
    again = MeasurementStore(tmp_path)
    assert again.finished() == {run("greedy").key}
    assert run_all([run("greedy"), run("marginal")], again) == 1
    assert [r["engine"] for r in rows(tmp_path)] == ["greedy", "marginal"]
    (tmp_path / RUNS).write_text("engine,seconds\n")
    with pytest.raises(UsageError, match="another version"):
        MeasurementStore(tmp_path)


WRONG = ("--engines higs", "--engines ,", "--sizes XS", "--sizes 0x4x1", "--rules none", "report")


@pytest.mark.parametrize("argv", [*WRONG, "--rounds hot"])
def test_wrong_calls(tmp_path: Path, capsys: Output, argv: str) -> None:
    """Unknown names and a report of nothing: exit code 2, one line that says what is wrong."""
    assert main.run(["bench", "solvers", *argv.split(), "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().out == ""


def filled(folder: Path) -> Path:
    """Invented results: two sizes, two engines, one of which lies about its bound on seed 1."""
    store = MeasurementStore(folder)
    for size, jobs in (("S", 100), ("M", 500)):
        for seed in (0, 1):
            for engine, value, bound in (
                ("highs", 100.0, 100.02),
                ("pulp", 99.0, 99.5 if seed else 101.0),
                ("greedy", 90.0, None),
            ):
                trace = (Point(0.25, 0.3, value, None), Point(0.5, 0.6, value, bound))
                store.add(
                    SolverRun(size, "standard", seed, engine, 1e-3, 9.0),
                    {"jobs": jobs, "ended": "gap", "cpu_s": 0.5 + seed},
                    trace,
                )
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
