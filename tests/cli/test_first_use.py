"""What somebody who is new to the project runs into: wrong calls are answered at once and in
words.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Output, call
from places import ROOT

from allocator import read_workload


def test_a_file_in_place_of_a_folder(capsys: Output, tmp_path: Path) -> None:
    """Named before anything is simulated or started; the file stays as it was."""
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    code, out, err = call(
        capsys, f"simulate {ROOT / 'data/workloads/demo'} --policy greedy --out {file}"
    )
    assert (code, out) == (
        2,
        "",
    ) and err == f'cannot write to "{file}": a file of that name is in the way\n'
    queue = tmp_path / "q.db"
    assert call(capsys, f"queue init {queue} --from {ROOT / 'data/snapshots/demo'}")[0] == 0
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


def test_the_line_for_the_accounting_of_slurm(capsys: Output, tmp_path: Path) -> None:
    """The awk of docs/howto.md keeps the jobs with GPUs and their number, with or without a
    type; import reads them.
    """
    page = (ROOT / "docs" / "howto.md").read_text(encoding="utf-8")
    program = re.search(r"awk -F'\|' -v OFS=, '(.*?)' > jobs.csv", page, re.DOTALL)
    assert program is not None
    rows = [
        "7|ann|2026-01-01T10:00:00|3600|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G",
        "8|bob|2026-01-01T10:05:00|60|billing=1,cpu=1,mem=4G",
        "9|ann|2026-01-01T11:00:00|7200|gres/gpu=16,node=2",
    ]
    said = subprocess.run(
        ["awk", "-F|", "-v", "OFS=,", program[1]],
        input="\n".join(rows) + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "jobs.csv").write_text(said)
    assert (
        call(capsys, f"import csv {tmp_path / 'jobs.csv'} --gpus 64 --out {tmp_path / 'mine'}")[0]
        == 0
    )
    jobs = read_workload(tmp_path / "mine").problem.jobs
    assert jobs.requested_gpus.tolist() == [4, 16] and (
        jobs.submitted_s - jobs.submitted_s[0]
    ).tolist() == [0, 3600]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"submitted_s;duration_s;gpus\n0;60;1\n", 'cells are separated by ";"'),
        (b"submitted_s|duration_s|gpus\n0|60|1\n", 'cells are separated by "|"'),
        ("submitted_s,duration_s,gpus\n0,60,1\n".encode("utf-16"), "is UTF-16"),
        (b"submitted_s,duration_s\0,gpus\n0,60,1\n", "NUL"),
    ],
)
def test_a_log_that_is_no_csv(capsys: Output, tmp_path: Path, content: bytes, says: str) -> None:
    """The reason, not that a column is missing."""
    (tmp_path / "log.csv").write_bytes(content)
    code, _, err = call(capsys, f"import csv {tmp_path}/log.csv --out {tmp_path}/out")
    assert code == 3 and says in err and not (tmp_path / "out").exists()
