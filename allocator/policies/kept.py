"""The GPUs that headroom and reservations leave to other jobs while a plan is filled."""

from __future__ import annotations

import copy

import numpy as np

from formulations.model.instance import Instance
from formulations.model.kept_gpus import KeptGpus
from formulations.model.linear import Ints


class KeptGpusLeft:
    """GPUs of each pool that jobs may still take of those that are not kept, for each kind."""

    def __init__(self, i: Instance, held: Ints) -> None:
        """Start from the columns `held` that are chosen so far."""
        self._rows = [(k.amount.data, _remaining_gpus(i, k, held)) for k in i.kept]
        self._pool = i.pool.data

    def copy(self) -> KeptGpusLeft:
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


def leaves_kept_gpus(i: Instance, held: Ints) -> bool:
    """Return whether the columns of a plan leave the GPUs that are kept."""
    return all(min(_remaining_gpus(i, k, held), default=0.0) >= 0 for k in i.kept)


def _remaining_gpus(i: Instance, k: KeptGpus, held: Ints) -> list[float]:
    taken = np.bincount(i.pool[held], k.amount[held], len(k.most))
    remaining: list[float] = (k.most - taken).tolist()
    return remaining
