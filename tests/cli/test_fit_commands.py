"""From measurements to a choice: three corners settle a model that knows its batch."""

from __future__ import annotations

import numpy as np
import pytest
from examples import series

from allocator.performance import batched
from allocator.performance.fit import batches
from allocator.performance.fit.choose import UNTESTED, fit
from allocator.performance.fit.observations import Observations

TRUTHS = [
    {"compute": c, "sync": s, "noise": u, "min_batch": 384.0, "max_batch": 1024.0}
    for c, s, u in ((0.05, 0.3, 5.0), (0.002, 0.01, -4.0), (1.0, 12.0, 0.0), (0.4, 20.0, 40.0))
]


def rows(truth: dict[str, float], at: list[tuple[int, int]]) -> Observations:
    """Useful speeds of these (GPUs, batch), without noise."""
    k, b = np.array(at, dtype=np.float64).T
    rate = batched.at("iteration", truth, k, b).rate
    return Observations.of(["m"] * len(at), ["A"] * len(at), k.astype(int), rate, batch=b)


@pytest.mark.parametrize("truth", series(TRUTHS, 2))
def test_three_corners_settle_noise_and_epochs(truth: dict[str, float]) -> None:
    """The corners that --profile asks for: the form is that of the truth, with its batch, and every
    other size and batch is predicted to a thousandth. Nothing is left to test it, which it says."""
    (found,) = fit(rows(truth, [(8, 384), (8, 1024), (20, 1024)]))
    assert found.form == "iteration over batches" and found.parameters["max_batch"] == 1024
    assert found.parameters["error"] == UNTESTED
    k, b = (v.reshape(-1) for v in np.meshgrid([8.0, 12.0, 20.0], [384.0, 700.0, 1024.0]))
    there = batched.at("iteration", found.parameters, k, b).rate
    assert there == pytest.approx(batched.at("iteration", truth, k, b).rate, rel=1e-3)
    # with epochs known the corners give K* = sqrt(compute B / sync) to the last digit
    seen = rows(truth, [(8, 384), (8, 1024), (20, 384), (20, 1024)])
    corners = [v[None].astype(float) for v in (seen.gpus, seen.batch, seen.rate)]
    known = batches.iteration(*corners, np.array([truth["noise"]]), constant=False)
    assert known["compute"] / known["sync"] == pytest.approx(truth["compute"] / truth["sync"])


def test_a_batch_that_goes_with_the_size_may_be_left_out() -> None:
    """One batch of each size, 32 for each GPU: what the batch does cannot be told from what the
    size does, and a form without it may win."""
    k = np.array([1, 2, 4, 8])
    (found,) = fit(Observations.of(["m"] * 4, ["A"] * 4, k, 3.0 * k**0.6, batch=32.0 * k))
    assert found.form == "power"
