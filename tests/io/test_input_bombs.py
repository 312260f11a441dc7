"""Small files that unpack or parse to something enormous, and odd tables of other systems."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples import series
from places import ROOT
from waiting import PATIENCE_S

from allocator.errors import InvalidInput
from allocator.io.tables.csv_table import MOST_CELLS, ReadingLog, parse_csv
from allocator.io.traces import gavel, text


@pytest.mark.parametrize(
    "content",
    series(
        [
            b"job_id,model\n" + b"," * 20_000_000,
            b"," * 20_000_000,
            b'job_id,model\na,m\n"' + b"," * 20_000_000,
        ],
        1,
    ),
)
def test_twenty_megabytes_of_commas_are_a_fault(tmp_path: Path, content: bytes) -> None:
    """As row, as header and inside a quote: exit 3 with the file's name, in a process of 3 GB; a
    bomb that goes off ends it with exit code 1 or worse.
    """
    (tmp_path / "jobs.csv").write_bytes(content)
    (tmp_path / "pools.csv").write_text("pool,gpu_type,gpus\np,G,8\n")
    (tmp_path / "rates.csv").write_text("model,gpu_type,gpus,work_per_s\nm,G,1,1\n")
    done = subprocess.run(
        [
            "sh",
            "-c",
            f"ulimit -v {3 << 20}; exec {sys.executable} -m allocator validate {tmp_path}",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 3 and "jobs.csv" in done.stderr, done.stderr[-500:]


def test_the_limit_on_cells_is_on_either_side_of_it() -> None:
    """Ten thousand columns are read, one more is a fault that says the limit."""
    header = ",".join(f"c{i}" for i in range(MOST_CELLS))
    reading = ReadingLog("jobs.csv")
    assert parse_csv(header.encode(), reading) is not None and not reading.faults
    assert parse_csv((header + ",more").encode(), reading) is None
    assert "10000 columns" in reading.faults[0].message
    # lines that end as on an old Macintosh
    old = ReadingLog("jobs.csv")
    assert parse_csv(("a,b\r" + "1,2\r" * MOST_CELLS).encode(), old) is not None and not old.faults


def test_a_gzip_bomb_is_refused_and_an_ordinary_archive_is_read(tmp_path: Path) -> None:
    """Twenty kilobytes that unpack to 20 MB are refused; a table that shrinks to a
    twentieth is not.
    """
    bomb, table = tmp_path / "bomb.csv.gz", tmp_path / "table.csv.gz"
    bomb.write_bytes(gzip.compress(b"\n" * 20_000_000))
    with pytest.raises(InvalidInput, match="times its size"):
        text.content(bomb)
    rows = "".join(f"{i},{i % 7},10.0\n" for i in range(200_000)).encode()
    table.write_bytes(gzip.compress(rows, 1))
    assert text.content(table) == rows


@pytest.mark.parametrize(
    "table",
    [
        "[]",
        "3",
        '{"v100": 3}',
        '{"v100": {"x": {"null": 1}}}',
        '{"v100": {"(\'a\', 1)": {"null": "much"}}}',
        '{"v100": {"(\'a\', 1)": {"null": Infinity}}}',
        '{"v100": {"(\'a\', 0)": {"null": 1}}}',
        '{"v100": {"(\'a\', 1.5)": {"null": 1}}}',
        '{"v100": {"(\'a\', 1)": {"null": 1' + "0" * 400 + "}}}",
        '{"v100": {"(\'a\', 1e999)": {"null": 1}}}',
        json.dumps({"v100": {"(" * 5000: {"null": 1}}}),
        '{"v100": {"(\'a\', ' + "9" * 30 + ')": {"null": 1}}}',
        "[" * 100_000,
        '{"v100": {"__import__(\'os\')": {"null": 1}}}',
    ],
)
def test_odd_tables_of_speeds_are_faults(tmp_path: Path, table: str) -> None:
    """Whatever stands in a table of steps per second: a fault that names the file, never another
    exception.
    """
    path = tmp_path / "throughputs.json"
    path.write_text(table)
    with pytest.raises(InvalidInput, match=r"throughputs\.json"):
        gavel.read_speeds_alone(path)
