"""Arrays of one number, which take no memory and cannot be written to."""

from __future__ import annotations

from typing import Any

import numpy as np


def constant(value: float, count: int) -> Any:
    """Return an array (count,) of a number.

    Examples
    --------
    >>> from formulations.model.constant import constant
    >>> constant(-1, 3).tolist(), constant(0.5, 10**9).shape
    ([-1, -1, -1], (1000000000,))
    """
    return np.broadcast_to(np.array(value), (count,))
