"""Every column is documented, read, validated, used, written and read back."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import EVERYTHING, content

from allocator.domain.problem import (
    Curves,
    Finished,
    Interactive,
    Isolation,
    Jobs,
    Market,
    Nodes,
    Pauses,
    Placements,
    Pools,
    Problem,
    Quotas,
    Rates,
    Sharing,
    State,
    Tenants,
)
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import (
    CONFIG,
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

# file -> class, and the columns that go by another name there
HOME: dict[str, tuple[type[Any], dict[str, str]]] = {
    "jobs.csv": (Jobs, {"shared_with": "primary"}),
    "pools.csv": (Pools, {}),
    "tenants.csv": (Tenants, {}),
    "quotas.csv": (Quotas, {}),
    "nodes.csv": (Nodes, {}),
    "models.csv": (Curves, {}),
    "pauses.csv": (Pauses, {}),
    "interactive.csv": (Interactive, {}),
    "finished.csv": (Finished, {}),
    "sharing.csv": (Sharing, {}),
    "placements.csv": (Placements, {"job_id": "job"}),
    "rates.csv": (Rates, {"work_per_s": "rate", "efficiency": "rate"}),
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


@pytest.mark.parametrize("file", HOME)
def test_fields_are_the_columns(file: str) -> None:
    """A column without a field, or a field without a column, is a mistake."""
    cls, other = HOME[file]
    assert {f.name for f in dataclasses.fields(cls)} - DERIVED.get(file, set()) == {
        other.get(c.name, c.name) for c in TABLES[file].columns
    }


def test_values_of_state_and_market_are_their_places_among_the_choices() -> None:
    """State.RUNNING is the index of "running" in the column's choices, and so on."""
    assert [s.name.lower() for s in State] == list(JOBS.column("state").choices)
    assert [m.name.lower() for m in Market] == list(TABLES["pools.csv"].column("market").choices)
    assert [i.name.lower() for i in Isolation] == list(
        TABLES["pools.csv"].column("sharing").choices
    )


@each_column
def test_column_is_documented_and_in_the_schema(file: str, column: Column) -> None:
    """Words, a type and the same bounds in the JSON Schema."""
    assert len(column.doc) >= 4
    cell = snapshot_schema()["properties"][file]["items"]["properties"][column.name]
    assert cell["description"] == column.doc
    assert cell.get("enum", []) == list(column.choices)


@each_column
def test_column_is_used_by_the_full_snapshot_and_survives_writing(
    file: str, column: Column, tmp_path: Path
) -> None:
    """The snapshot that uses everything has a value in it, and after writing and reading the
    same cells.
    """
    first = parse_snapshot("everything", EVERYTHING)
    assert any(first.tables[file].columns[column.name])
    again = read_snapshot(write_snapshot(first, tmp_path / "copy"))
    assert again.tables[file].columns[column.name] == first.tables[file].columns[column.name]
    assert again.digest == first.digest


@each_column
def test_optional_column_has_an_effect(file: str, column: Column) -> None:
    """Without the column the Problem is another one, so no column is read for nothing; a
    required one is missed.
    """
    rows = grid(file)
    place = rows[0].index(column.name)
    without = EVERYTHING | {file: csv_bytes([row[:place] + row[place + 1 :] for row in rows])}
    try:
        assert content(judge(without)) != content(judge(dict(EVERYTHING)))
    except InvalidInput as error:
        assert column.required or column.name in (
            # running jobs need three of them, a date its amount
            "pool",
            "gpus",
            "state",
            "amount",
            "until_s",
            # one or the others; times needs it
            "headroom_gpus",
            "sessions_per_hour",
            "session_s",
            "every_s",
            # a job with a share of a GPU names the GPU that it has, and same_block needs the level
            "gpu_fraction",
            "gpu",
            # the step of which the others are a part
            "compute_s",
            # what losses say needs all three
            "target_loss",
            "loss_work",
            "loss_error",
        )
        assert any(column.name in f.message for f in error.faults)


@each_column
def test_column_is_validated(file: str, column: Column) -> None:
    """A text that no column can hold is a fault in its line that names the column."""
    with pytest.raises(InvalidInput) as caught:
        judge(with_cell(file, column.name, "?\x07", row=2))
    at_line = [f.message for f in caught.value.faults if (f.file, f.line) == (file, 3)]
    assert any(message.startswith(column.name) for message in at_line), caught.value.faults


NUMERIC = [(f, c) for f, c in ALL if c.kind in (ColumnKind.NUMBER, ColumnKind.INTEGER)]
ODD = (
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "1_000",
    "1,000",
    "１２",
    "٣",
    "1e999",
    "-1e999",
    "0x10",
    "1e-320",
    "1e31",
    "1.2.3",
    "--1",
    "",
)


@pytest.mark.parametrize(
    ("file", "column"), NUMERIC, ids=[f"{f[:-4]}.{c.name}" for f, c in NUMERIC]
)
def test_numbers_are_plain_finite_and_within_their_range(file: str, column: Column) -> None:
    """No nan, infinity, underscore, other script or overflow; no number on the wrong side of a
    bound.
    """
    texts = [t for t in ODD if t or column.required]
    texts += [repr(column.low - 1)] * (column.low > -np.inf) + [repr(column.above)] * (
        column.above > -np.inf
    )
    texts += [repr(column.high + 1)] * (column.high < np.inf) + ["2.5"] * (
        column.kind is ColumnKind.INTEGER
    )
    for text in texts:
        with pytest.raises(InvalidInput) as caught:
            judge(with_cell(file, column.name, text))
        assert any(
            f.file == file and f.line == 2 and f.message.startswith(f"{column.name} ")
            for f in caught.value.faults
        ), (text, caught.value.faults)


