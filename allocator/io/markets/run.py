"""Turn published spot markets into the files of a workload: read, cut, name, check, write."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.findings import did_you_mean
from allocator.domain.schema.texts import text_of
from allocator.domain.workload import Changes, Workload
from allocator.errors import UsageError
from allocator.io.formats import choose_format
from allocator.io.markets.base import MarketHistory, MarketOptions, PoolSeries
from allocator.io.markets.money import check_prices
from allocator.io.markets.registry import MARKETS
from allocator.io.plans import write_files
from allocator.io.tables.csv_table import csv_text

DATED = 1e8  # seconds: a source that begins later has dates


@dataclass(frozen=True)
class TimeWindow:
    """The part of the sources that is used.

    Attributes
    ----------
    start_s : seconds from the first time of all sources that have dates, or from 0 on the clock of
        a source without dates, to the begin of the window.
    hours : length of the window; None: all that follows.
    """

    start_s: float = 0.0
    hours: float | None = None


def import_markets(
    name: str,
    sources: Sequence[str | os.PathLike[str]],
    options: MarketOptions,
    window: TimeWindow | None = None,
) -> MarketHistory:
    """Read the pools of one or more files or folders, on one clock that begins at 0.

    Parameters
    ----------
    name : a key of MARKETS, or "auto" to recognise the format of each source.
    sources : files or folders.
    options : what the user set for any format.
    window : the part to keep; None: everything.

    Raises
    ------
    UsageError
        For an unknown format, for two pools of one name, and if nothing is left in the window.
    InvalidInput
        For faults of the files.
    """
    cut = window or TimeWindow()
    parts = []
    for source in map(Path, sources):
        entry = MARKETS[choose_format(name, source, MARKETS, "market format")]
        parts.append(entry.load().read(source, options))
    series = [s for part in parts for s in part.series]
    names = [s.pool for s in series]
    double = sorted({n for n in names if names.count(n) > 1})
    if double:
        raise UsageError(
            f"several files have a pool {double[0]}; import them one by one, or rename the files"
        )
    dated = min((s.begin for s in series if s.begin > DATED), default=0.0)  # these share a clock
    seconds = np.inf if cut.hours is None else cut.hours * 3600
    moved = [
        _cut_to_window(s, (dated if s.begin > DATED else 0.0) + cut.start_s, seconds)
        for s in series
    ]
    kept = tuple(s for s in moved if len(s.gpus) or len(s.price))
    if not kept:
        raise UsageError("nothing is left in the window")
    return MarketHistory(
        kept,
        tuple(n for p in parts for n in p.notes),
        tuple(w for p in parts for w in p.warnings)
        + tuple(w for s in kept for w in check_prices(s)),
    )


def changes(market: MarketHistory, pools: Sequence[str], names: Mapping[str, str]) -> Changes:
    """Return the market as changes of the pools of a workload.

    Parameters
    ----------
    pools : pools of the workload, in order.
    names : pool of the market -> pool of the workload; other pools are left out.

    Raises
    ------
    UsageError
        For names that do not exist.
    """
    there = {s.pool: s for s in market.series}
    for one, other in names.items():
        if one not in there:
            raise UsageError(f'the market has no pool "{one}"{did_you_mean(one, there)}')
        if other not in pools:
            raise UsageError(f'the workload has no pool "{other}"{did_you_mean(other, pools)}')
    parts = []
    for one, other in names.items():
        s, pool = there[one], pools.index(other)
        sizes, prices = len(s.gpus), len(s.price)
        parts.append(
            Changes(
                np.concatenate([s.gpus_at, s.price_at]),
                np.full(sizes + prices, pool),
                np.concatenate([s.gpus, np.full(prices, -1)]),
                np.concatenate([np.full(sizes, np.nan), s.price]),
            )
        )
    whole = reduce(Changes.append, parts)
    return whole.select(np.lexsort((whole.gpus, whole.pool, whole.at_s)))


def onto(workload: Workload, market: MarketHistory, names: Mapping[str, str]) -> Workload:
    """Return the workload with the changes of the market instead of its own for the named pools.

    They count from the start of the workload on, and so do their first values. Raises UsageError as
    `changes`.
    """
    problem = workload.problem
    pools = workload.problem.pools
    new = changes(market, pools.pool, names)
    new = replace(new, at_s=new.at_s + problem.now_s)
    gpus = pools.gpus.copy()
    price = pools.price_per_gpu_hour.copy()
    first = new.at_s <= problem.now_s
    sized, priced = first & (new.gpus >= 0), first & (new.price_per_gpu_hour >= 0)
    gpus[new.pool[sized]] = new.gpus[sized]
    price[new.pool[priced]] = new.price_per_gpu_hour[priced]
    old = workload.changes
    touched = {*zip(new.pool.tolist(), (new.gpus >= 0).tolist(), strict=True)}
    kinds = zip(old.pool.tolist(), (old.gpus >= 0).tolist(), strict=True)
    stays = np.array([kind not in touched for kind in kinds], dtype=bool)
    both = old.select(stays).append(new.select(~first))
    return Workload(
        replace(problem, pools=replace(pools, gpus=gpus, price_per_gpu_hour=price)),
        both.select(np.argsort(both.at_s, kind="stable")),
    )


def write_market(market: MarketHistory, folder: str | os.PathLike[str]) -> Path:
    """Write pools.csv, and capacity.csv and prices.csv if they have steps; return the folder."""
    columns = ("pool", "gpu_type", "gpus", "market", "price_per_gpu_hour", "region")
    pools = [
        (
            s.pool,
            s.gpu_type,
            sum(s.gpus[:1]),
            "spot",
            text_of(s.price[0]) if len(s.price) else "",
            s.pool,
        )
        for s in market.series
    ]
    files = {"pools.csv": csv_text(columns, pools)}
    for file, name, column in (
        ("capacity.csv", "gpus", "gpus"),
        ("prices.csv", "price", "price_per_gpu_hour"),
    ):
        rows = sorted(
            (t, s.pool, value)
            for s in market.series
            for t, value in zip(getattr(s, f"{name}_at")[1:], getattr(s, name)[1:], strict=True)
        )
        if rows:
            files[file] = csv_text(("at_s", "pool", column), [map(text_of, row) for row in rows])
    write_files(Path(folder), files)
    return Path(folder)


def _cut_to_window(s: PoolSeries, begin: float, seconds: float) -> PoolSeries:
    """Return the part within the window, on a clock that begins at 0.

    What is in force at the begin of the window counts from there.
    """
    end = begin + seconds
    steps: dict[str, Any] = {}
    for name in ("gpus", "price"):
        at = getattr(s, f"{name}_at")
        first = max(0, int(np.searchsorted(at, begin, side="right")) - 1)
        some = slice(first, int(np.searchsorted(at, end, side="left")))
        steps |= {f"{name}_at": np.maximum(0.0, at[some] - begin), name: getattr(s, name)[some]}
    return replace(s, **steps, end=min(s.end, end) - begin)
