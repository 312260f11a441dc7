"""Every column is documented, read, validated, used, written and read back."""

from __future__ import annotations

import csv
import io
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import EVERYTHING, content
from text_tables import cells

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import (
    CONFIG_TABLES,
    TABLES,
    Column,
    ColumnKind,
)
from allocator.errors import InvalidInput
from allocator.io.json_schema import snapshot_schema
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot

ALL = [(file, c) for file, schema in TABLES.items() for c in schema.columns]
each_column = pytest.mark.parametrize(
    ("file", "column"), ALL, ids=[f"{f[:-4]}.{c.name}" for f, c in ALL]
)


def grid(file: str) -> list[list[str]]:
    """Header and rows of a file of the snapshot that uses everything."""
    return list(csv.reader(io.StringIO(EVERYTHING[file].decode())))


def with_cell(file: str, column: str, text: str, row: int = 1) -> dict[str, bytes]:
    """That snapshot with one cell changed; row 1 is the first below the header."""
    rows = grid(file)
    rows[row][rows[0].index(column)] = text
    return EVERYTHING | {file: csv_bytes(rows)}


def csv_bytes(rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def judge(files: dict[str, bytes]) -> Problem:
    return validate(parse_snapshot("everything", files))


@cache
def whole() -> Any:
    """What that snapshot holds."""
    return content(judge(dict(EVERYTHING)))


@pytest.mark.parametrize("file", TABLES)
def test_columns_are_documented_used_and_survive_writing(file: str, tmp_path: Path) -> None:
    """Each has words and choices in the JSON Schema, and a value in the snapshot that uses
    everything, which has the same cells after writing and reading.
    """
    described = snapshot_schema()["properties"][file]["items"]["properties"]
    first = parse_snapshot("everything", EVERYTHING)
    again = read_snapshot(write_snapshot(first, tmp_path / "copy"))
    assert (again.digest, again.tables[file].columns) == (first.digest, first.tables[file].columns)
    for column in TABLES[file].columns:
        words = described[column.name]
        assert len(column.doc) >= 4 and words["description"] == column.doc
        assert words.get("enum", []) == list(column.choices)
        assert any(first.tables[file].columns[column.name])


# optional columns without which others make no sense: running jobs need three of them, a date its
# amount; times needs every_s; headroom is of GPUs or sessions; a share of a GPU needs the GPU;
# a node that returns has left; compute_s is the step of which others are a part; losses need all
# three
NEEDED = """pool gpus state amount until_s headroom_gpus sessions_per_hour session_s every_s
gpu_fraction gpu compute_s target_loss loss_work loss_error leaves_s"""


@each_column
def test_optional_column_has_an_effect(file: str, column: Column) -> None:
    """Without the column the Problem is another one, so no column is read for nothing; a
    required one is missed.
    """
    rows = grid(file)
    place = rows[0].index(column.name)
    without = EVERYTHING | {file: csv_bytes([row[:place] + row[place + 1 :] for row in rows])}
    try:
        assert content(judge(without)) != whole()
    except InvalidInput as error:
        assert column.required or column.name in NEEDED.split()
        assert any(column.name in f.message for f in error.faults)


@each_column
def test_column_is_validated(file: str, column: Column) -> None:
    """A text that no column can hold is a fault in its line that names the column."""
    with pytest.raises(InvalidInput) as caught:
        judge(with_cell(file, column.name, "?\x07", row=2))
    at_line = [f.message for f in caught.value.faults if (f.file, f.line) == (file, 3)]
    assert any(message.startswith(column.name) for message in at_line), caught.value.faults


NUMERIC = [(f, c) for f, c in ALL if c.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER)]
ODD = """
nan NaN inf -inf Infinity 1_000 1,000 １２ ٣ 1e999 -1e999 0x10 1e-320 1e31 1.2.3 --1"""


@pytest.mark.parametrize(
    "column", [c for _, c in NUMERIC], ids=[f"{f[:-4]}.{c.name}" for f, c in NUMERIC]
)
def test_numbers_are_plain_finite_and_within_their_range(column: Column) -> None:
    """No nan, infinity, underscore, other script or overflow; no number on the wrong side of a
    bound.
    """
    texts = ODD.split() + [""] * column.required
    texts += [repr(column.low - 1)] * (column.low > -np.inf) + [repr(column.above)] * (
        column.above > -np.inf
    )
    texts += [repr(column.high + 1)] * (column.high < np.inf) + ["2.5"] * (
        column.kind is ColumnKind.INTEGER
    )
    _, complaints = parse(column, texts)
    assert [row for row, _ in complaints] == list(range(len(texts))), (texts, complaints)
    assert all(message.startswith(f"{column.name} ") for _, message in complaints)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        # 8.0 and 8 are the same number of GPUs, as pandas writes columns with gaps
        ("max_gpus", {"8.0": 8, "8e0": 8}),
        ("preemptible", dict.fromkeys(("true", "Yes", "1", ""), True)),
        ("preemptible", dict.fromkeys(("FALSE", "no", "0"), False)),
    ],
)
def test_ways_to_write_a_value(column: str, values: dict[str, Any]) -> None:
    """Whole numbers as floats; true/false, yes/no, 1/0 in any case; empty is the default."""
    for text, value in values.items():
        assert getattr(judge(with_cell("jobs.csv", column, text)).jobs, column)[0] == value


def test_defaults_of_optional_columns() -> None:
    """A job, a pool and a tenant with nothing but the required cells."""
    p = judge(
        {
            "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\na,m,7,100,4\n",
            "pools.csv": b"pool,gpu_type,gpus\np,A,8\n",
            "rates.csv": b"model,gpu_type,gpus,work_per_s\nm,A,1,2\n",
            "tenants.csv": b"tenant\nt\n",
        }
    )
    for name, value in cells("""now_s=7 interval_s=300 budget_per_hour=inf restart_s=30
        max_changes=-1 jobs.total_work=100 jobs.state=0 jobs.pool=-1 jobs.gpus=0 jobs.min_gpus=1
        jobs.requested_gpus=1 jobs.sizes=-1 jobs.gpu_types=-1 jobs.weight=1 jobs.preemptible=1
        jobs.restart_s=30 jobs.resizes_left=-1 jobs.deadline_s=nan jobs.memory_gb=nan
        jobs.checkpoint_every_s=nan jobs.checkpoint_s=0 jobs.attained_gpu_s=0 jobs.restarts=0
        jobs.largest_gpus=0 pools.gpus_per_node=8 pools.market=0 pools.price_per_gpu_hour=0
        pools.startup_s=0 tenants.weight=1 tenants.max_gpus=inf tenants.guaranteed_gpus=0
        tenants.budget_per_hour=inf rates.rate=2 rates.batch_size=-1 rates.spread=-1""").items():
        found = np.ravel(attrgetter(name)(p))[0]
        assert found == pytest.approx(float(value), nan_ok=True), name
    assert (p.objective, p.pools.region, p.rates.variant) == ("progress", ("",), ("",))
    assert p.tenants.tenant == ("t", "default") and p.tenants.max_gpus[1] == np.inf
    assert p.received.tolist() == [[0]] and p.jobs.after == ((),)
    assert p.settings == {name: {} for name in CONFIG_TABLES}
