"""What somebody who is new to the project runs into: wrong calls are answered at once and in words."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from allocator.cli import main

ROOT = Path(__file__).resolve().parent.parent
Output = pytest.CaptureFixture[str]


def call(capsys: Output, *argv: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    code = main.run([str(a) for a in argv])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("option", [["--sabotage"], ["--dir", "x"]])
def test_options_of_the_live_demo_need_it(capsys: Output, option: list[str]) -> None:
    """They were ignored, and the other demo ran."""
    assert call(capsys, "demo", *option) == (2, "", f"{option[0]} needs --live\n")


def test_a_file_in_place_of_a_folder(capsys: Output, tmp_path: Path) -> None:
    """Named before anything is simulated or started; the file stays as it was."""
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    code, out, err = call(capsys, "simulate", ROOT / "data/workloads/demo", "--policy", "greedy", "--out", file)
    assert (code, out) == (2, "") and err == f'cannot write to "{file}": a file of that name is in the way\n'
    queue = tmp_path / "q.db"
    assert call(capsys, "queue", "init", queue, "--from", ROOT / "data/snapshots/demo")[0] == 0
    code, out, err = call(capsys, "run", queue, "--once", "--executor", "files", "--state", file)
    assert (code, out) == (2, "") and "--state" in err and file.read_text() == "mine"
    code, _, err = call(capsys, "queue", "init", tmp_path)
    assert code == 1 and "it is a folder" in err


def test_missing_files_have_one_name(capsys: Output, tmp_path: Path) -> None:
    """The system's own words, with an error number, reach nobody."""
    code, _, err = call(capsys, "rent", tmp_path / "none.csv", "--budget", 1)
    assert code == 3 and err.endswith("none.csv: there is no such file\n")
    code, _, err = call(capsys, "bench", "solvers", "report", "--out", tmp_path)
    assert code == 2 and err.endswith("runs.csv is missing\n") and "Errno" not in err


def test_a_report_without_pictures_says_why(capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error; the path of the page is still the only thing on standard output."""
    folder = tmp_path / "results"
    workload = ROOT / "data/workloads/demo"
    assert call(capsys, "simulate", workload, "--policy", "greedy", "--until", 900, "--out", folder)[0] == 0
    find = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("allocator.cli.report.find_spec", lambda name: None if name == "matplotlib" else find(name))
    code, out, err = call(capsys, "report", folder)
    assert (code, out) == (0, f"{folder / 'report.html'}\n") and "plots" in err
