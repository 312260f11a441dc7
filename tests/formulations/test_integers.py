"""Whole-number scaling: nothing feasible is lost, values keep their stated error; by hand and
for odd numbers.
"""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, strategies as st
from models import INF, dense

from allocator.solvers.integers import IntegerModel, NotInteger, integer_model
from formulations.model.linear import LinearModel


def holds(whole: IntegerModel, x: np.ndarray) -> bool:
    """Whether whole numbers x keep all groups, rows and bounds; exact (Python's integers)."""
    xs = [int(v) for v in x]
    inside = all(
        int(a) <= v <= int(b) for a, v, b in zip(whole.lower, xs, whole.upper, strict=True)
    )
    groups = all(
        (s := sum(xs[c] for c in columns)) == 1 or (s == 0 and not exactly)
        for columns, exactly in whole.groups
    )
    return (
        inside
        and groups
        and all(
            r.lower <= sum(int(a) * xs[c] for c, a in zip(r.column, r.coef, strict=True)) <= r.upper
            for r in whole.rows
        )
    )


def test_a_column_in_two_choice_rows_is_bounded_by_both() -> None:
    """Groups may not lose the second "at most one" row of a column."""
    model = dense([1.0, 1, 1], [(-INF, [1, 1, 0], 1), (-INF, [0, 1, 1], 1)], choices=2)
    whole = integer_model(model)
    assert [holds(whole, np.array(x)) for x in ([1, 0, 1], [1, 1, 0], [0, 1, 1])] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"integer": [True, False]}, "continuous"), ({"box": (0.0, INF)}, "without bounds")],
)
def test_what_cannot_be_whole_is_refused(change: dict[str, object], says: str) -> None:
    """Continuous and unbounded columns are refused with the reason."""
    with pytest.raises(NotInteger, match=says):
        integer_model(dense([1.0, 2.0], **change))  # type: ignore[arg-type]


numbers = st.one_of(
    st.integers(-40, 40).map(float),
    st.integers(-4000, 4000).map(lambda k: k / 100),
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.floats(-1e-6, 1e-6, allow_subnormal=False),
)


@st.composite
def models(draw: st.DrawFn) -> tuple[LinearModel, list[np.ndarray]]:
    """A model of odd numbers, one choice row and up to three others whose bounds lie exactly at
    points; some points.
    """
    n = draw(st.integers(1, 5))
    low = draw(st.integers(-3, 0))
    points = [
        np.array(draw(st.lists(st.integers(low, 1), min_size=n, max_size=n)), dtype=float)
        for _ in range(4)
    ]
    vectors = st.lists(numbers, min_size=n, max_size=n)
    rows = []
    if low == 0:
        rows.append((draw(st.sampled_from([-INF, 1.0])), [1.0] * n, 1.0))
    for _ in range(draw(st.integers(1, 3))):
        a = draw(vectors)
        at = float(np.array(a) @ draw(st.sampled_from(points)))
        at += draw(st.sampled_from([0.0, 0.0, 1e-9, -1e-9, 0.5])) * max(1.0, abs(at))
        side = draw(st.integers(0, 2))
        rows.append((at if side != 1 else -INF, a, at if side != 0 else INF))
    return dense(draw(vectors), rows, box=(low, 1.0), choices=int(low == 0)), points


@examples(50, 400)
@given(models())
def test_nothing_feasible_is_lost(case: tuple[LinearModel, list[np.ndarray]]) -> None:
    """Every feasible point keeps the relaxed integer rows, and its value is within the stated
    error.
    """
    model, points = case
    whole = integer_model(model)
    for x in points:
        if model.feasible(x):
            assert holds(whole, x)
            exact_value = (
                sum(int(v) * int(y) for v, y in zip(whole.value, x, strict=True)) / whole.scale
            )
            rounding = 1e-15 * float(np.abs(model.value) @ np.abs(x))
            assert abs(exact_value - float(model.value @ x)) <= whole.error + rounding


@examples(50, 400)
@given(models())
def test_rounded_inwards_nothing_infeasible_is_let_in(
    case: tuple[LinearModel, list[np.ndarray]],
) -> None:
    """Every point of the model rounded inwards is feasible."""
    model, points = case
    whole = integer_model(model, relaxed=False)
    for x in points:
        if holds(whole, x):
            assert model.feasible(x)
