"""Ranges and runs of different lengths, one after the other in one array."""

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.model.linear import Bools, Ints


def ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return (i, integer) for all integers of the ranges begin[i] .. end[i], (total,) each.

    end[i] is not part of the range.
    """
    length = end - begin
    owner = np.repeat(np.arange(len(begin)), length)
    integer = np.repeat(begin - np.cumsum(length) + length, length)
    integer += np.arange(len(owner))
    return owner, integer


def starts(owner: Ints, count: int) -> Ints:
    """Return where each of `count` owners begins in an ascending array of owners, (count+1,)."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def begins_run(*columns: np.ndarray[Any, Any]) -> Bools:
    """Find the rows that differ from the row before in any of the columns (n,), and the first one.

    Examples
    --------
    >>> begins_run(np.array([3, 3, 5, 3])).tolist()
    [True, False, True, True]
    """
    differs = [column[1:] != column[:-1] for column in columns]
    out = np.ones(len(columns[0]), dtype=np.bool_)
    out[1:] = np.any(differs, axis=0)
    return out
