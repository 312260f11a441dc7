"""Rows that stay between two rounds: those of the definition, whatever ends, begins or moves."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, strategies as st

from allocator.domain.schema.staying_rows import find_rows_that_stay

NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(NAMES, NAMES)
@example([], [])
@example(list("abcd"), list("acde"))
@example(list("abc"), list("axbc"))
@example(list("abc"), list("cab"))
def test_rows_that_stay(before: list[str], now: list[str]) -> None:
    """They are the names that are there in both rounds, if these come first now, in order."""
    kept = [name for name in before if name in now]
    found = find_rows_that_stay(before, tuple(now))
    if kept != now[: len(kept)]:
        assert found is None
        return
    assert found is not None
    assert found.pick(before) == kept
    assert [before[i] for i in found.rows.tolist()] == kept
    assert found.are_all == (kept == before)
    assert found.pick(np.array(before, dtype=object)).tolist() == kept
