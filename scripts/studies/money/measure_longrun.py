"""Compare long-run budgets with the same dollars as a hard hourly cap, over 14 days.

    # print the tables of docs/budgets.md
    python scripts/studies/money/measure_longrun.py --seeds 3 --out longrun
    python scripts/studies/money/measure_longrun.py --seeds 3 --out longrun --cases price-only,laws

The workloads are those of the generators `bursty` and `diurnal`. All GPUs are rented (on demand,
1.95 $ an hour, 60 s to start), and there are more than the jobs need. The budget of a seed is
`--factor` times what its jobs cost on one GPU each, which is the least they can cost. The hard cap
of every round is four times the budget per hour. Every simulation runs until all jobs are done, so
that completion times are those of the same jobs. Dollars are compared after 14 days and at the end.
Results are kept in the folder, and existing ones are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.market import longrun
from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions, simulate

HOUR, DAY = 3600.0, 86_400.0
DAYS, GPUS, POOL, PRICE = 14, 64, 2000, 1.95
NAMES = ("bursty", "diurnal")
CASES: dict[str, dict[str, Any]] = {  # dollars in multiples of the budget
    "long-run": {"budget": 4, "budget_average": 1},
    "hard cap": {"budget": 1},
    "hard cap greedy": {"budget": 1, "policy": "greedy"},
    "rental": {"budget": 4, "budget_average": 1, "policy": "rental"},
    "amount": {"budget": 4, "budget_amount": DAYS * 24},
    "drift plus penalty": {"budget": 4, "budget_average": 1, "price": "penalty"},
    "limit only": {"budget": 4, "budget_average": 1, "price": "none"},
    "hard cap 1.5": {"budget": 1.5},
    "hard cap 2": {"budget": 2},
}
LAWS: dict[str, Callable[[float, float], float]] = {
    "penalty": lambda scale, debt: scale * max(0.0, debt),
    "none": lambda scale, debt: 0.0,
}


def workload(name: str, seed: int, jobs: int) -> tuple[Workload, float]:
    """Return jobs submitted in 14 days, and the least dollars per hour that they can cost."""
    first = generate(name, seed=seed, jobs=jobs, gpus=GPUS, load=1.0)
    made = generate(name, seed=seed, jobs=jobs, gpus=GPUS, load=first.window_s / (DAYS * DAY))
    pools = {
        **made.tables["pools.csv"],
        "gpus": [POOL],
        "market": ["on_demand"],
        "startup_s": [60],
        "price_per_gpu_hour": [PRICE],
    }
    made = dataclasses.replace(
        made,
        config={**made.config, "objective": "response"},
        tables={**made.tables, "pools.csv": pools},
    )
    found = made.workload()
    jobs_, one = found.problem.jobs, np.ones(jobs, dtype=np.int64)
    rate, _ = RateTable.of(found.problem).rate(jobs_.model, 0 * one, one)
    return found, float((jobs_.total_work / rate).sum()) / HOUR * PRICE / (DAYS * 24)


def measure(name: str, seed: int, case: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the results of one simulation."""
    asked = dict(CASES[case])
    found, least = workload(name, seed, args.jobs)
    budget = args.factor * least
    policy, law = asked.pop("policy", args.policy), asked.pop("price", None)
    dollars = {key: value * budget for key, value in asked.items()}
    kept, begin = longrun.price, time.process_time()
    if law is not None:
        longrun.price = LAWS[law]  # type: ignore[assignment]
    until = DAYS * DAY if "budget_amount" in dollars else math.inf
    try:
        s = simulate(
            found,
            policy=policy,
            options=SimulationOptions(
                prove_every=0, interval_s=args.interval, until_s=until, **dollars
            ),
        )
    finally:
        longrun.price = kept
    m, r = s.metrics, s.rounds
    at = np.append(r["at_s"].to_numpy(), math.inf)
    spent = np.append(r["spent"].to_numpy(), m["dollars"])
    day14 = (
        float(np.interp(DAYS * DAY, at[:-1], spent[:-1])) if at[-2] >= DAYS * DAY else m["dollars"]
    )
    hourly = np.diff(np.interp(np.arange(0, DAYS * 24 + 1) * HOUR, r["at_s"], r["spent"]))
    highest = float(
        (s.timeline["used"] * s.timeline["price_per_gpu_hour"])
        .groupby(s.timeline["round"])
        .sum()
        .max()
    )
    out = {
        "workload": name,
        "seed": seed,
        "case": case,
        "policy": policy,
        "budget": budget,
        "jct_h": m["jct_s_mean"] / HOUR,
        "p99_h": m["jct_s_p99"] / HOUR,
        "queue_h": m["queue_s_mean"] / HOUR,
        "finished": m["finished"],
        "jobs": len(found.problem.jobs),
        "spent": day14 / (DAYS * 24) / budget,
        "total": m["dollars"] / (DAYS * 24) / budget,
        "highest": highest / budget,
        "restarts": m["restarts"],
        "failed_rounds": int((r["fallback"].astype(str).str.len() > 12).sum()),
        "rounds": m["rounds"],
        "cpu_s": time.process_time() - begin,
    }
    if case in ("long-run", "hard cap") and seed == 0:
        out["series"] = {"hourly": [round(v / budget, 3) for v in hourly.tolist()]}
    return out


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield every requested simulation, from the folder if it is stored there."""
    args.out.mkdir(parents=True, exist_ok=True)
    for case in args.cases:
        for seed in range(args.seeds):
            for name in NAMES:
                key = "-".join(
                    map(
                        str,
                        (
                            name,
                            seed,
                            case,
                            args.policy,
                            args.jobs,
                            f"{args.factor:g}",
                            f"{args.interval:g}",
                        ),
                    )
                )
                path = args.out / f"{key.replace(' ', '_')}.json"
                if not path.exists():
                    path.write_text(json.dumps(measure(name, seed, case, args)))
                row = json.loads(path.read_text())
                print(
                    f"# {name} {seed} {case}: {row['jct_h']:.3f} h, spent {row['spent']:.4f}, "
                    f"highest {row['highest']:.2f}, {row['cpu_s']:.0f} s",
                    flush=True,
                )
                yield row


def interval(values: list[float]) -> str:
    """Return the mean and the 95 % interval of Student's t."""
    from scipy.stats import t

    v = np.array(values)
    half = t.ppf(0.975, len(v) - 1) * v.std(ddof=1) / math.sqrt(len(v)) if len(v) > 1 else math.nan
    return f"{v.mean():.3g} ± {half:.2g}" if math.isfinite(half) else f"{v.mean():.3g}"


