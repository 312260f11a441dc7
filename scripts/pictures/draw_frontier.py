"""Print the tables of docs/frontier.md, with CPU times, and draw its pictures into docs/pictures.

    # needs the extra "plots" (matplotlib)
    python scripts/pictures/draw_frontier.py

The seed of the solver is 0; nothing else is random.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import numpy as np

from allocator import read_snapshot, validate
from allocator.domain.problem import Problem
from allocator.engine.frontier.jobs import jobs_frontier
from allocator.engine.frontier.rounds import RoundCase, keep, round_frontier
from allocator.engine.frontier.sweep import BudgetSweep, Effort
from allocator.engine.frontier.ways import job_ways
from allocator.io.plans import write_files
from allocator.report.charts.frontier import of_jobs, of_round
from allocator.solvers.base import SolveLimits

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOTS, PICTURES = ROOT / "data" / "snapshots", ROOT / "docs" / "pictures"
POINTS, SHARES = 25, (0.5, 0.8, 0.9, 0.95, 0.99)
JOBS = ("segment", "nightly", "finetune")
LIMITS = SolveLimits(gap=1e-3)


def main() -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy"
        f" {np.__version__}; CPU time without that of the solvers' own processes; gap 1e-3, solver"
        " auto, seed 0\n"
    )
    medium = validate(read_snapshot(SNAPSHOTS / "medium"))
    start = cpu()
    found = round_frontier(medium, Effort(LIMITS, None, POINTS))
    print(
        f"medium, {POINTS} solves, {cpu() - start:.1f} s, open {100 * found.found.open_share:.2f} %"
    )
    print(
        "| budget $/h | spent | added | progress | no plan above | gap | value of 1 $/h more |"
        " jobs |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for r in found.rows():
        print(
            f"| {r['budget_per_hour']:.1f} | {r['spent_per_hour']:.1f} | {r['added_per_hour']:.1f}"
            f" | {r['value']:.2f} | {r['bound']:.2f} | {100 * r['gap']:.4f} % |"
            f" {r['dollar_value']:.4f} | {r['jobs_running']} |"
        )
    print(
        "\nsame number of solves at even budgets: open"
        f" {100 * even(medium, found.found.least):.2f} %"
    )
    print(
        "\n| keep | progress | $/h | none cheaper than | less than the best plan | solves | CPU s |"
    )
    print("|---|---|---|---|---|---|---|")
    for share in SHARES:
        start = cpu()
        k = keep(medium, Effort(LIMITS, None, 60), share, True)
        print(
            f"| {100 * share:g} % | {k.result.objective_value:.2f} | {k.spent:.2f} | {k.least:.2f}"
            f" | {100 * (1 - k.spent / k.best_spent):.1f} % | {k.solves} | {cpu() - start:.1f} |"
        )
    demo = validate(read_snapshot(SNAPSHOTS / "demo"))
    listed, added = (
        keep(demo, Effort(LIMITS, None, 60), 0.95, True, dollars=d) for d in ("listed", "added")
    )
    print(f"\ndemo, keep 95 %: {listed.spent:g} $/h listed; {added.spent:g} $/h added to the bill")
    start = cpu()
    jobs = jobs_frontier(demo, job_ways(demo, JOBS), Effort(LIMITS, None, POINTS))
    print(
        f"demo, {', '.join(JOBS)}: {len(jobs.fits)} corners, {int(jobs.fits.sum())} within the"
        f" pools, {len(jobs.spent)} plans; {cpu() - start:.2f} s"
    )
    write_files(
        PICTURES, {"frontier-round.svg": of_round(found), "frontier-jobs.svg": of_jobs(jobs)}
    )


def even(problem: Problem, least: float) -> float:
    """Return the open share of the area if the same number of budgets are evenly spaced."""
    effort = Effort(LIMITS, None, POINTS)
    sweep = BudgetSweep(RoundCase(problem, effort), effort)
    top = sweep.answers[0].spent
    for budget in np.linspace(least, top, POINTS - 1)[1:-1].tolist():
        sweep.solve_at(budget)
    return sweep.found().open_share


def cpu() -> float:
    """Return the CPU seconds of this process."""
    return time.process_time()


if __name__ == "__main__":
    main()
