"""Near ties as a small model: the same rows, fewer columns."""

from __future__ import annotations

import numpy as np
from choice_models import view

from formulations.primal.restriction import NearTies


def test_only_near_ties_are_seen():
    """Price 2 per unit: group 0 ties between its columns (1 each), group 1 is sure of its column (8
    against 1), so only group 0 is free, and the row has 4 of its 6 units left for it."""
    c = view([[(3, {0: 1}), (5, {0: 2})], [(12, {0: 2}), (3, {0: 1})]], [(-np.inf, 6)])
    focus = NearTies(c, np.array([0.0, 0.0, 2.0]), 1).around(np.array([0, 2]))
    assert focus.columns.tolist() == [0, 1]
    assert focus.groups.tolist() == [0]
    assert np.isclose(focus.view.high, 4).all()
    assert focus.widen(np.array([1])).tolist() == [1, 2]
    assert focus.narrow(np.array([0, 2])).tolist() == [0]
