"""Draw docs/pictures/demo.png: which job gets which GPUs in the demo round, greedy against MIP.

    # needs the extra "plots" (matplotlib)
    python scripts/pictures/draw_demo.py

The picture also shows what more money would buy.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import allocator
from allocator.domain.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("greedy", "mip")


def main() -> None:
    """Decide the shipped demo with both policies and draw the picture."""
    snapshot = allocator.read_snapshot(ROOT / "data" / "snapshots" / "demo")
    results = {p: allocator.solve(snapshot, policy=p, gap=0.0) for p in POLICIES}
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13, 5), width_ratios=(3, 2), layout="constrained"
    )
    draw_pools(left, results)
    budgets = np.arange(0, 41, 2.0)
    for policy, colour in zip(POLICIES, ("tab:gray", "tab:blue"), strict=True):
        values = [
            allocator.solve(snapshot, policy=policy, gap=0.0, budget=b).objective_value
            for b in budgets
        ]
        right.plot(budgets, values, "o-", color=colour, label=policy, markersize=3)
    budget = results["mip"].budget.per_hour
    right.axvline(float(budget or 0), color="black", linestyle=":", linewidth=1)
    right.text(float(budget or 0) + 0.5, 0.3, f"budget of the demo\n{budget:g} $/h", fontsize=8)
    right.set(
        xlabel="budget, dollars per hour",
        ylabel="value of the round (progress, in jobs)",
        title="What the same money buys",
    )
    right.legend(frameon=False)
    out = ROOT / "docs" / "pictures" / "demo.png"
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=110)


def draw_pools(axes: Axes, results: dict[str, Plan]) -> None:
    """One bar per policy and pool, cut into the jobs that hold its GPUs."""
    first = results[POLICIES[0]]
    names = list(first.jobs["job_id"])
    colours = dict(zip(names, plt.get_cmap("tab20").colors, strict=False))
    bars = [(policy, pool) for pool in first.pools for policy in POLICIES]
    for y, (policy, pool) in enumerate(bars):
        left = 0
        jobs = results[policy].jobs
        for job, where, gpus, value in zip(
            names, jobs["pool"], jobs["gpus"], jobs["value"], strict=True
        ):
            if where == pool.pool:
                axes.barh(y, gpus, left=left, color=colours[job], edgecolor="white", alpha=0.75)
                axes.text(
                    left + gpus / 2, y, f"{job}\n{value:.2g}", ha="center", va="center", fontsize=7
                )
                left += gpus
        if left < pool.gpus:
            axes.barh(
                y,
                pool.gpus - left,
                left=left,
                color="none",
                edgecolor="gray",
                hatch="///",
                linewidth=0.5,
            )
    axes.set_yticks(range(len(bars)), [f"{pool.pool}\n{policy}" for policy, pool in bars])
    axes.invert_yaxis()
    totals = ", ".join(f"{p} {results[p].objective_value:.2f}" for p in POLICIES)
    axes.set(
        xlabel="GPUs (hatched: idle)",
        title=f"Who gets what; below the job: share of its work done x weight. Sum: {totals}",
    )
    axes.title.set_fontsize(10)


if __name__ == "__main__":
    main()
