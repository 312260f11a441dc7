"""Every column is documented, read, validated, used, written and read back."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import EVERYTHING, content

from allocator.domain import problem
from allocator.domain.problem import Isolation, Market, Problem, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import (
    CONFIG,
    CONFIG_TABLES,
    CURVE_PARAMETERS,
    JOBS,
    MOST_GPUS,
    TABLES,
    Column,
    ColumnKind,
)
from allocator.errors import InvalidInput
from allocator.io.json_schema import result_schema, snapshot_schema
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot
from allocator.performance import curves

# the class of a file, and the columns that go by another name there
CLASSES = {"models.csv": "Curves"}
RENAMED = {
    "jobs.csv": {"shared_with": "primary"},
    "placements.csv": {"job_id": "job"},
    "rates.csv": {"work_per_s": "rate", "efficiency": "rate"},
}
# fields that come from several tables
DERIVED = {"rates.csv": {"nodes"}, "jobs.csv": {"shared_by"}}
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


@pytest.mark.parametrize("file", sorted(TABLES.keys() - {"prices.csv", "received.csv"}))
def test_fields_are_the_columns(file: str) -> None:
    """A column without a field, or a field without a column, is a mistake."""
    fields = dataclasses.fields(getattr(problem, CLASSES.get(file, file[:-4].capitalize())))
    names = RENAMED.get(file, {})
    assert {f.name for f in fields} - DERIVED.get(file, set()) == {
        names.get(c.name, c.name) for c in TABLES[file].columns
    }


def test_values_of_state_and_market_are_their_places_among_the_choices() -> None:
    """State.RUNNING is the index of "running" in the column's choices, and so on."""
    assert [s.name.lower() for s in State] == list(JOBS.column("state").choices)
    assert [m.name.lower() for m in Market] == list(TABLES["pools.csv"].column("market").choices)
    assert [i.name.lower() for i in Isolation] == list(
        TABLES["pools.csv"].column("sharing").choices
    )


@pytest.mark.parametrize("file", TABLES)
def test_columns_are_documented_used_and_survive_writing(file: str, tmp_path: Path) -> None:
    """Each has words and choices in the JSON Schema, and a value in the snapshot that uses
    everything, which has the same cells after writing and reading.
    """
    described = snapshot_schema()["properties"][file]["items"]["properties"]
    first = parse_snapshot("everything", EVERYTHING)
    again = read_snapshot(write_snapshot(first, tmp_path / "copy"))
    assert again.digest == first.digest
    for column in TABLES[file].columns:
        assert len(column.doc) >= 4
        assert described[column.name]["description"] == column.doc
        assert described[column.name].get("enum", []) == list(column.choices)
        cells = first.tables[file].columns[column.name]
        assert any(cells) and again.tables[file].columns[column.name] == cells


# optional columns without which others make no sense: running jobs need three of them, a date its
# amount; times needs every_s; headroom is of GPUs or sessions; a share of a GPU needs the GPU;
# compute_s is the step of which others are a part; losses need all three
NEEDED = """pool gpus state amount until_s headroom_gpus sessions_per_hour session_s every_s
gpu_fraction gpu compute_s target_loss loss_work loss_error"""


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
    names = ("now_s", "interval_s", "budget_per_hour", "restart_s", "max_changes", "objective")
    assert [getattr(p, n) for n in names] == [7, 300, np.inf, 30, -1, "progress"]
    expected: dict[str, dict[str, Any]] = {
        "jobs": {
            "total_work": 100, "state": State.QUEUED, "pool": -1, "gpus": 0, "min_gpus": 1,
            "requested_gpus": 1, "sizes": -1, "gpu_types": -1, "weight": 1, "preemptible": True,
            "restart_s": 30, "resizes_left": -1, "deadline_s": np.nan, "memory_gb": np.nan,
            "checkpoint_every_s": np.nan, "checkpoint_s": 0, "attained_gpu_s": 0, "restarts": 0,
            "largest_gpus": 0
        },
        "pools": {
            "gpus_per_node": 8, "market": Market.RESERVED, "price_per_gpu_hour": 0, "region": "",
            "startup_s": 0,
        },
        "tenants": {
            "tenant": "t", "weight": 1, "max_gpus": np.inf, "guaranteed_gpus": 0,
            "budget_per_hour": np.inf,
        },
        "rates": {"rate": 2, "batch_size": -1, "spread": -1, "variant": ""},
    }  # fmt: skip
    for table, values in expected.items():
        found = {name: getattr(getattr(p, table), name)[0] for name in values}
        assert found == pytest.approx(values, nan_ok=True)
    assert p.tenants.tenant == ("t", "default") and p.tenants.max_gpus[1] == np.inf
    assert p.received.tolist() == [[0]] and p.jobs.after == ((),)
    assert p.settings == {name: {} for name in CONFIG_TABLES}


