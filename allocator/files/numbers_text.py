"""Many numbers as text at once."""

from __future__ import annotations

import numpy as np

from formulations.linear import Floats


def texts(numbers: Floats) -> list[str]:
    """The shortest text of every number that reads back as the same float, whole numbers without
    ".0".
    """
    if not len(numbers):
        return []
    distinct, at = np.unique(numbers, return_inverse=True)
    if len(distinct) > len(numbers) // 2:
        return _texts(numbers)
    known = _texts(distinct)
    return [known[i] for i in at.tolist()]


def _texts(numbers: Floats) -> list[str]:
    return [text.removesuffix(".0") for text in map(repr, numbers.tolist())]
