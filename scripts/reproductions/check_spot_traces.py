"""Compare published spot markets with generated ones.

    python scripts/reproductions/check_spot_traces.py FOLDER [--seeds 24]

FOLDER has the files of docs/traces.md, also as archives. The tables have availability, correlation,
batches and prices. Every file counts that `allocator import auto` recognises as availability or as
AWS prices. The generated markets are the zones of the generator `zones`
(allocator/bench/workloads/parts/availability.py): five zones of 16 machines over 45 days, read
every 5 minutes like most published ones. Standard output is Markdown. The exit code is 1 if no file
was found.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocator.bench.workloads.parts import availability as spot
from allocator.domain.problem import Floats, Ints
from allocator.errors import AllocatorError
from allocator.io.markets import registry
from allocator.io.markets.base import MarketOptions, PoolSeries, step_function
from allocator.io.markets.run import recognise_format

HOUR, DAY = 3600.0, 86_400.0
DAYS, REGIONS, MACHINES = 45, (3, 2), 16
TOGETHER_S = 60.0  # machines lost within this time of the first one count as one batch
READ_S = 300.0  # between two readings of generated zones
GRID_S = 600.0  # step of the grid of correlations
# zones that were observed for less time share a row per machine, not per region
SHORT_DAYS = 4
CPU = re.compile("intel|c3-")
# where the known price on demand applies
PRICED = re.compile(r"(us-(east-[12]|west-2)[a-z])-p3\.")


def main() -> int:
    """Print the tables; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=24, help="of the generated zones")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as opened:
        there, prices = read(args.folder, Path(opened))
    drawn = [generated(seed) for seed in range(args.seeds)]
    availability(there, drawn)
    correlations(there, drawn)
    batches(there, drawn)
    priced(prices, args.seeds)
    return 0 if there else 1


