"""`allocator bench policies` with real simulations, and what is wrong with a command line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from places import ROOT
from text_tables import cases

from allocator.bench.workloads import generate
from allocator.cli import main
from allocator.simulator.options import SimulationOptions
from allocator.simulator.results.files import texts_of
from allocator.simulator.run import simulate

DEMO = str(ROOT / "data" / "workloads" / "demo")
Output = pytest.CaptureFixture[str]


@pytest.mark.nightly
def test_a_sweep_from_end_to_end(tmp_path: Path, capsys: Output) -> None:
    """A generator and a folder under greedy (added as the baseline) and static: lines on standard
    error, the table on standard output, a row per task; every task's files are those of the
    simulation itself. Again: nothing runs, and `report`
    says the same."""
    folder = generate("diurnal", seed=3, load=0.8, jobs=5).write(tmp_path / "small")
    out = tmp_path / "out"
    words = f"bench policies --workloads reproduction,{folder} --loads 0.36 --jobs-per-workload 6"
    argv = [*words.split(), "--policies", "static", "--seeds", "2", "--out", str(out)]
    assert main.run(argv) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# Policies against greedy") and "## small" in said.out
    assert "folders are simulated once" in said.err
    assert "6 of 6" in said.err
    assert said.err.index("with 2 seeds every difference will stay open") < said.err.index("1 of 6")
    with (out / "results.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert [(r["workload"], r["load"], r["seed"], r["policy"]) for r in rows] == [
        *(("reproduction", "0.36", "0", p) for p in ("greedy", "static")),
        *(("small", "", "0", p) for p in ("greedy", "static")),
        *(("reproduction", "0.36", "1", p) for p in ("greedy", "static")),
    ]
    alone = simulate(
        generate("reproduction", seed=1, load=0.36, jobs=6).workload(),
        policy="static",
        options=SimulationOptions(seed=1),
    )
    task = out / "tasks" / rows[-1]["task"]
    for name, text in texts_of([alone]).items():
        assert name == "rounds.csv" or (task / name).read_text() == text
    assert float(rows[-1]["jct_s_mean"]) == alone.metrics["jct_s_mean"]
    for again in (argv, ["bench", "policies", "report", "--out", str(out)]):
        assert main.run(again) == 0
        repeated = capsys.readouterr()
        assert repeated.out == said.out and " seed 0: " not in repeated.err


WRONG = f"""
--policies mipp -> did you mean "mip"
--workloads reproducton -> neither a generator
--workloads {DEMO} --loads 0.5 -> simulated as it is
--loads 0 -> above 0
--seeds 0 -> from 1
--scheduler tcp://x:1 -> needs --executor dask
--executor dask --scheduler tcp://x:1 --workers 2 -> --workers is for
--objective happiness -> happiness
"""


@pytest.mark.parametrize(("argv", "says"), cases(WRONG))
def test_what_is_wrong_is_said_before_anything_runs(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, argv: str, says: str
) -> None:
    """Exit code 2, one message, and no task was started."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["bench", "policies", "--out", str(tmp_path / "out"), *argv.split()]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == "" and not (tmp_path / "out" / "tasks").exists()
