"""Two jobs on the same GPUs: the pair rule, the best time to start, gradient accumulation, by
hand and at random.
"""

from __future__ import annotations

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


def test_the_best_start_is_an_end_point() -> None:
    """3,000 random pairs, 401 offsets from now to the end of B: no mean completion time is below
    both end points'; at the end points it is `mean_completion_shared` and `mean_completion_serial`,
    and `start_s` names the better."""
    a, b, xi_a, xi_b = (x[:, None] for x in drawn(3_000))
    offset = b * np.linspace(0.0, 1.0, 401)
    mean = sum(timing.completion(a, b, xi_a, xi_b, offset)) / 2
    ends = np.minimum(mean[:, 0], mean[:, -1])
    assert ((ends - mean.min(axis=1)) / ends).max() < 2e-15
    assert mean[:, :1] == pytest.approx(timing.mean_completion_shared(a, b, xi_a, xi_b), rel=1e-13)
    assert mean[:, -1:] == pytest.approx(timing.mean_completion_serial(a, b), rel=1e-13)
    assert (
        timing.start_s(a, b, xi_a, xi_b) == np.where(mean[:, :1] < mean[:, -1:], 0.0, b)
    ).mean() > 0.999


def test_completion_by_hand() -> None:
    """A of 2 s joins B of 10 s after 4 s at slowdown 1.5: A ends at 7; B did 4 alone, 2 together
    with A, 4 alone: at 11. If A has 10 s and joins at 8, B ends at 8 + 3 = 11 and A, which did 2,
    at 19. Joining at the end disturbs nobody."""
    a, b, offset = np.array([2.0, 10.0, 5.0]), np.full(3, 10.0), np.array([4.0, 8.0, 10.0])
    end_a, end_b = timing.completion(a, b, np.full(3, 1.5), np.full(3, 1.5), offset)
    assert end_a.tolist() == [7.0, 19.0, 15.0] and end_b.tolist() == [11.0, 11.0, 10.0]
