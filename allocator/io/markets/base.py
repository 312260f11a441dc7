"""The types that readers of spot markets share: step functions of GPUs and prices by pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from allocator.domain.problem import Floats, Ints
from formulations.model.ragged import begins_run


@dataclass(frozen=True)
class MarketOptions:
    """What a user may set for any format.

    Attributes
    ----------
    gpus : GPUs of one machine. The default is what the format knows, else 1.
    on_demand : dollars per GPU-hour on demand, with which spot prices are compared. The default is
    what the format knows.
    """

    gpus: int | None = None
    on_demand: float | None = None


@dataclass(frozen=True)
class PoolSeries:
    """One pool over time, from its first row on.

    Attributes
    ----------
    gpus_at, gpus : (s,) times in order, and the available GPUs from each time on. Times are seconds
    on the clock of the source: since 1970 if it has dates, else from 0.
    price_at, price : (r,) times in order, and dollars per GPU-hour from each time on.
    on_demand : dollars per GPU-hour on demand; nan if unknown.
    end : the last time of which anything is known.
    """

    pool: str
    gpu_type: str
    gpus_at: Floats = field(default_factory=lambda: np.zeros(0))
    gpus: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    price_at: Floats = field(default_factory=lambda: np.zeros(0))
    price: Floats = field(default_factory=lambda: np.zeros(0))
    on_demand: float = np.nan
    end: float = np.nan

    @property
    def begin(self) -> float:
        """Return the first time of the pool."""
        return float(
            min(
                self.gpus_at[0] if len(self.gpus_at) else np.inf,
                self.price_at[0] if len(self.price_at) else np.inf,
            )
        )


@dataclass(frozen=True)
class MarketHistory:
    """What `read` returns. notes: what the user should know; warnings: what looks wrong."""

    series: tuple[PoolSeries, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MarketFormat(Protocol):
    """A module that reads one format."""

    recognise: Callable[[Path], str]
    read: Callable[[Path, MarketOptions], MarketHistory]


def step_function(at: Floats, value: Ints | Floats) -> tuple[Floats, Floats]:
    """Return the steps in order of time, without steps that change nothing.

    Of several values at one time, the last one given counts.
    """
    order = np.argsort(at, kind="stable")
    at = at[order]
    given = np.asarray(value, dtype=np.float64)[order]
    last = np.append(np.diff(at) > 0, True) if len(at) else np.zeros(0, dtype=bool)
    at = at[last]
    steps = given[last]
    moves = begins_run(steps)
    return at[moves], steps[moves]