def read(folder: Path, opened: Path) -> tuple[dict[str, list[PoolSeries]], list[PoolSeries]]:
    """Return series with machines by folder, and series with prices of AWS."""
    there: dict[str, list[PoolSeries]] = {}
    prices: list[PoolSeries] = []
    for archive in sorted(folder.rglob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(opened / archive.parent.name, filter="data")
    for root in (folder, opened):
        for path in sorted(
            p
            for p in root.rglob("*")
            if p.suffix in (".json", ".csv", ".txt", ".out") or p.is_dir()
        ):
            try:
                name = recognise_format(path)
                if path.is_dir() != (name == "spot-prices"):  # prices of a region are one folder
                    continue
                series = (
                    registry.load(name)
                    .read(path, MarketOptions(gpus=None if name == "spot-prices" else 1))
                    .series
                )
            except AllocatorError:
                continue
            if name == "spot-prices":
                prices += [s for s in series if PRICED.match(s.pool)]
            elif name != "catalog":
                there.setdefault(_short(path.parent.relative_to(root)), []).extend(
                    machines(s)
                    for s in series
                    if s.end - s.begin > DAY / 4 and not CPU.search(s.pool)
                )
    return {k: v for k, v in there.items() if v}, prices


def _short(folder: Path) -> str:
    return "/".join(
        p for p in folder.parts[-3:] if p not in ("availability", "logs", "spot-traces")
    )


def machines(s: PoolSeries) -> PoolSeries:
    """Return the series in machines instead of GPUs, if GPUs were counted."""
    size = int(_kind(s).rsplit("x", 1)[-1]) if _kind(s) else 1
    return replace(s, gpus=s.gpus // size if (s.gpus % size == 0).all() else s.gpus)


def generated(seed: int) -> list[PoolSeries]:
    """Return zones of the generator in the form of a reader."""
    zones = spot.zones(np.random.default_rng(seed), REGIONS, MACHINES, DAYS * DAY)
    names = [
        f"{region}{'abc'[i]}"
        for region, count in zip(("west-1", "east-1"), REGIONS, strict=True)
        for i in range(count)
    ]
    t = np.arange(0.0, DAYS * DAY, READ_S)
    return [
        PoolSeries(name, "V100", *_seen(t, z.at(t)), end=DAYS * DAY)
        for name, z in zip(names, zones, strict=True)
    ]


def _seen(t: Floats, there: Ints) -> tuple[Floats, Ints]:
    at, value = step_function(t, there)
    return at, value.astype(np.int64)


def on_grid(s: PoolSeries, begin: float, end: float) -> Ints:
    """Return the machines at every GRID_S from begin to end."""
    t = np.arange(begin, end, GRID_S)
    return np.asarray(
        s.gpus[np.maximum(0, np.searchsorted(s.gpus_at, t, side="right") - 1)], dtype=np.int64
    )


def stretches(s: PoolSeries) -> tuple[Floats, Floats]:
    """Return the hours of stretches with and without a machine, including cut ones at both ends."""
    up = s.gpus > 0
    moves = np.append(True, np.diff(up.astype(int)) != 0)
    hours = np.diff(np.append(s.gpus_at[moves], s.end)) / HOUR
    return hours[up[moves]], hours[~up[moves]]


def availability(there: dict[str, list[PoolSeries]], drawn: Sequence[list[PoolSeries]]) -> None:
    """Print the share of time, runs and gaps, and machines held."""
    print(
        "| folder, zones | days | up | run h: mean (median) | mean / median | gap h: mean (median)"
        f" | held, mean of most |\n|{'---|' * 7}"
    )
    for name, series in [
        *there.items(),
        ("generator `zones`, all seeds", [s for zones in drawn for s in zones]),
    ]:
        for label, part in _parts(name, series):
            runs, gaps = (np.concatenate(x) for x in zip(*map(stretches, part), strict=True))
            held = np.concatenate([on_grid(s, s.begin, s.end) for s in part])
            days = np.mean([s.end - s.begin for s in part]) / DAY
            gone = f"{gaps.mean():.2f} ({np.median(gaps):.2f})" if len(gaps) else "none"
            print(
                f"| {label} | {days:.1f} | {(held > 0).mean():.2f} | {runs.mean():.1f}"
                f" ({np.median(runs):.2f}) | {runs.mean() / np.median(runs):.1f} | {gone} |"
                f" {held.mean():.1f} of {held.max()} |"
            )


def _parts(name: str, series: list[PoolSeries]) -> Iterator[tuple[str, list[PoolSeries]]]:
    """Yield one row per region and kind of machine."""
    keys = [
        (
            _kind(s)
            if _kind(s) and s.end - s.begin < SHORT_DAYS * DAY
            else re.sub(r"(?<=\d)-?[a-f](?=-|$)", "", s.pool)
        )
        for s in series
    ]
    for key in dict.fromkeys(keys):
        part = [s for s, k in zip(series, keys, strict=True) if k == key]
        yield f"{name}: {key}" + (f", {len(part)}" if len(part) > 1 else ""), part


def correlations(there: dict[str, list[PoolSeries]], drawn: Sequence[list[PoolSeries]]) -> None:
    """Print correlations of having a machine between zones that were observed at the same time."""
    print(
        "\n| correlation of zones | pairs | one region: mean, least, most | pairs | two regions"
        f" |\n|{'---|' * 5}"
    )
    for name, worlds in [*((n, [s]) for n, s in there.items()), ("generator `zones`", drawn)]:
        pairs = [pair for series in worlds for pair in _pairs(series)]
        found = {
            same: np.array([c for c, together in pairs if together == same])
            for same in (True, False)
        }
        if pairs:
            texts = [
                f"{len(c)} | {c.mean():.2f}, {c.min():.2f}, {c.max():.2f}" if len(c) else "0 | "
                for c in found.values()
            ]
            print(f"| {name} | {' | '.join(texts)} |")


def _pairs(series: Sequence[PoolSeries]) -> Iterator[tuple[float, bool]]:
    """Yield the correlation of each pair of zones, and whether both are in one region.

    The zones have the same machine, and their availability varies.
    """
    for i, one in enumerate(series):
        for other in series[:i]:
            begin, end = max(one.begin, other.begin), min(one.end, other.end)
            x, y = (on_grid(s, begin, end) > 0 for s in (one, other))
            if (
                _kind(one) == _kind(other)
                and end - begin > DAY
                and x.any()
                and y.any()
                and not x.all()
                and not y.all()
            ):
                yield float(np.corrcoef(x, y)[0, 1]), _region(one) == _region(other)


def _region(s: PoolSeries) -> str:
    found = re.match(r".*?\d", s.pool)
    return found[0] if found else s.pool


def _kind(s: PoolSeries) -> str:
    """Return type and size of the machine, as in `k80x8`; empty if the name has none."""
    last = s.pool.rsplit("-", 1)[-1]
    return last if re.fullmatch(r"[a-z0-9]*[a-z0-9]x\d+", last) else ""


def batches(there: dict[str, list[PoolSeries]], drawn: Sequence[list[PoolSeries]]) -> None:
    """Print the machines lost, and how many at once."""
    print(
        "\n| machines lost | most held | machine-hours | lost | per machine-hour | batches | of 1"
        f" | 2-3 | 4-6 | more | largest |\n|{'---|' * 11}"
    )
    rows = [
        (f"{name}: {s.pool}", [s])
        for name, series in there.items()
        for s in series
        if s.gpus.max() > 4
    ]
    for name, part in [*rows, ("generator `zones`", [s for zones in drawn for s in zones])]:
        sizes = np.concatenate([lost_together(s) for s in part])
        if not len(sizes):
            continue
        hours = (
            sum(float((s.gpus * np.diff(np.append(s.gpus_at, s.end))).sum()) for s in part) / HOUR
        )
        shares = [
            ((sizes >= a) & (sizes <= b)).mean() for a, b in ((1, 1), (2, 3), (4, 6), (7, np.inf))
        ]
        print(
            f"| {name} | {max(s.gpus.max() for s in part)} | {hours:,.0f} | {sizes.sum():,} |"
            f" {sizes.sum() / hours:.2f} | {len(sizes):,} |"
            f" {' | '.join(f'{x:.2f}' for x in shares)} | {sizes.max()} |"
        )


def lost_together(s: PoolSeries) -> Ints:
    """Return the sizes of the batches in which machines were lost."""
    change = np.diff(s.gpus)
    at, lost = s.gpus_at[1:][change < 0], -change[change < 0]
    out: list[int] = []
    first = -np.inf
    for t, n in zip(at.tolist(), lost.tolist(), strict=True):
        if t - first <= TOGETHER_S:
            out[-1] += n
        else:
            first = t
            out.append(n)
    return np.array(out, dtype=np.int64)


def priced(prices: Sequence[PoolSeries], seeds: int) -> None:
    """Print prices of a machine relative to its price on demand."""
    print(
        "\n| prices / on demand | pools | days | mean: 10, 50, 90 % of pools | lowest | highest | "
        f"daily log change, sd: 10, 50, 90 % | correlation of days, median |\n|{'---|' * 8}"
    )
    ours = []
    for seed in range(seeds):
        at, price = spot.prices(np.random.default_rng(seed), 1.0, 92 * DAY)
        ours.append(
            PoolSeries("generated", "V100", price_at=at, price=price, on_demand=1.0, end=92 * DAY)
        )
    long = [s for s in prices if s.end - s.begin > 30 * DAY]
    for name, part in (("AWS p3, three regions", long), ("generator `zones`", ours)):
        if not part:
            continue
        daily = [
            s.price[np.searchsorted(s.price_at, np.arange(s.begin, s.end, DAY), side="right") - 1]
            / s.on_demand
            for s in part
        ]
        change = [np.diff(np.log(d)).std() for d in daily]
        near = [np.corrcoef(d[:-1], d[1:])[0, 1] for d in daily if d.std() > 0]
        mean, sd = (np.percentile(x, (10, 50, 90)) for x in ([d.mean() for d in daily], change))
        print(
            f"| {name} | {len(part)} | {np.mean([s.end - s.begin for s in part]) / DAY:.0f} |"
            f" {', '.join(f'{x:.2f}' for x in mean)} | {min(d.min() for d in daily):.2f} |"
            f" {max(d.max() for d in daily):.2f} | {', '.join(f'{x:.1%}' for x in sd)} |"
            f" {np.median(near):.2f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