def test_whole_numbers_may_be_written_as_floats() -> None:
    """8.0 and 8 are the same number of GPUs, as pandas writes columns with gaps."""
    assert judge(with_cell("jobs.csv", "max_gpus", "8.0")).jobs.max_gpus[0] == 8
    assert judge(with_cell("jobs.csv", "max_gpus", "8e0")).jobs.max_gpus[0] == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("Yes", True),
        ("1", True),
        ("FALSE", False),
        ("no", False),
        ("0", False),
        ("", True),
    ],
)
def test_booleans(text: str, value: bool) -> None:
    """true/false, yes/no, 1/0 in any case; empty is the default."""
    assert judge(with_cell("jobs.csv", "preemptible", text)).jobs.preemptible[0] == value


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
    j, q = p.jobs, p.pools
    assert (p.now_s, p.interval_s, p.budget_per_hour, p.restart_s, p.max_changes, p.objective) == (
        7,
        300,
        np.inf,
        30,
        -1,
        "progress",
    )
    assert (
        j.total_work[0],
        j.state[0],
        j.pool[0],
        j.gpus[0],
        j.min_gpus[0],
        j.requested_gpus[0],
    ) == (100, State.QUEUED, -1, 0, 1, 1)
    assert (
        j.sizes[0],
        j.gpu_types[0],
        j.weight[0],
        j.preemptible[0],
        j.restart_s[0],
        j.resizes_left[0],
    ) == (-1, -1, 1, True, 30, -1)
    assert (
        np.isnan([j.deadline_s[0], j.memory_gb[0], j.checkpoint_every_s[0]]).all()
        and j.checkpoint_s[0] == 0
    )
    assert (j.attained_gpu_s[0], j.restarts[0], j.largest_gpus[0], p.received.tolist()) == (
        0,
        0,
        0,
        [[0]],
    )
    assert j.after == ((),) and p.tenants.tenant == ("t", "default")
    assert (
        q.gpus_per_node[0],
        q.market[0],
        q.price_per_gpu_hour[0],
        q.region[0],
        q.startup_s[0],
    ) == (8, Market.RESERVED, 0, "", 0)
    assert p.tenants.weight.tolist() == [1, 1] and p.tenants.max_gpus.tolist() == [np.inf, np.inf]
    assert p.tenants.guaranteed_gpus.tolist() == [0, 0] and p.tenants.budget_per_hour.tolist() == [
        np.inf,
        np.inf,
    ]
    assert (p.rates.rate[0], p.rates.batch_size[0], p.rates.spread[0], p.rates.variant[0]) == (
        2,
        -1,
        -1,
        "",
    )
    assert p.settings == {
        "solver": {},
        "horizon": {},
        "sharing": {},
        "longrun": {},
        "profiling": {},
        "rental": {},
        "topology": {},
    }


def test_everything_as_numbers() -> None:
    """The snapshot that uses everything, worked out by hand: prices, nodes, rates and curves in
    force.
    """
    p = judge(dict(EVERYTHING))
    # row at 500; an empty cell leaves pools.csv
    assert p.pools.price_per_gpu_hour.tolist() == [1.8, 0.9, 0.4]
    # nodes win over the 6 and 3 of prices.csv; north has none
    assert p.pools.gpus.tolist() == [8, 2, 5]
    assert p.rates.rate.tolist() == pytest.approx([9, 35, 57, 4, 3, 5.5])
    assert [s.tolist() for s in p.size_lists] == [[2, 4, 8]] and p.jobs.sizes.tolist() == [
        0,
        *[-1] * 6,
    ]
    assert p.gpu_types == ("A100", "V100") and [t.tolist() for t in p.type_sets] == [
        [True, False],
        [True, True],
    ]
    assert p.jobs.gpu_types.tolist() == [0, 1, *[-1] * 5] and p.jobs.pool.tolist() == [
        0,
        -1,
        -1,
        -1,
        1,
        1,
        0,
    ]
    assert p.jobs.after == ((), ("bert-1",), ("gone", "bert-2"), (), (), (), ())
    assert p.tenants.tenant == ("red", "blue", "default") and p.jobs.tenant.tolist() == [
        0,
        0,
        1,
        2,
        1,
        1,
        1,
    ]
    assert p.curves.parameters[0] == {"rate_1": 8, "parallel": 0.95, "min_gpus": 1, "max_gpus": 8}
    assert p.placements.job.tolist() == [0, 0, 4, 4, 6]
    assert p.placements.node.tolist() == [0, 1, 2, 3, 0]
    assert p.placements.gpu.tolist() == [-1, -1, -1, -1, 3]
    assert p.received.tolist() == [[1500, 300.5], [0, 0], [0, 30], *[[0, 0]] * 4]
    # by default what the job holds now
    assert p.jobs.largest_gpus.tolist() == [8, 0, 2, 0, 2, 2, 1]
    assert p.nodes.state.tolist() == [0, 0, 0, 1] and p.settings["horizon"] == {"rounds": 4}
    assert p.jobs.primary.tolist() == [*[-1] * 5, 4, -1] and p.pools.sharing.tolist() == [1, 2, 0]


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
    assert set(config) == {c.name for c in CONFIG} | {
        "solver",
        "horizon",
        "sharing",
        "longrun",
        "topology",
        "profiling",
        "rental",
    }
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
