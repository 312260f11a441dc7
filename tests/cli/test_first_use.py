"""What somebody who is new to the project runs into: wrong calls are answered at once and in
words.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd
from cases.traces import SACCT
from commands import Output, call
from places import ROOT

from allocator import read_workload
from allocator.io.traces.base import TraceOptions
from allocator.io.traces.run import import_trace
from allocator.io.workloads import write_tables


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
