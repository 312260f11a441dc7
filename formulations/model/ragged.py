"""Ranges of integers of different lengths, one after the other in one array."""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Ints


def ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return (i, integer) for all integers of the ranges begin[i] .. end[i], (total,) each.

    end[i] is not part of the range.
    """
    length = end - begin
    owner = np.repeat(np.arange(len(begin)), length)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return owner, begin[owner] + offset


def starts(owner: Ints, count: int) -> Ints:
    """Return where each of `count` owners begins in an ascending array of owners, (count+1,)."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
