"""What somebody who is new to the project runs into: wrong calls are answered at once and in
words.
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from cases.traces import SACCT
from commands import Output, call
from places import ROOT

from allocator import read_workload
from allocator.io.traces.base import TraceOptions
from allocator.io.traces.run import import_trace, write_tables


def test_a_file_in_place_of_a_folder(capsys: Output, tmp_path: Path) -> None:
    """Named before anything is simulated or started; the file stays as it was."""
    file, queue, data = tmp_path / "notes.txt", tmp_path / "q.db", ROOT / "data"
    file.write_text("mine")
    said = f'cannot write to "{file}": a file of that name is in the way\n'
    line = f"simulate {data / 'workloads' / 'demo'} --policy greedy --out {file}"
    assert call(capsys, line) == (2, "", said)
    assert call(capsys, f"queue init {queue} --from {data / 'snapshots' / 'demo'}")[0] == 0
    code, out, err = call(capsys, f"run {queue} --once --executor files --state {file}")
    assert (code, out) == (2, "") and "--state" in err and file.read_text() == "mine"
    code, _, err = call(capsys, f"queue init {tmp_path}")
    assert code == 1 and "it is a folder" in err


def test_a_report_without_pictures_says_why(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error; the path of the page is still the only thing on standard output."""
    folder = tmp_path / "results"
    workload = ROOT / "data/workloads/demo"
    assert call(capsys, f"simulate {workload} --policy greedy --until 900 --out {folder}")[0] == 0
    find = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(
        "allocator.cli.measure.report.find_spec",
        lambda name: None if name == "matplotlib" else find(name),
    )
    code, out, err = call(capsys, f"report {folder}")
    assert (code, out) == (0, f"{folder / 'report.html'}\n") and "pip install 'matplotlib" in err
    page = (folder / "report.html").read_text()
    assert "plots" in page and "<figure" not in page and "data-metric" in page


def test_own_log_from_slurm(tmp_path: Path) -> None:
    """Records with only the columns that docs/howto.md asks sacct for are imported."""
    page = (ROOT / "docs" / "howto.md").read_text(encoding="utf-8")
    asked = re.search(r"sacct .* -o (\S+) > history.txt\nallocator import slurm", page)
    assert asked is not None
    rows = pd.read_csv(io.StringIO(SACCT), sep="|", dtype=str, keep_default_na=False)
    rows["Timelimit"] = "1-00:00:00"
    rows[asked[1].split(",")].to_csv(tmp_path / "history.txt", sep="|", index=False)
    tables, _ = import_trace("slurm", tmp_path / "history.txt", TraceOptions())
    workload = read_workload(write_tables(tables, tmp_path / "mine"))
    assert workload.problem.jobs.job_id == ("1", "2_1", "2_2", "2_2-2", "5")
    assert workload.problem.jobs.time_limit_s.tolist() == [86400.0] * 5
