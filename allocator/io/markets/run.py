"""Turn published spot markets into the files of a workload: read, cut, name, check, write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np

from allocator.domain.findings import did_you_mean
from allocator.domain.schema.cells import text_of
from allocator.domain.workload import Changes, Workload
from allocator.errors import UsageError
from allocator.io.formats import MARKETS, choose_format
from allocator.io.markets.base import MarketHistory, MarketOptions, PoolSeries, Steps, check_prices
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
    sources: Sequence[Path | str],
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
    kept = tuple(s for s in moved if len(s.gpus.at_s) or len(s.price.at_s))
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
    for pool, other in names.items():
        if pool not in there:
            raise UsageError(f'the market has no pool "{pool}"{did_you_mean(pool, there)}')
        if other not in pools:
            raise UsageError(f'the workload has no pool "{other}"{did_you_mean(other, pools)}')
    parts = []
    for pool, other in names.items():
        (sized_s, gpus), (priced_s, price) = there[pool].gpus, there[pool].price
        parts.append(
            Changes(
                np.append(sized_s, priced_s),
                np.full(len(gpus) + len(price), pools.index(other)),
                np.append(gpus, np.full(len(price), -1)).astype(np.int64),
                np.append(np.full(len(gpus), np.nan), price),
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
    of_old, of_new = (2 * c.pool + (c.gpus >= 0) for c in (old, new))  # of sizes, of prices
    both = old.select(~np.isin(of_old, of_new)).append(new.select(~first))
    return Workload(
        replace(problem, pools=replace(pools, gpus=gpus, price_per_gpu_hour=price)),
        both.select(np.argsort(both.at_s, kind="stable")),
    )


def write_market(market: MarketHistory, folder: Path | str) -> Path:
    """Write pools.csv, and capacity.csv and prices.csv if they have steps; return the folder."""
    columns = ("pool", "gpu_type", "gpus", "market", "price_per_gpu_hour", "region")
    first = [(s, sum(s.gpus.value[:1]), [*s.price.value[:1], ""][0]) for s in market.series]
    pools = [(s.pool, s.gpu_type, gpus, "spot", price, s.pool) for s, gpus, price in first]
    files = {"pools.csv": _csv(columns, pools)}
    for file, column, name in (
        ("capacity.csv", "gpus", "gpus"),
        ("prices.csv", "price_per_gpu_hour", "price"),
    ):
        rows = sorted(
            (at_s, s.pool, value)
            for s in market.series
            for at_s, value in [*zip(*getattr(s, name), strict=True)][1:]
        )
        if rows:
            files[file] = _csv(("at_s", "pool", column), rows)
    write_files(Path(folder), files)
    return Path(folder)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return csv_text(columns, [map(text_of, row) for row in rows])


def _cut_to_window(s: PoolSeries, begin: float, seconds: float) -> PoolSeries:
    """Return the part within the window, on a clock that begins at 0.

    What is in force at the begin of the window counts from there.
    """
    end = begin + seconds

    def cut(steps: Steps) -> Steps:
        first = max(0, int(np.searchsorted(steps.at_s, begin, side="right")) - 1)
        some = slice(first, int(np.searchsorted(steps.at_s, end, side="left")))
        return Steps(np.maximum(0.0, steps.at_s[some] - begin), steps.value[some])

    return replace(s, gpus=cut(s.gpus), price=cut(s.price), end=min(s.end, end) - begin)
