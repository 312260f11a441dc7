"""The table of docs/workloads.md: statistics of generated workloads against measured ones.

All values are means over seeds. scripts/pictures/draw_workloads.py prints the table and writes it
into the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from cases import statistics as st

from allocator.bench.workloads.bursty import bursty
from allocator.bench.workloads.diurnal import diurnal
from allocator.bench.workloads.parts import measured as m
from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.bench.workloads.spot import MACHINE, spot
from allocator.domain.problem import Floats

SEEDS, JOBS = range(5), 80_000
WHOLE = 1e9  # hours; no limit on the longest run
Row = tuple[str, str, str]
Measure = Callable[[GeneratedWorkload], float]


def column(tables: GeneratedWorkload, name: str) -> Floats:
    """Return a column of numbers of workload.csv."""
    return np.asarray(tables.tables["workload.csv"][name], float)


def compare_philly(seeds: Iterable[int] = SEEDS, jobs: int = JOBS) -> list[Row]:
    """Return rows of (statistic, measured on Philly, generator `bursty`).

    The generator has no longest run, and Philly's rate.
    """
    made = [bursty(seed=s, load=1.0, jobs=jobs, longest_h=WHOLE) for s in seeds]
    asked = [column(t, "requested_gpus").astype(np.int64) for t in made]
    seconds = [st.run_s(t) for t in made]
    counts = _mean([st.arrivals(column(t, "submitted_s")) for t in made])
    rows = [
        (f"jobs per hour: {name}", f"{value:g}", f"{counts[name]:.3g}")
        for name, value in m.PHILLY_HOURS.items()
    ]
    gaps = m.PHILLY_GAPS
    rows += [
        ("gap between submissions: median", f"{gaps['median_s']} s", f"{counts['median_s']:.2g} s"),
        ("gap: coefficient of variation", f"{gaps['cv']}", f"{counts['cv']:.2g}"),
        (
            "submitted within 2 s of the one before",
            _percent(gaps["within_2_s"]),
            _percent(counts["within_2_s"]),
        ),
    ]
    sizes = [1, 2, 4, 8, 16]
    by_size = np.mean(
        [[st.shares(a, s, sizes)[k] for k in sizes] for a, s in zip(asked, seconds, strict=True)],
        axis=0,
    )
    for i, k in enumerate(sizes[:4]):
        rows.append(
            (
                f"{k}-GPU jobs: share of jobs, of GPU time",
                f"{_percent(m.PHILLY_SIZES[k])}, {_percent(m.PHILLY_TIME[k])}",
                f"{_percent(by_size[i][0])}, {_percent(by_size[i][1])}",
            )
        )
    heavy = np.mean(
        [st.weights(a * s / 3_600.0, (100.0,))[1] for a, s in zip(asked, seconds, strict=True)],
        axis=0,
    )
    rows.append(
        (
            "jobs above 100 GPU-hours: of jobs, of GPU time",
            "2.1 %, 82.5 %",
            f"{_percent(heavy[0])}, {_percent(heavy[1])}",
        )
    )
    rows.append(_quantiles("all", m.PHILLY_ALL_S, seconds))
    for k in (1, 4, 8):
        of_size = [s[a == k] for a, s in zip(asked, seconds, strict=True)]
        rows.append(
            _quantiles(f"{k} GPUs" if k > 1 else "1 GPU", m.PHILLY_DURATION_S[k][:-1], of_size)
        )
    return rows


def compare_venus(seeds: Iterable[int] = SEEDS, jobs: int = JOBS) -> list[Row]:
    """Return rows of (statistic, measured on Helios, generator `diurnal`).

    The generator has no longest run, and the rate of Venus.
    """
    made = [diurnal(seed=s, load=0.8, jobs=jobs, longest_h=WHOLE) for s in seeds]
    at = [column(t, "submitted_s") for t in made]
    hours, days = (np.mean([f(a) for a in at], axis=0) for f in (st.by_hour, st.by_weekday))
    counts = _mean([st.arrivals(a) for a in at])
    seconds = [st.run_s(t) for t in made]
    week = np.array(m.VENUS_WEEKDAYS)
    return [
        ("jobs per hour: mean", f"{m.VENUS_JOBS_PER_H}", f"{counts['mean']:.3g}"),
        (
            "busiest hour / quietest hour",
            f"{max(m.VENUS_HOURS) / min(m.VENUS_HOURS):.2g}",
            f"{hours.max() / hours.min():.2g}",
        ),
        (
            "jobs per hour at 5, 11, 17 o'clock",
            ", ".join(str(m.VENUS_HOURS[h]) for h in (5, 11, 17)),
            ", ".join(f"{hours[h]:.2g}" for h in (5, 11, 17)),
        ),
        (
            "share of Wednesday, Saturday",
            ", ".join(_percent(week[d] / week.sum()) for d in (2, 5)),
            ", ".join(_percent(float(days[d])) for d in (2, 5)),
        ),
        (
            "jobs per hour: variance / mean",
            f"{m.VENUS_DISPERSION:g}",
            f"{counts['variance / mean']:.2g}",
        ),
        (
            "GPUs asked for: mean",
            f"{m.VENUS_MEAN_GPUS}",
            f"{np.mean([column(t, 'requested_gpus').mean() for t in made]):.3g}",
        ),
        (
            "duration: median, mean",
            f"{m.HELIOS_DURATION_S['median']} s, {m.HELIOS_DURATION_S['mean']:,} s",
            (
                f"{np.mean([np.median(s) for s in seconds]):.3g} s,"
                f" {np.mean([s.mean() for s in seconds]):,.0f} s"
            ),
        ),
    ]


def compare_market(seeds: Iterable[int] = SEEDS) -> list[Row]:
    """Return rows of (statistic, measured on AWS, generator `spot` with a single spot machine)."""
    there, runs, gaps, share, floor, change = [], [], [], [], [], []
    for seed in seeds:
        made = spot(seed=seed, load=0.5, jobs=3_000, gpus=2 * MACHINE)
        moves, prices = made.tables["capacity.csv"], made.tables["prices.csv"]
        at, gpus = np.asarray(moves["at_s"], float), np.asarray(moves["gpus"])
        length, up = np.diff(at), gpus[:-1] > 0
        there.append(float(length[up].sum() / length.sum()))
        runs.append(length[up])
        gaps.append(length[~up])
        price = np.asarray(prices["price_per_gpu_hour"], float) / m.ON_DEMAND["A100"]
        share.append(float(price.mean()))
        floor.append(float(price.min()))
        change.append(float(np.diff(np.log(price[::24])).std()))
    run, gap = np.concatenate(runs) / 3_600.0, np.concatenate(gaps) / 3_600.0
    return [
        ("time a machine is there", "88 to 91 %", _percent(float(np.mean(there)))),
        (
            "runs: mean (median)",
            "6.1 to 10.4 h (0.9 to 1.4 h)",
            f"{run.mean():.2g} h ({np.median(run):.2g} h)",
        ),
        (
            "gaps: mean (median)",
            "0.8 to 1.1 h (0.38 h)",
            f"{gap.mean():.2g} h ({np.median(gap):.2g} h)",
        ),
        (
            "price / on demand: mean, floor",
            "0.30 to 0.34, 0.30",
            f"{np.mean(share):.2f}, {np.min(floor):.2f}",
        ),
        ("price: s.d. of the daily log change", "0.7 to 1.6 %", _percent(float(np.mean(change)))),
    ]


SECTIONS: Mapping[str, tuple[str, Callable[[], list[Row]]]] = {
    "bursty": ("Philly (82,247 jobs, 2017)", compare_philly),
    "diurnal": ("Helios, Venus cluster (125,214 jobs, 2020)", compare_venus),
    "spot": ("AWS us-west-2 (V100, 2023); price: p3, 2020", compare_market),
}


def markdown(name: str) -> str:
    """Return the table of one generator as Markdown."""
    source, rows = SECTIONS[name]
    lines = [f"| statistic | measured: {source} | generated |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {real} | {made} |" for what, real, made in rows())])


def gpus_demanded(tables: GeneratedWorkload, step_s: float = 600.0) -> tuple[Floats, Floats]:
    """Return times and GPUs in use if every job ran at its request as soon as it is submitted."""
    start, gpus = column(tables, "submitted_s"), column(tables, "requested_gpus")
    end = start + st.run_s(tables)
    at = np.arange(0.0, float(end.max()) + step_s, step_s)

    def up_to(when: Floats) -> Floats:
        order = np.argsort(when, kind="stable")
        total = np.concatenate([[0.0], np.cumsum(gpus[order])])
        return np.asarray(total[np.searchsorted(when[order], at, side="right")])

    return at, up_to(start) - up_to(end)


def _quantiles(of: str, measured: Iterable[float], seconds: list[Floats]) -> Row:
    places = (1, 2, 3, 4)  # p25, p50, p75, p90 of QUANTILES
    real = np.array(list(measured))[list(places)]
    got = np.mean([np.quantile(s, np.array(m.QUANTILES)[list(places)]) for s in seconds], axis=0)
    return (
        f"duration, {of}: p25, p50, p75, p90 in s",
        ", ".join(f"{v:,.0f}" for v in real),
        ", ".join(f"{v:,.0f}" for v in got),
    )


def _mean(many: list[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([one[key] for one in many])) for key in many[0]}


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
