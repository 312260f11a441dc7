"""The GPUs that headroom for interactive jobs leaves to batch jobs while a plan is filled."""

from __future__ import annotations

import copy

import numpy as np

from formulations.model.instance import Instance
from formulations.model.linear import Floats, Ints


class HeadroomLeft:
    """GPUs of each pool that batch jobs may still take.

    They are counted in all, and without those that batch jobs can give back.
    """

    def __init__(self, i: Instance, held: Ints) -> None:
        """Start from the columns `held` that are chosen so far."""
        self._rows = (
            []
            if i.headroom is None
            else [
                (amount.data, _remaining_gpus(i, amount, most, held))
                for amount, most in (
                    (i.headroom.batch, i.headroom.most_batch),
                    (i.headroom.firm, i.headroom.most_firm),
                )
            ]
        )
        self._pool = i.pool.data

    def copy(self) -> HeadroomLeft:
        """Return the same GPUs, to be counted apart."""
        other = copy.copy(self)
        other._rows = [(amount, list(remaining)) for amount, remaining in self._rows]
        return other

    def allows(self, old: int, new: int) -> bool:
        """Return whether a job may have option new instead of old (-1: nothing)."""
        for amount, remaining in self._rows:
            pool = self._pool[new]
            back = amount[old] if old >= 0 and self._pool[old] == pool else 0
            if amount[new] > back and amount[new] - back > remaining[pool]:
                return False
        return True

    def replace_option(self, old: int, new: int) -> None:
        """Count option new instead of old (-1: nothing)."""
        for amount, remaining in self._rows:
            if old >= 0:
                remaining[self._pool[old]] += amount[old]
            if new >= 0:
                remaining[self._pool[new]] -= amount[new]


def keeps_headroom(i: Instance, held: Ints) -> bool:
    """Return whether the columns of a plan leave enough to interactive jobs."""
    h = i.headroom
    return h is None or all(
        min(_remaining_gpus(i, amount, most, held), default=0.0) >= 0
        for amount, most in ((h.batch, h.most_batch), (h.firm, h.most_firm))
    )


def _remaining_gpus(i: Instance, amount: Ints, most: Floats, held: Ints) -> list[float]:
    remaining: list[float] = (most - np.bincount(i.pool[held], amount[held], len(most))).tolist()
    return remaining
