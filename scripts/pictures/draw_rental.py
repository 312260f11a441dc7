"""Print the tables of docs/rental.md, with times, and draw docs/pictures/rental-curve.svg.

    # needs the extra "plots" (matplotlib)
    python scripts/pictures/draw_rental.py

Only the named seed is random.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from allocator.cli.models.rent_source import from_file
from allocator.io.plans import write_files
from allocator.market.rent import rent
from allocator.report.charts.rental import picture
from formulations.rental.simple_rules import curve, equal_spend, equal_widths, response_h
from formulations.rental.speed_curves import AMDAHL, POWER, TABLE, speed_ups
from formulations.rental.widths import JobClasses, plan, restrict_to_whole_gpus

ROOT = Path(__file__).resolve().parents[2]
DATA, PICTURES = ROOT / "data" / "rental", ROOT / "docs" / "pictures"
BUDGETS = (0.85, 1.0, 1.5, 2.0, 2.5, 3.0)
MANY, SEED = 200, 0


def main() -> None:
    example = from_file(str(DATA / "example.csv"), None, False)
    made = example.model(False)
    print(
        "| b | mu | k Amdahl | k sqrt | E[T] h | equal widths | equal spending | sd of GPUs | whole"
        " GPUs |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for b in BUDGETS:
        p, one = plan(made, b), np.array([b])
        widths, spend = (
            float(response_h(made, f(made, one))[0]) for f in (equal_widths, equal_spend)
        )
        print(
            f"| {b:g} | {p.mu:.5f} | {p.width[0]:.4f} | {p.width[1]:.4f} | {p.response_h:.6f} | "
            f"{widths:.6f} ({100 * (widths / p.response_h - 1):+.1f} %) | "
            f"{spend:.6f} ({100 * (spend / p.response_h - 1):+.1f} %) | {p.sd_gpus:.2f} | "
            f"{plan(restrict_to_whole_gpus(made), b).response_h:.6f} |"
        )
    shipped = from_file(str(DATA / "classes.csv"), str(DATA / "pools.csv"), True)
    write_files(
        PICTURES, {"rental-curve.svg": picture(rent(shipped, 50.0, dollars=True, with_curve=True))}
    )
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, {versions}; "
        f"CPU time, {MANY} classes of all three kinds, seed {SEED}"
    )
    many = random_classes(1)
    budget = 3.0 * float(many.load.sum())
    for name, call in (
        ("best widths", lambda: plan(many, budget)),
        ("whole GPUs", lambda: plan(restrict_to_whole_gpus(many), budget)),
        ("curve, 100 prices and every step of a table", lambda: curve(many, budget)),
    ):
        print(f"{name}: {milliseconds(call):.1f} ms")
    types = random_classes(3)
    print(f"best widths, three GPU types each: {milliseconds(lambda: plan(types, budget)):.1f} ms")
    print(
        "whole GPUs, three GPU types each:"
        f" {milliseconds(lambda: plan(restrict_to_whole_gpus(types), budget)):.1f} ms"
    )


def random_classes(types: int) -> JobClasses:
    """Return MANY classes, each on so many GPU types."""
    rng = np.random.default_rng(SEED)
    rows = MANY * types
    kind = rng.choice([AMDAHL, POWER, TABLE], rows)
    points = [tuple((k, float(k**0.7)) for k in (1, 2, 4, 8, 16, 32)) for _ in range(rows)]
    speed = speed_ups(
        kind.tolist(),
        rng.uniform(0.5, 0.95, rows).tolist(),
        points,
        rng.uniform(0.8, 1.2, rows).tolist(),
    )
    return JobClasses(
        rng.uniform(0.1, 1, MANY),
        rng.uniform(0.1, 2, MANY),
        np.ones(MANY),
        np.repeat(np.arange(MANY), types),
        rng.uniform(0.9, 1.1, rows),
        speed,
    )


def milliseconds(call: Callable[[], object], times: int = 20) -> float:
    """Return the CPU time of one call, the least of `times`."""
    best = np.inf
    for _ in range(times):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return 1e3 * best


if __name__ == "__main__":
    main()
