"""Tables of rows counted exactly: against exhaustive search, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from formulations.bounds.exact_rows import CountedRows, JointTable, RowTables, count_states


def counted_rows(unit: list[float], is_need: list[bool], bound: list[float]) -> CountedRows:
    """All rows, of which nothing is used yet."""
    rows = np.arange(len(unit))
    return CountedRows.of(
        rows, np.array(unit), np.array(is_need), np.array(bound), np.zeros(len(unit))
    )


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_tables_are_the_best_completions(seed: int):
    """Capacities and needs, any unit, any number of decided groups, any use so far."""
    rng = np.random.default_rng(seed)
    rows, groups = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    unit = rng.choice([1.0, 0.5, 0.01], rows)
    is_need = rng.random(rows) < 0.5
    bound = rng.integers(1, 8, rows) * unit
    counts = rng.integers(1, 4, groups)
    start = np.append(0, np.cumsum(counts))
    uses = rng.integers(0, 5, (start[-1], rows)) * unit
    gain = rng.normal(size=(start[-1], rows))
    counted = counted_rows(unit.tolist(), is_need.tolist(), bound.tolist())
    assert count_states(counted) == np.prod((counted.most + 1) * np.where(is_need, 2, 1))
    k = int(rng.integers(0, groups + 1))
    use = rng.integers(0, 8, (1, rows)) * unit
    use = np.where(is_need, use, np.minimum(use, bound))
    plans = list(itertools.product(*(range(start[g], start[g + 1]) for g in range(k, groups))))
    total = np.array([use[0] + uses[list(plan)].sum(axis=0) for plan in plans])
    slack = 1e-9
    holds = np.where(is_need, total >= bound - slack, total <= bound + slack)
    each = RowTables(counted, gain, uses, start).at(k, use)[0]
    joint = JointTable(counted, gain[:, 0], uses, start).at(k, use)[0]
    for e in range(rows):
        best = max(
            (gain[list(p), e].sum() for p, h in zip(plans, holds, strict=True) if h[e]),
            default=-np.inf,
        )
        assert each[e] == pytest.approx(best)
    best = max(
        (gain[list(p), 0].sum() for p, h in zip(plans, holds, strict=True) if h.all()),
        default=-np.inf,
    )
    assert joint == pytest.approx(best)
