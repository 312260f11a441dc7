"""Ranges of different lengths, laid out one behind the other."""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Ints


def ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All integers of the ranges begin[i] .. end[i], with the i they belong to: (i, integer),
    each (total,).
    """
    length = end - begin
    owner = np.repeat(np.arange(len(begin)), length)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return owner, begin[owner] + offset