def test_everything_as_numbers() -> None:
    """The snapshot that uses everything, worked out by hand: prices, nodes, rates and curves in
    force.
    """
    p = judge(dict(EVERYTHING))
    expected = {
        # row at 500; an empty cell leaves pools.csv
        "pools.price_per_gpu_hour": [1.8, 0.9, 0.4],
        # nodes win over the 6 and 3 of prices.csv; north has none
        "pools.gpus": [8, 2, 5],
        "pools.sharing": [1, 2, 0],
        "rates.rate": [9, 35, 57, 4, 3, 5.5],
        "jobs.sizes": [0, *[-1] * 6],
        "jobs.gpu_types": [0, 1, *[-1] * 5],
        "jobs.pool": [0, -1, -1, -1, 1, 1, 0],
        "jobs.tenant": [0, 0, 1, 2, 1, 1, 1],
        "jobs.primary": [*[-1] * 5, 4, -1],
        # by default what the job holds now
        "jobs.largest_gpus": [8, 0, 2, 0, 2, 2, 1],
        "placements.job": [0, 0, 4, 4, 6],
        "placements.node": [0, 1, 2, 3, 0],
        "placements.gpu": [-1, -1, -1, -1, 3],
        "nodes.state": [0, 0, 0, 1],
    }
    for name, values in expected.items():
        assert attrgetter(name)(p).tolist() == pytest.approx(values), name
    assert [s.tolist() for s in p.size_lists] == [[2, 4, 8]] and p.gpu_types == ("A100", "V100")
    assert [t.tolist() for t in p.type_sets] == [[True, False], [True, True]]
    assert p.jobs.after == ((), ("bert-1",), ("gone", "bert-2"), (), (), (), ())
    assert p.tenants.tenant == ("red", "blue", "default")
    assert p.curves.parameters[0] == {"rate_1": 8, "parallel": 0.95, "min_gpus": 1, "max_gpus": 8}
    assert p.received.tolist() == [[1500, 300.5], [0, 0], [0, 30], *[[0, 0]] * 4]
    assert p.settings["horizon"] == {"rounds": 4}


def test_curves_by_hand() -> None:
    """Amdahl 1/(0.5 + 0.5/2) = 4/3, power 2 x 4^0.5 = 4, overhead 1 x 4/(1 + 0.5 x 3) = 1.6; nan
    outside the range.
    """

    def rate(kind: str, parameters: dict[str, float], *k: int) -> list[float]:
        return curves.rate(kind, parameters, np.array(k)).tolist()

    assert rate("amdahl", {"rate_1": 1, "parallel": 0.5}, 1, 2) == pytest.approx([1, 4 / 3])
    assert rate("power", {"rate_1": 2, "exponent": 0.5}, 1, 4) == pytest.approx([2, 4])
    assert rate("overhead", {"rate_1": 1, "c": 0.5}, 1, 4) == pytest.approx([1, 1.6])
    limited = rate(
        "power", {"rate_1": 2, "exponent": 0, "min_gpus": 2, "max_gpus": 3}, 0, 1, 2, 3, 4
    )
    assert np.isnan(limited).tolist() == [True, True, False, False, True]
    assert np.isnan(rate("power", {"rate_1": 1, "exponent": 0}, 0, 1024, 1025)).tolist() == [
        True,
        False,
        True,
    ]
    assert (
        set(curves.KINDS)
        == set(CURVE_PARAMETERS)
        == set(TABLES["models.csv"].column("kind").choices)
    )


def test_schemas_are_json_and_complete() -> None:
    """Both documents are strict JSON; every key of config.toml has its place; patterns accept
    their examples.
    """
    for document in (snapshot_schema(), result_schema()):
        json.dumps(document, allow_nan=False)
        assert document["$schema"].endswith("2020-12/schema")
    config = snapshot_schema()["properties"]["config.toml"]["properties"]
    assert set(config) == {c.name for c in CONFIG} | set(CONFIG_TABLES)
    job = snapshot_schema()["properties"]["jobs.csv"]["items"]["properties"]
    assert (
        job["max_gpus"]["maximum"] == MOST_GPUS and job["remaining_work"]["exclusiveMinimum"] == 0
    )
    assert re.search(job["sizes"]["pattern"], "1|2|4") and not re.search(
        job["sizes"]["pattern"], "1||4"
    )
    assert re.search(job["gpu_types"]["pattern"], "A100|V100") and not re.search(
        job["gpu_types"]["pattern"], "A|"
    )
