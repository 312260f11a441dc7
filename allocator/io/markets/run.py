"""Turn published spot markets into the files of a workload: read, cut, name, check, write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from allocator.domain.findings import did_you_mean
from allocator.domain.problem import Ints
from allocator.domain.schema.texts import format_numbers
from allocator.domain.workload import Changes, Workload
from allocator.errors import UsageError
from allocator.io.formats import first_recognised
from allocator.io.markets import registry
from allocator.io.markets.base import MarketHistory, MarketOptions, PoolSeries
from allocator.io.markets.money import check_prices
from allocator.io.plans import write_files

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
    name : a key of registry.MARKETS, or "auto" to recognise the format of each source.
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
        chosen = recognise_format(source) if name == "auto" else name
        if chosen not in registry.MARKETS:
            raise UsageError(f'no market format "{name}"{did_you_mean(name, registry.MARKETS)}')
        parts.append(registry.load(chosen).read(source, options))
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


def recognise_format(path: Path) -> str:
    """Return the first format that recognises the file; raise UsageError if none does."""
    return first_recognised(
        path, registry.MARKETS, lambda name: registry.load(name).recognise, "market format"
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
    rows = [
        (t, pools.index(other), int(g), np.nan)
        for one, other in names.items()
        for t, g in zip(there[one].gpus_at.tolist(), there[one].gpus.tolist(), strict=True)
    ]
    rows += [
        (t, pools.index(other), -1, p)
        for one, other in names.items()
        for t, p in zip(there[one].price_at.tolist(), there[one].price.tolist(), strict=True)
    ]
    rows.sort(key=lambda row: (row[0], row[1], row[2]))
    at, pool, gpus, price = (np.array(c) for c in zip(*rows, strict=True))
    return Changes(
        at.astype(np.float64),
        pool.astype(np.int64),
        gpus.astype(np.int64),
        price.astype(np.float64),
    )


def onto(workload: Workload, market: MarketHistory, names: Mapping[str, str]) -> Workload:
    """Return the workload with the changes of the market instead of its own for the named pools.

    They count from the start of the workload on, and so do their first values. Raises UsageError as
    `changes`.
    """
    problem = workload.problem
    pools = workload.problem.pools
    new = changes(market, pools.pool, names)
    at = new.at_s + problem.now_s
    gpus = pools.gpus.copy()
    price = pools.price_per_gpu_hour.copy()
    first = at <= problem.now_s
    for i in np.flatnonzero(first).tolist():
        p = int(new.pool[i])
        gpus[p] = new.gpus[i] if new.gpus[i] >= 0 else gpus[p]
        price[p] = new.price_per_gpu_hour[i] if new.price_per_gpu_hour[i] >= 0 else price[p]
    old = workload.changes
    touched = {(int(p), bool(g >= 0)) for p, g in zip(new.pool, new.gpus, strict=True)}
    stays = np.array(
        [(int(p), bool(g >= 0)) not in touched for p, g in zip(old.pool, old.gpus, strict=True)],
        dtype=bool,
    )
    both = [
        np.concatenate([a[stays], b[~first]])
        for a, b in (
            (old.at_s, at),
            (old.pool, new.pool),
            (old.gpus, new.gpus),
            (old.price_per_gpu_hour, new.price_per_gpu_hour),
        )
    ]
    order: Ints = np.argsort(both[0], kind="stable")
    merged = Changes(*(part[order] for part in both))
    return Workload(
        replace(problem, pools=replace(pools, gpus=gpus, price_per_gpu_hour=price)), merged
    )


def write_market(market: MarketHistory, folder: str | os.PathLike[str]) -> Path:
    """Write pools.csv, and capacity.csv and prices.csv if they have steps; return the folder."""
    files = {
        "pools.csv": _csv(
            ("pool", "gpu_type", "gpus", "market", "price_per_gpu_hour", "region"),
            [
                (
                    s.pool,
                    s.gpu_type,
                    str(int(s.gpus[0]) if len(s.gpus) else 0),
                    "spot",
                    format_numbers(s.price[:1])[0] if len(s.price) else "",
                    s.pool,
                )
                for s in market.series
            ],
        )
    }
    gpus = [
        (t, s.pool, str(g))
        for s in market.series
        for t, g in zip(format_numbers(s.gpus_at[1:]), s.gpus[1:].tolist(), strict=True)
    ]
    price = [
        (t, s.pool, p)
        for s in market.series
        for t, p in zip(format_numbers(s.price_at[1:]), format_numbers(s.price[1:]), strict=True)
    ]
    if gpus:
        files["capacity.csv"] = _csv(
            ("at_s", "pool", "gpus"), sorted(gpus, key=lambda r: (float(r[0]), r[1]))
        )
    if price:
        files["prices.csv"] = _csv(
            ("at_s", "pool", "price_per_gpu_hour"), sorted(price, key=lambda r: (float(r[0]), r[1]))
        )
    path = Path(folder)
    write_files(path, {name: text.encode() for name, text in files.items()})
    return path


def _cut_to_window(s: PoolSeries, begin: float, seconds: float) -> PoolSeries:
    """Return the part within the window, on a clock that begins at 0.

    What is in force at the begin of the window counts from there.
    """
    end = begin + seconds
    gpus_at, gpus = _steps_in_window(s.gpus_at, s.gpus, begin, end)
    price_at, price = _steps_in_window(s.price_at, s.price, begin, end)
    return replace(
        s,
        gpus_at=gpus_at,
        gpus=gpus.astype(np.int64),
        price_at=price_at,
        price=price,
        end=min(s.end, end) - begin,
    )


def _steps_in_window(
    at: np.ndarray, value: np.ndarray, begin: float, end: float
) -> tuple[np.ndarray, np.ndarray]:
    first = max(0, int(np.searchsorted(at, begin, side="right")) - 1)
    last = int(np.searchsorted(at, end, side="left"))
    return np.maximum(0.0, at[first:last] - begin), value[first:last].astype(np.float64)


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([",".join(header), *(",".join(row) for row in rows)]) + "\n"
