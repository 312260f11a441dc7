"""Looking up many speeds at once gives those of looking up each."""

from __future__ import annotations

import numpy as np
import pytest
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
