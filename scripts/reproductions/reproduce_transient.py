"""Compare published figures on revocable servers with our formulas and our simulator.

    python scripts/reproductions/reproduce_transient.py [--runs 20000] [--seed 1]
        [--startup FOLDER]

The figures are those of Li, Walls, Guo (ICAC 2019, ICDCS 2020): clusters, lifetimes of servers,
checkpoints, redone work, bottlenecks and replacements. FOLDER has the published start-up times,
vm_time_measure_*.csv. Standard output is Markdown.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases import transient as case  # noqa: E402

from allocator.bench.machine import machine  # noqa: E402
from allocator.domain.schema.spot_columns import CLUSTERS  # noqa: E402
from allocator.io.tables.one_table import read_numbers, read_table, require_sound  # noqa: E402
from allocator.market.clusters import clusters  # noqa: E402
from allocator.market.spot import RunForecast, choose_clusters, forecast_run  # noqa: E402
from allocator.performance.fit import transient as fit  # noqa: E402
from formulations.transient.lifetimes import useful_fraction  # noqa: E402
from formulations.transient.revocations import HOUR_S, best_interval_s, cumulative  # noqa: E402

N = (1, 2, 4, 6, 8)
# steps per second of N workers, ICDCS 2020: model, GPU, parameter servers; published bottleneck
SPEEDS = {
    "ResNet-15, K80": ((9.9, 18.9, 37.9, 57.4, 75.8), "none"),
    "ResNet-32, K80": ((4.51, 8.85, 18.1, 26.9, 36.0), "none"),
    "Shake-small, K80": ((2.53, 5.09, 10.1, 15.1, 19.9), "none"),
    "Shake-big, K80": ((0.68, 1.34, 2.64, 3.97, 5.0), "none"),
    "ResNet-15, P100": ((21.0, 47.1, 78.8, 94.3, 104), "-"),
    "ResNet-32, P100": ((11.4, 22.6, 40.8, 44.2, 43.2), "44"),
    "Shake-small, P100": ((6.73, 13.6, 24.8, 27.5, 27.1), "27"),
    "Shake-big, P100": ((2.10, 3.95, 6.03, 5.97, 6.51), "6.3"),
    "ResNet-32, P100, 2 servers": ((12.5, 25.4, 50.1, 73.2, 75.5), "77"),
    "ResNet-15, P100, 2 servers": ((26.0, 46.6, 98.8, 129, 177), "none"),
    "Shake-big, P100, 2 servers": ((2.18, 4.22, 6.36, 6.70, 6.53), "6.5"),
}
# MB of a checkpoint, mean seconds of five: Li, Walls, Guo, "Characterizing and Modeling Distributed
# Training with Transient Cloud GPU Servers", ICDCS 2020; repository cake-lab/CM-DARE (Apache-2.0),
# commit e3f2dca, data/processed_data/checkpoint/ckpt.csv, sixteen models
CHECKPOINTS = (
    (6.27, 3.79),
    (15.99, 3.82),
    (9.26, 3.54),
    (10.57, 3.48),
    (12.78, 3.65),
    (22.45, 3.97),
    (28.7, 4.44),
    (38.85, 4.65),
    (48.15, 5.0),
    (54.26, 5.31),
    (9.57, 4.35),
    (26.39, 4.52),
    (54.19, 5.23),
    (93.33, 5.86),
    (143.01, 6.31),
    (204.04, 7.66),
)
# four other models, whole_data.csv there
HELD_OUT = (
    (19.21, 3.434),
    (40.41, 4.196),
    (33.18, 4.208),
    (117.61, 5.666),
)
# steps since the checkpoint, seconds lost
CHIEF = ((1500, 2000, 2500, 3000, 3500), (19, 88, 147, 197, 254))


def against(ours: float, published: float) -> str:
    """Return our figure, and by how much it differs."""
    return f"{ours:,.{0 if ours > 100 else 3}f} ({100 * (ours / published - 1):+.1f} %)"


def runs(seen: list[RunForecast], count: int, seed: int) -> None:
    """Print every cluster: published, by formula, simulated."""
    print(
        "| cluster | runs | time, s | formula | simulated | cost, $ | formula | simulated | lost:"
        f" formula | simulated |\n|{'---|' * 10}"
    )
    for o in seen:
        seconds, dollars, n = case.PUBLISHED[o.cluster.name]
        one = len(o.cluster.workers) == 1
        p = case.simulate_runs(o, count, seed) if one else None
        print(
            f"| {o.cluster.name} | {n} | {seconds} | {against(o.seconds, seconds)} | "
            + (against(p.seconds, seconds) if p else "-")
            + f" | {dollars} | {against(o.dollars, dollars)} | "
            + (against(p.dollars, dollars) if p else "-")
            + f" | {o.revocations:.4f} | "
            + (f"{p.revocations:.4f}" if p else "-")
            + " |"
        )
    published = [case.PUBLISHED[o.cluster.name] for o in seen]
    names, choice = [o.cluster.name for o in seen], choose_clusters(seen, cost=1.2)
    cheapest = min(range(len(seen)), key=lambda i: published[i][1])
    fastest = min(
        (i for i in range(len(seen)) if published[i][1] <= 1.2), key=lambda i: published[i][0]
    )
    print(
        f"\ncheapest: {names[cheapest]} by the published figures, {names[choice.cheapest]} by ours;"
        f" fastest below 1.2 $: {names[fastest]}, {names[choice.fastest_within_cost or 0]}"
    )


def lifetimes(count: int, seed: int) -> None:
    """Print the shares of 128 K80 servers that were revoked, by age."""
    six = case.fit_hazard_counts(case.EDGES_H, case.REVOKED, case.SERVERS)
    two = case.fit_hazard_counts((0, 1, 24), (case.REVOKED[0], sum(case.REVOKED[1:])), case.SERVERS)
    one = six.seen.sum() / six.hours.sum()
    young, old = two.hazard.per_hour
    print(
        "\n| before h | published | sampling error | six pieces | two pieces | simulated: two"
        f" pieces | constant |\n|{'---|' * 7}"
    )
    shares = np.cumsum(case.REVOKED) / case.SERVERS
    for h, p in zip(case.EDGES_H[1:], shares, strict=True):
        played = case.revoked_within(h, float(old), float(young / old), count, seed)
        print(
            f"| {h} | {p:.3f} | {np.sqrt(p * (1 - p) / case.SERVERS):.3f} |"
            f" {-np.expm1(-cumulative(six.hazard, h)):.3f} |"
            f" {-np.expm1(-cumulative(two.hazard, h)):.3f} |"
            f" {played:.3f} | {-np.expm1(-one * h):.3f} |"
        )
    pieces = ", ".join(
        f"{x:.4f} +- {e:.4f}" for x, e in zip(six.hazard.per_hour, six.errors, strict=True)
    )
    print(
        f"\nhazard per hour, six pieces: {pieces}; two: {young:.4f}, {old:.4f} (ratio"
        f" {young / old:.2f}); constant {one:.4f} (published .0182)"
    )


def regressions(startup: Path | None) -> None:
    """Print checkpoints, redone work, caps and start-up."""
    size, seconds = zip(*CHECKPOINTS, strict=True)
    line = fit.fit_line(size, seconds)
    others = [abs(float(line.at(mb)) / s - 1) for mb, s in HELD_OUT]
    print(
        f"\ncheckpoint seconds = {line.intercept:.4f} (+- {line.errors[0]:.3f}) + {line.slope:.5f}"
        f" (+- {line.errors[1]:.5f}) MB, R2 {line.r2:.3f}, error {100 * line.error:.1f} %, each"
        f" left out {100 * line.held_out:.1f} %, four other models {100 * min(others):.1f} to"
        f" {100 * max(others):.1f} % (published 3.75 + 0.0200 MB, .92, 6.4 %, 5.6 to 20 %)"
    )
    redone = fit.fit_line(*CHIEF)
    print(f"work redone after the chief is lost: {redone.slope:.4f} s per step, R2 {redone.r2:.3f}")
    print(
        "\n| steps/s | published bottleneck | C, corner 8 | error | C, sharp | error |\n|"
        + "---|" * 6
    )
    for name, (v, known) in SPEEDS.items():
        soft, sharp = fit.fit_cap(N, v), fit.fit_cap(N, v, np.inf)
        print(
            f"| {name} | {known} | {soft.cap:.3g} | {100 * soft.error:.1f} % | {sharp.cap:.3g} | "
            f"{100 * sharp.error:.1f} % |"
        )
    if startup is None:
        return
    print("\n| file | starts | mean +- sd, s | 5, 50, 95 % | longest phase |\n|" + "---|" * 5)
    for path in sorted(startup.glob("vm_time_measure_*.csv")):
        table = require_sound(read_numbers(path))
        *phases, total = fit.fit_phases({c.name: table[c.name] for c in table.schema.columns})
        longest = max(phases, key=lambda p: p.mean)
        name = path.stem.removeprefix("vm_time_measure_")
        print(
            f"| {name} | {total.samples} | {total.mean:.1f} +- {total.sd:.1f} |"
            f" {', '.join(f'{q:.0f}' for q in total.quantiles)} | {longest.name}"
            f" {longest.mean:.1f} |"
        )


def shares() -> None:
    """Print phi of synchronous and asynchronous jobs."""
    print(
        "\n| workers | hazard per hour | interval, s: best | sqrt(2 T/(n h)) | phi synchronous |"
        " first order | phi asynchronous |\n|" + "---|" * 7
    )
    delta, pause = 4.0, 83.0
    for h in (0.0182, 0.61):
        for n in (1, 8, 64, 512):
            rate = n * h / HOUR_S
            tau = float(best_interval_s(rate, delta))
            first = 1 - delta / tau - rate * (pause + tau / 2)
            together, apart = (
                float(useful_fraction(n, h, checkpoint_s=delta, replace_s=pause, synchronous=s))
                for s in (True, False)
            )
            print(
                f"| {n} | {h} | {tau:.0f} | {(2 * delta / rate) ** 0.5:.0f} | {together:.4f} |"
                f" {first:.4f} | {apart:.4f} |"
            )


def replacements(runs: int, seed: int) -> None:
    """Print the seconds from a loss until the replacement works, drawn log-normal."""
    print(f"\n| replacement of | measured, s | simulated, s | error of the mean |\n|{'---|' * 4}")
    for kind, (mean, sd) in case.REPLACED.items():
        took = case.starts(mean, sd, runs, seed)[1]
        print(
            f"| {kind} | {mean} +- {sd} | {took.mean():.1f} +- {took.std():.1f} |"
            f" {took.std() / np.sqrt(runs):.2f} |"
        )


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=20_000, help="simulated runs per cluster and servers per age"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--startup", type=Path)
    args = parser.parse_args()
    begin = time.process_time()
    print(f"{machine()}; {args.runs} runs, seed {args.seed}\n")
    seen = [
        forecast_run(c, case.WORK)
        for c in clusters(read_table(ROOT / "data" / "spot" / "resnet32.csv", CLUSTERS))
    ]
    runs(seen, args.runs, args.seed)
    lifetimes(args.runs, args.seed)
    regressions(args.startup)
    shares()
    replacements(args.runs, args.seed)
    print(f"\n{time.process_time() - begin:.1f} CPU seconds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
