"""The types that readers of spot markets share: step functions of GPUs and prices by pool;
prices as plain numbers of US dollars.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocator.domain.problem import Floats, Ints
from formulations.model.linear import begins_run

PLAIN = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+")


@dataclass(frozen=True)
class MarketOptions:
    """What a user may set for any format.

    Attributes
    ----------
    gpus : int, optional
        GPUs of one machine. The default is what the format knows, else 1.
    on_demand : float, optional
        Dollars per GPU-hour on demand, with which spot prices are compared. The default is what the
        format knows.
    """

    gpus: int | None = None
    on_demand: float | None = None


class Steps(NamedTuple):
    """A step function: ascending times, and the value from each of them on, (n,) each."""

    at_s: Floats
    value: Floats | Ints

    def at(self, times: Floats) -> Floats | Ints:
        """Return the value at each of the times, which are not before the first one."""
        return self.value[np.searchsorted(self.at_s, times, side="right") - 1]


NO_STEPS = Steps(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class PoolSeries:
    """The GPUs of one pool and their price over time.

    Times are seconds on the clock of the source: since 1970 if the source has dates, else since its
    beginning.

    Attributes
    ----------
    pool, gpu_type : str
        Name of the pool, and the type of its GPUs.
    gpus, price : Steps
        The number of available GPUs, and the dollars per GPU-hour, from each time on.
    on_demand : float
        Dollars per GPU-hour on demand, nan if unknown.
    end : float
        The last time of which anything is known.
    """

    pool: str
    gpu_type: str
    gpus: Steps = NO_STEPS
    price: Steps = NO_STEPS
    on_demand: float = np.nan
    end: float = np.nan

    @property
    def begin(self) -> float:
        """The first time of which anything is known; inf if the series is empty."""
        return float(min((*self.gpus.at_s[:1], *self.price.at_s[:1]), default=np.inf))


@dataclass(frozen=True)
class MarketHistory:
    """The history of a spot market, as a reader of one file format returns it.

    Attributes
    ----------
    series : tuple of PoolSeries
        A series for each pool.
    notes : tuple of str
        What the user should know about how the file was read.
    warnings : tuple of str
        What looks wrong in the file.
    """

    series: tuple[PoolSeries, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def gpu_series(pool: str, gpu_type: str, at: Floats, gpus: Ints | Floats, end: float) -> PoolSeries:
    """Return the series of a pool with known GPUs only: `gpus` (n,) from `at` (n,) on."""
    return PoolSeries(pool, gpu_type, step_function(at, gpus), end=end)


def step_function(at: Floats, value: Ints | Floats) -> Steps:
    """Return a step function in order of time, without steps to the same value.

    Of several values (n,) at one time in `at` (n,), the last one counts.
    """
    order = np.argsort(at, kind="stable")
    at = at[order]
    given = np.asarray(value, dtype=np.float64)[order]
    last = np.append(np.diff(at) > 0, True) if len(at) else np.zeros(0, dtype=bool)
    at = at[last]
    steps = given[last]
    moves = begins_run(steps)
    return Steps(at[moves], steps[moves])


def parse_dollars(text: object) -> float:
    """Return the number of a price.

    Raises
    ------
    ValueError
        If it is none. The reason shows how to write the number without its currency sign or
        thousands separator.
    """
    shown = str(text)[:40].strip()
    if not PLAIN.fullmatch(shown):
        bare = re.sub(r"[$€£¥,\s]|USD|EUR", "", shown, flags=re.IGNORECASE)
        hint = f"; write {bare}" if bare != shown and PLAIN.fullmatch(bare) else ""
        raise ValueError(f'"{shown}" is not a plain number of US dollars{hint}')
    value = float(shown)
    if not 0 < value < 1e6:
        raise ValueError(f"{value:g} is no price; it must be above 0")
    return value


def check_prices(series: PoolSeries) -> list[str]:
    """Warn if spot prices of a pool are not below its price on demand."""
    price = series.price.value
    dear = int((price >= series.on_demand).sum()) if series.on_demand > 0 else 0
    if not dear:
        return []
    return [
        f"{series.pool}: {dear} of {len(price)} spot prices are not below the price on demand,"
        f" {series.on_demand:g} per GPU-hour (highest {price.max():g})"
    ]