def table(rows: list[dict[str, Any]], name: str) -> str:
    """Return one line per case."""
    lines = [
        (
            "| case | mean completion, h | against the hard cap | p99, h | spent in 14 days /"
            " budget: mean, worst | until all are done / budget | highest hour / budget |"
            " restarts |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    hard = {
        r["seed"]: r["jct_h"] for r in rows if r["workload"] == name and r["case"] == "hard cap"
    }
    for case in dict.fromkeys(r["case"] for r in rows):
        some = [r for r in rows if r["workload"] == name and r["case"] == case]
        ratio = [100 * (r["jct_h"] / hard[r["seed"]] - 1) for r in some if r["seed"] in hard]
        worst = max((r["spent"] for r in some), key=lambda x: abs(x - 1))
        lines.append(
            f"| {case} ({some[0]['policy']}) | {interval([r['jct_h'] for r in some])} | "
            f"{interval(ratio) if ratio else ''} % | {interval([r['p99_h'] for r in some])} | "
            f"{np.mean([r['spent'] for r in some]):.4f}, {worst:.4f} | "
            f"{np.mean([r['total'] for r in some]):.3f} | {max(r['highest'] for r in some):.2f} | "
            f"{np.mean([r['restarts'] for r in some]):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--factor", type=float, default=1.05, help="budget / least dollars")
    parser.add_argument("--interval", type=float, default=600.0)
    parser.add_argument("--policy", default="mip")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES)[:4])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(
        f"# {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy"
        f" {np.__version__}; {args.jobs} jobs in {DAYS} days, seeds 0..{args.seeds - 1}, rounds of"
        f" {args.interval:g} s, policy {args.policy}, budget = {args.factor:g} x the least dollars",
        flush=True,
    )
    rows = list(results(args))
    for name in NAMES:
        print(f"\n{name}\n\n{table(rows, name)}")


if __name__ == "__main__":
    main()
