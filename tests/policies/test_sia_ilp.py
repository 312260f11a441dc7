"""Sia's saved rounds as our models: a round small enough to solve by hand, in the format of the
real files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.errors import InvalidInput
from allocator.io.published_models import read_sia_ilp
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits

ROUND: dict[str, Any] = {
    "names": np.array(["a", "b", "b"]),
    "G": np.array([[1, 4, 1e-4], [1, 4, 16], [1, 2.25, 4]], dtype=np.float32),
    "restart": np.array([0.25, 0.25, 0.5]),
    "prev": np.array([0, -1, 2]),
    "use": np.array([[1, 0], [2, 0], [0, 2]], dtype=np.uint32),
    "caps": np.array([2, 2], dtype=np.uint32),
    "p": np.array(-0.5),
    "lam": np.array(1.1),
}


def saved(folder: Path, **changes: Any) -> Path:
    """The round with some arrays changed, as a file."""
    np.savez(folder / "round.npz", **{k: v for k, v in (ROUND | changes).items() if v is not None})
    return folder / "round.npz"


def test_values_are_sias(tmp_path: Path) -> None:
    """V: restart counts off the present configuration of a running job, never for one that runs
    nowhere; two decimals; at most 3000."""
    value = read_sia_ilp(saved(tmp_path)).value.reshape(3, 3)
    V = [[1.0, 1.0, 200.0], [1.0, 0.5, 0.25], [1.41, 0.94, 0.5]]
    assert 1.1 - value == pytest.approx(np.array(V))
    assert 1.1 - read_sia_ilp(saved(tmp_path, G=np.zeros((3, 3)))).value == pytest.approx(3000)


def test_optimum_by_hand(tmp_path: Path) -> None:
    """Two GPUs of each type. b in configuration 2 (0.25) and a in 0 (1.0), third job waits (1.1):
    2.35.

    The alternative, third job keeps configuration 2 (0.5) and b takes 1 (0.5): 1.1 + 0.5 + 0.5 =
    2.1, is the best: a and b cannot both have type 0, and a alone saves only 0.1.
    """
    path = saved(tmp_path)
    answer = registry.get("highs").solve(read_sia_ilp(path), SolveLimits(gap=0.0))
    assert 3 * 1.1 - answer.objective == pytest.approx(2.1)
    assert np.flatnonzero(answer.values).tolist() == [4, 8]


@pytest.mark.parametrize(
    "changes",
    [{"G": None}, {"prev": np.array([0])}, {"use": np.ones((3, 5))}, {"caps": np.array(3)}],
)
def test_other_archives_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Missing arrays and arrays that do not fit are named."""
    with pytest.raises(InvalidInput, match=next(iter(changes))):
        read_sia_ilp(saved(tmp_path, **changes))
