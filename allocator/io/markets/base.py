"""What a reader of spot markets gives: step functions of GPUs and of prices, one or more pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from allocator.domain.problem import Floats, Ints


@dataclass(frozen=True)
class MarketOptions:
    """What the user may ask of any format. gpus: of one machine; default the format's own
    knowledge, else 1. on_demand: dollars per GPU-hour that spot prices are held against; default
    what the format knows."""

    gpus: int | None = None
    on_demand: float | None = None


@dataclass(frozen=True)
class PoolSeries:
    """One pool over time, from its first row on: GPUs there (s,) at gpus_at (s,), seconds on the
    source's clock (since 1970 where it has dates, else from 0); dollars per GPU-hour (r,) at
    price_at (r,), both in order of time. on_demand: dollars per GPU-hour, nan = unknown. end: last
    moment known."""

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
        """Its first moment."""
        return float(
            min(
                self.gpus_at[0] if len(self.gpus_at) else np.inf,
                self.price_at[0] if len(self.price_at) else np.inf,
            )
        )


@dataclass(frozen=True)
class MarketHistory:
    """What `read` gives. notes: what its user should know; warnings: what looks wrong."""

    series: tuple[PoolSeries, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MarketFormat(Protocol):
    """A module that reads one format."""

    recognise: Callable[[Path], str]
    read: Callable[[Path, MarketOptions], MarketHistory]


def step_function(at: Floats, value: Ints | Floats) -> tuple[Floats, Floats]:
    """Sorted by time; of several values at one moment the last in the order given; without rows
    that change nothing.
    """
    order = np.argsort(at, kind="stable")
    at, value = at[order], np.asarray(value, dtype=np.float64)[order]
    last = np.append(np.diff(at) > 0, True) if len(at) else np.zeros(0, dtype=bool)
    at, value = at[last], value[last]
    moves = np.append(True, np.diff(value) != 0) if len(at) else last
    return at[moves], value[moves]
