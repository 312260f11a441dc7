"""Rounds that follow each other read only new rows, and give the problem of a whole reading."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from everything import parts
from examples import count, seeds, series
from fakes.random_rounds import random_snapshot
from matrix import FEATURES, made

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema import previous_cells
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import TABLES
from allocator.domain.schema.previous_cells import PreviousCells, PreviousTables
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput

JOBS = {column.name: column for column in TABLES["jobs.csv"].columns}


def read(snapshot: Snapshot, previous: PreviousTables | None = None) -> Any:
    """The problem of a snapshot as names and plain values, or its faults."""
    try:
        problem: Problem = validate(snapshot, previous)
    except InvalidInput as error:
        return error.faults
    return dict(parts(problem))


def with_other_rows(rows: list[dict[str, Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rows of which some end, one is new, and one has another cell of another row."""
    out = [dict(row) for row in rows if rng.random() < 0.9]
    out.append({**rows[int(rng.integers(len(rows)))], "job_id": f"new{rng.integers(1 << 30)}"})
    if rng.random() < 0.5:
        a, b = (out[int(rng.integers(len(out)))] for _ in range(2))
        column = str(rng.choice([name for name in b if name != "job_id"]))
        a[column] = b[column]
    if rng.random() < 0.2:
        rng.shuffle(out)
    return out


@pytest.mark.parametrize("seed", seeds(6, 400))
def test_random_tables(seed: int) -> None:
    """Jobs that end, begin, change or move: problems, and faults of cells, are the same."""
    rng = np.random.default_rng(seed)
    previous = PreviousTables()
    rows = random_snapshot(rng, 30).tables["jobs.csv"]
    for r in range(count(5, 8)):
        folder = random_snapshot(np.random.default_rng(seed), 30)
        folder.tables["jobs.csv"] = deepcopy(rows)
        if r == 2:
            folder.tables["jobs.csv"][-1]["remaining_work"] = "much"
        snapshot = folder.snapshot()
        assert read(snapshot, previous) == read(snapshot)
        rows = with_other_rows(rows, rng)


@pytest.mark.parametrize("name", series(list(FEATURES), 8))
def test_every_feature(name: str) -> None:
    """Whatever columns the tables have, a problem does not depend on the round before."""
    rng = np.random.default_rng([5, *name.encode()])
    tables, previous = made(name, int(rng.integers(100))), PreviousTables()
    for _ in range(3):
        snapshot = tables.snapshot()
        assert read(snapshot, previous) == read(snapshot)
        if not tables.jobs:
            break
        tables.jobs = with_other_rows(tables.jobs, rng)


def test_only_new_and_changed_cells_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine jobs a ends, c changes its GPUs, and j is new: only their cells are read. The first
    tenant ends, and the second one is then the first.
    """
    seen: list[list[str]] = []
    monkeypatch.setattr(
        previous_cells, "parse", lambda column, cells: seen.append(cells) or parse(column, cells)
    )
    kept, columns = PreviousCells(), [JOBS["job_id"], JOBS["gpus"], JOBS["tenant"]]
    kept.read(
        columns,
        ("job_id",),
        {"job_id": [*"abcdefghi"], "gpus": ["1"] * 9, "tenant": [*"xyzzzzzzz"]},
    )
    seen.clear()
    now = {"job_id": [*"bcdefghij"], "gpus": [*"121111113"], "tenant": [*"yzzzzzzzw"]}
    values = kept.read(columns, ("job_id",), now)
    assert seen == [["j"], ["2", "3"], ["w"]]
    assert values["gpus"][0].value.tolist() == [1, 2, *[1] * 6, 3]
    distinct, code = values["tenant"][0].factors
    assert (distinct, code.tolist()) == ([*"yzw"], [0, *[1] * 7, 2])


def test_a_list_that_its_owner_changes_is_read_again() -> None:
    """Cells are compared with those of the last round, not with the list that held them."""
    kept, columns = PreviousCells(), [JOBS["job_id"], JOBS["gpus"]]
    cells = {"job_id": ["a", "b"], "gpus": ["1", "2"]}
    kept.read(columns, ("job_id",), cells)
    cells["gpus"][1] = "4"
    assert kept.read(columns, ("job_id",), cells)["gpus"][0].value.tolist() == [1, 4]


def test_a_new_row_may_not_have_the_name_of_one_that_stays() -> None:
    """Names that stay are known to be different; a new one is compared with all of them."""
    previous, folder = PreviousTables(), random_snapshot(np.random.default_rng(3), 30)
    rows = folder.tables["jobs.csv"]
    for taken in (None, 0, None, 1, 2):  # the row whose name the new one has, if any
        new = {**rows[-1], "job_id": "new" if taken is None else rows[taken]["job_id"]}
        folder.tables["jobs.csv"] = [*rows, new]
        found = read(folder.snapshot(), previous)
        assert found == read(folder.snapshot())
        assert (taken is None) == isinstance(found, dict)


def test_an_object_that_its_owner_changes_is_read_again() -> None:
    """A cell may be a mapping, which is not kept."""
    column = next(c for c in TABLES["models.csv"].columns if c.name == "parameters")
    kept, parameters = PreviousCells(), {"rate_1": 1.0}
    for rate in (1.0, 2.0):
        parameters["rate_1"] = rate
        values = kept.read([column], (), {"parameters": [parameters]})
        assert values["parameters"][0].value == [{"rate_1": rate}]
