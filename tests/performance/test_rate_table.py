"""Looking up many speeds at once gives those of looking up each."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from fakes.random_rounds import random_snapshot

from allocator.domain.rules.snapshot_rules import validate
from allocator.performance import table as rate_table
from allocator.performance.table import RateTable


@pytest.mark.parametrize("seed", range(4))
def test_keys_that_repeat(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size of each model and type is wanted many times: rates, rows and gaps are the same."""
    drawn = validate(random_snapshot(np.random.default_rng(seed), 30).snapshot())
    table, rng = RateTable.of(drawn), np.random.default_rng(seed)
    n = 40 * len(drawn.models) * len(drawn.gpu_types) * 20
    model = rng.integers(len(drawn.models), size=n)
    gpu_type = rng.integers(len(drawn.gpu_types), size=n)
    gpus = rng.integers(1, 20, size=n)
    at_once = table.rate(model, gpu_type, gpus)
    monkeypatch.setattr(rate_table, "MANY", n)
    each = table.rate(model, gpu_type, gpus)
    for a, b in zip(at_once, each, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isfinite(at_once[0]).any()


def test_between_two_measured_sizes() -> None:
    """On the line between them, but no more per GPU than at the smaller one; beyond, nothing."""
    table = RateTable.of(problem([{}], rates={2: 3.0, 4: 8.0, 8: 10.0}))
    zeros = np.zeros(3, dtype=np.int64)
    rate = table.rate(zeros, zeros, np.array([3, 6, 16]))[0]
    assert rate == pytest.approx([3 * 3 / 2, (8 + 10) / 2, np.nan], nan_ok=True)
