"""Draw docs/pictures/workload-*.png, and print and write the tables of docs/workloads.md.

# needs the extra "plots" (matplotlib)
python scripts/pictures/draw_workloads.py
"""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from allocator.bench.workloads import GENERATORS, generate
from allocator.bench.workloads.bursty import bursty
from allocator.bench.workloads.diurnal import diurnal
from allocator.bench.workloads.parts import measured as m
from allocator.bench.workloads.parts.tables import GeneratedWorkload
from scripts.cases import statistics as st
from scripts.cases.calibration import SECTIONS, WHOLE, column, gpus_demanded, markdown

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURES = ROOT / "docs" / "workloads.md", ROOT / "docs" / "pictures"
REAL, MADE, OTHER = "black", "tab:blue", "tab:orange"
HOUR = 3_600.0


def main() -> None:
    """Write the tables first, then the pictures."""
    text = PAGE.read_text(encoding="utf-8")
    for name in SECTIONS:
        table = markdown(name)
        print(f"{name}\n{table}\n")
        text = with_table(text, name, table)
    PAGE.write_text(text, encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, draw in (("bursty", draw_bursty), ("diurnal", draw_diurnal), ("demand", draw_demand)):
        figure = draw()
        figure.savefig(PICTURES / f"workload-{name}.png", dpi=100)
        plt.close(figure)


def with_table(text: str, name: str, table: str) -> str:
    """Return the page with the table between <!-- name --> and <!-- end -->."""
    return re.sub(
        f"(<!-- {name} -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{table}\n{found[2]}",
        text,
        flags=re.DOTALL,
    )


def draw_bursty() -> plt.Figure:
    """Draw arrivals, durations and sizes of `bursty` and of Philly."""
    made = bursty(seed=0, load=1.0, jobs=80_000, longest_h=WHOLE)
    at, asked, seconds = (
        column(made, "submitted_s"),
        column(made, "requested_gpus").astype(int),
        st.run_s(made),
    )
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    figure.suptitle("generator bursty, 80,000 jobs, and what was measured on Philly")
    counts = np.bincount((at // HOUR).astype(int))
    shown = counts[: 14 * 24]
    axes[0, 0].plot(np.arange(len(shown)) / 24, shown, color=MADE, linewidth=0.8, label="generated")
    axes[0, 0].plot(
        np.arange(len(shown)) / 24,
        np.random.default_rng(0).poisson(m.PHILLY_JOBS_PER_H, len(shown)),
        color=OTHER,
        linewidth=0.8,
        label="Poisson of the same mean",
    )
    axes[0, 0].set(
        xlabel="day", ylabel="jobs submitted in the hour", title="two weeks of submissions"
    )
    tail(axes[0, 1], counts)
    for k, colour in ((1, MADE), (4, OTHER), (8, "tab:green")):
        axes[1, 0].plot(
            np.sort(seconds[asked == k]),
            np.linspace(0, 1, (asked == k).sum()),
            color=colour,
            label=f"{k} GPU{'s' * (k > 1)}",
        )
        axes[1, 0].plot(
            m.PHILLY_DURATION_S[k][:-1], m.QUANTILES, "o", color=colour, markeredgecolor=REAL
        )
    axes[1, 0].set(
        xscale="log",
        xlim=(10, 3e6),
        xlabel="run time at the request, seconds",
        ylabel="share of jobs",
        title="durations by size (dots: measured quantiles)",
    )
    sizes = [1, 2, 4, 8, 16, 32]
    share = st.shares(asked, seconds, sizes)
    x = np.arange(len(sizes))
    for i, (what, real) in enumerate((("jobs", m.PHILLY_SIZES), ("GPU time", m.PHILLY_TIME))):
        colour = (MADE, OTHER)[i]
        axes[1, 1].bar(
            x + 0.4 * i - 0.2,
            [100 * share[k][i] for k in sizes],
            0.38,
            color=colour,
            label=f"% of {what}",
        )
        axes[1, 1].plot(
            x + 0.4 * i - 0.2,
            [100 * real[k] for k in sizes],
            "o",
            color=colour,
            markeredgecolor=REAL,
        )
    axes[1, 1].set_xticks(x, [str(k) for k in sizes])
    axes[1, 1].set(
        xlabel="GPUs asked for", title="few large jobs are most of the work (dots: measured)"
    )
    for one in axes.flat:
        one.legend(frameon=False)
    return figure


def tail(axes: Axes, counts: np.ndarray) -> None:
    """Draw how often an hour has more than so many submissions."""
    poisson = np.random.default_rng(0).poisson(m.PHILLY_JOBS_PER_H, len(counts))
    for values, colour, label in (
        (counts, MADE, "generated"),
        (poisson, OTHER, "Poisson of the same mean"),
    ):
        axes.plot(
            np.sort(values), 1 - np.arange(len(values)) / len(values), color=colour, label=label
        )
    axes.plot(
        [m.PHILLY_HOURS[k] for k in ("median", "p95", "p99")],
        [0.5, 0.05, 0.01],
        "o",
        color="white",
        markeredgecolor=REAL,
        label="Philly: median, p95, p99",
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(1, 3_000),
        xlabel="jobs submitted in an hour",
        ylabel="share of hours with at least so many",
        title="quiet hours and storms",
    )


def draw_diurnal() -> plt.Figure:
    """Draw hours of the day and days of the week of `diurnal` and of Venus."""
    at = column(diurnal(seed=0, load=0.8, jobs=80_000, longest_h=WHOLE), "submitted_s")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 4), width_ratios=(2, 1), layout="constrained"
    )
    figure.suptitle("generator diurnal, 80,000 jobs, and what was measured on Helios Venus")
    left.bar(range(24), st.by_hour(at), color=MADE, label="generated")
    left.plot(range(24), m.VENUS_HOURS, "o", color="white", markeredgecolor=REAL, label="measured")
    left.set(
        xlabel="hour of the day", ylabel="jobs submitted per hour", title="nights, lunch and dinner"
    )
    left.legend(frameon=False)
    right.bar(range(7), 100 * st.by_weekday(at), color=MADE)
    right.plot(range(7), m.VENUS_WEEKDAYS, "o", color="white", markeredgecolor=REAL)
    right.set_xticks(range(7), ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    right.set(ylabel="% of the jobs", title="days of the week")
    return figure


def draw_demand() -> plt.Figure:
    """Draw the GPUs that jobs of each generator would use at their requests, and available GPUs."""
    rows = -(-len(GENERATORS) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(13, 2.1 * rows), layout="constrained")
    figure.suptitle(
        "GPUs in use if every job ran at its request at once (blue), GPUs there are (black), seed"
        " 0; no more submissions in the gray parts"
    )
    for one in axes.flat[len(GENERATORS) :]:
        one.set_axis_off()
    for one, g in zip(axes.flat, GENERATORS.values(), strict=False):
        made = generate(g.name)
        at, gpus = gpus_demanded(made, 300.0)
        one.fill_between(at / HOUR, gpus, step="post", color=MADE, alpha=0.5, linewidth=0)
        plenty = {
            p: k
            for p, k in zip(
                made.tables["pools.csv"]["pool"], made.tables["pools.csv"]["gpus"], strict=True
            )
            if k > 2 * gpus.max()
        }  # on-demand pools without a practical limit
        when, there = supply(made, float(at[-1]), plenty)
        one.step(when / HOUR, there, where="post", color=REAL, linewidth=1)
        one.axvspan(made.window_s / HOUR, at[-1] / HOUR, color="gray", alpha=0.12, linewidth=0)
        one.set(
            xlim=(0, min(at[-1], 2 * made.window_s) / HOUR),
            ylim=(0, max(gpus.max(), there.max()) * 1.05),
            ylabel="GPUs",
        )
        one.set_title(
            f"{g.name}: {g.jobs} jobs, load {g.load:g}"
            + "".join(f", {k} GPUs of pool {p} not drawn" for p, k in plenty.items()),
            loc="left",
        )
    for one in axes[-1]:
        one.set_xlabel("hours")
    return figure


def supply(
    made: GeneratedWorkload, until_s: float, aside: Container[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return times and available GPUs in all pools except for `aside`."""
    now = dict(zip(made.tables["pools.csv"]["pool"], made.tables["pools.csv"]["gpus"], strict=True))
    now = {pool: 0 if pool in aside else gpus for pool, gpus in now.items()}
    when, there = [0.0], [sum(now.values())]
    moves = made.tables.get("capacity.csv", {"at_s": [], "pool": [], "gpus": []})
    for at, pool, gpus in zip(moves["at_s"], moves["pool"], moves["gpus"], strict=True):
        now[pool] = 0 if pool in aside else gpus
        when.append(at)
        there.append(sum(now.values()))
    return np.array([*when, until_s]), np.array([*there, there[-1]])


if __name__ == "__main__":
    main()
