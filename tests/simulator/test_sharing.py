"""Two jobs on the same GPUs: the pair rule, the best time to start, gradient accumulation, by
hand and at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from formulations.colocation import timing


def drawn(count: int) -> tuple[np.ndarray, ...]:
    """Lengths over four orders of magnitude, slowdowns 1 to 4; a tenth of them equal or 1."""
    rng = np.random.default_rng(3)
    a, b = 10.0 ** rng.uniform(-1, 3, (2, count))
    xi = rng.uniform(1.0, 4.0, (2, count))
    xi[:, ::20], xi[1, 5::20] = 1.0, xi[0, 5::20]
    return a, b, xi[0], xi[1]


def completion(a: Any, b: Any, xi_a: Any, xi_b: Any, offset: Any) -> tuple[Any, Any]:
    """Seconds until A and B end if A starts after `offset` seconds, 0 <= offset <= b."""
    left = b - offset  # of B when A joins, in seconds alone
    a_last = xi_a * a >= xi_b * left
    shared = np.where(a_last, xi_b * left, xi_a * a)  # seconds in which both run
    end = offset + shared
    last = end + a - shared / xi_a, end + left - shared / xi_b
    return np.where(a_last, last[0], end), np.where(a_last, end, last[1])


def test_the_best_start_is_an_end_point() -> None:
    """3,000 random pairs, 401 offsets from now to the end of B: no mean completion time is below
    both end points'; at the end points it is `mean_completion_shared` and `mean_completion_serial`,
    and `should_share` names the better."""
    a, b, xi_a, xi_b = (x[:, None] for x in drawn(3_000))
    offset = b * np.linspace(0.0, 1.0, 401)
    mean = sum(completion(a, b, xi_a, xi_b, offset)) / 2
    ends = np.minimum(mean[:, 0], mean[:, -1])
    assert ((ends - mean.min(axis=1)) / ends).max() < 2e-15
    assert mean[:, :1] == pytest.approx(timing.mean_completion_shared(a, b, xi_a, xi_b), rel=1e-13)
    assert mean[:, -1:] == pytest.approx(timing.mean_completion_serial(a, b), rel=1e-13)
    assert (timing.should_share(a, b, xi_a, xi_b) == (mean[:, :1] < mean[:, -1:])).mean() > 0.999
