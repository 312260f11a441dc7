"""Numbers of plan.json and plan.csv: the shortest text that reads back as the same number."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from hypothesis import example, given, strategies as st

from allocator.io import plans

ANY_FLOAT = st.none() | st.floats()


@given(st.lists(ANY_FLOAT))
@example([-0.0, 0.0, 1e16, 1e-7, None])
@example([float("inf"), 1.0])
@example([1.0, float("nan"), None])
@example([None, None])
def test_a_column_of_numbers(values: list[float | None]) -> None:
    """Each number has its own text; JSON has null where it is not finite, CSV an empty cell."""
    written = plans.NumberTexts.of(values)
    alone = [plans.dumps(value) for value in values]
    assert list(plans._column(values)) == alone
    if written is not None:
        assert list(plans._column(written)) == alone
        assert _read(written) == _read(values)


@given(st.lists(st.integers() | st.text() | st.booleans()))
def test_other_columns(values: list[Any]) -> None:
    """A column of names, whole numbers or truth values is written as JSON and reads back equal."""
    assert plans.NumberTexts.of(values) is None
    assert list(map(json.loads, plans._column(values))) == values


def test_written_plan_is_that_of_both_texts(tmp_path: Path) -> None:
    """The files have the texts of `to_json` and `to_csv`, byte for byte."""
    import allocator

    plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    document, table = plans.write_plan(plan, tmp_path)
    assert document.read_text(encoding="utf-8") == plans.to_json(plan)
    assert table.read_text(encoding="utf-8") == plans.to_csv(plan)


def _read(values: Any) -> list[list[str]]:
    out = io.StringIO()
    csv.writer(out).writerows([value] for value in values)
    return list(csv.reader(io.StringIO(out.getvalue())))
