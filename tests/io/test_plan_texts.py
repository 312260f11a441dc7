"""Numbers of plan.json and plan.csv: the shortest text that reads back as the same number."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import example, given, strategies as st

from allocator.io import plans
from allocator.io.tables.joined_rows import ROWS, join_rows

ANY_FLOAT = st.none() | st.floats()


SPECIAL = ["a,b", '"', "x\ny", "\r", ""]
ANY_NAME = st.none() | st.text(st.characters(), max_size=3) | st.sampled_from(SPECIAL)


@examples(30, 300)
@given(st.lists(ANY_FLOAT))
@example([-0.0, 0.0, 1e16, 1e-7, None])
@example([float("inf"), 1.0])
@example([1.0, float("nan"), None])
@example([None, None])
@example([-0.0, *[0.0] * 9])
def test_a_column_of_numbers(values: list[float | None]) -> None:
    """Each number has its own text; JSON has null where it is not finite, CSV an empty cell."""
    in_json = plans._column(values)
    assert list(in_json) == [plans.dumps(value) for value in values]
    assert list(plans._cells(values, in_json)) == [_cell(value) for value in values]
    assert list(plans._cells(values)) == [_cell(value) for value in values]


@examples(30, 300)
@given(st.lists(ANY_NAME) | st.lists(st.integers() | st.text() | st.booleans()))
@example(["a", *[None] * 9])
@example([True, *[1] * 9])
def test_other_columns(values: list[Any]) -> None:
    """A column of names, whole numbers or truth values is written as JSON and reads back equal.

    Its cells are those that the module `csv` writes.
    """
    assert list(map(json.loads, plans._column(values))) == values
    assert list(plans._cells(values)) == [_cell(value) for value in values]


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS])
def test_rows_that_are_joined_in_pieces(count: int) -> None:
    """Rows are equal to those joined one by one, however many pieces they take."""
    columns = [list(map(str, range(count))), ["same"] * count, [str(i % 7) for i in range(count)]]
    joined = "".join(join_rows(columns, ("<", "=", "/", ">"), ";\n"))
    assert joined == ";\n".join(f"<{a}={b}/{c}>" for a, b, c in zip(*columns, strict=True))


def test_written_plan_is_that_of_both_texts(tmp_path: Path) -> None:
    """The files have the texts of `to_json` and `to_csv`, byte for byte."""
    import allocator

    plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    document, table = plans.write_plan(plan, tmp_path)
    assert document.read_text(encoding="utf-8") == plans.to_json(plan)
    assert table.read_text(encoding="utf-8") == plans.to_csv(plan)


def _cell(value: Any) -> str:
    """Return a cell as the module `csv` writes it in a row of several."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([value, ""])
    return out.getvalue().removesuffix(",\n")
