"""Many numbers as text at once."""

from __future__ import annotations

import numpy as np

from formulations.linear import Floats


def texts(numbers: Floats) -> list[str]:
    """The shortest text of every number that reads back as the same float, whole numbers without ".0"."""
    if not len(numbers):
        return []
    distinct, at = np.unique(numbers, return_inverse=True)
    if len(distinct) > len(numbers) // 2:
        return [_text(x) for x in numbers.tolist()]
    known = [_text(x) for x in distinct.tolist()]
    return [known[i] for i in at.tolist()]


def _text(x: float) -> str:
    text = repr(x)
    return text.removesuffix(".0")
