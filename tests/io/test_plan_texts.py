"""Values in plan.json: the shortest text that reads back as the same value."""

from __future__ import annotations

import json
import math
from typing import Any

from examples import examples
from hypothesis import example, given, strategies as st

from allocator.io.plans import write_document


@examples(30, 300)
@given(st.lists(st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=3)))
@example([-0.0, 0.0, 1e16, 1e-7, None])
@example([math.inf, 1.0, math.nan])
@example([True, *[1] * 9, 1.0])
@example(["%s", '"', "\r\n", "\udc80", ""])
def test_a_column_reads_back_equal(values: list[Any]) -> None:
    """Each value has its own text, whatever stands beside it; null where a number is not finite."""
    text = write_document({"jobs": ()}, {"job_id": values})
    unknown = [v if not isinstance(v, float) or math.isfinite(v) else None for v in values]
    back = [job["job_id"] for job in json.loads(text)["jobs"]]
    assert list(map(repr, back)) == list(map(repr, unknown))
