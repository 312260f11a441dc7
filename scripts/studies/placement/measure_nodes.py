"""Compare plans that are placed on nodes with plans that ignore nodes, in simulations.

    # a JSON line per simulation; those that FILE has are not run again
    python scripts/studies/placement/measure_nodes.py run FILE --seeds 5
    # Markdown for docs/nodes.md
    python scripts/studies/placement/measure_nodes.py table FILE

Both kinds of plan come from the same policy and are placed by the same best fit. A job for which
there are no nodes waits where nodes are ignored; else others move, or it gets another option. The
GPUs of the generators are on nodes of 8, 4 to a rack. Jobs of `bursty` run at the size that their
user asked for only. `odd` are the same jobs with half of the requests of 2, 4 and 8 GPUs changed to
3, 5 and 6. `large` is `bursty` with 1,500 jobs. Jobs of `reproduction` are elastic. Changes are
means over pairs of one seed with bootstrap intervals (allocator/bench/paired.py).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.paired import PairedComparison, compare, interval
from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate
from scripts.studies.results import read_results

NODES_PER_RACK = 4
# generator, loads from light to full, jobs, and GPUs (None: as the generator chooses)
FAMILIES: dict[str, tuple[str, tuple[float, ...], int, int | None]] = {
    "bursty": ("bursty", (0.5, 1.0, 1.4), 200, None),
    "odd": ("bursty", (0.5, 1.0, 1.4), 200, None),
    "reproduction": ("reproduction", (0.24, 0.36), 200, None),
    "large": ("bursty", (0.5, 1.0, 1.4), 1500, None),
}
POLICIES = ("mip", "las", "srtf")
ODD = {2: 3, 4: 5, 8: 6}
KEPT = ("jct_s_mean", "jct_s_p99", "unusable_gpu_hours", "gpu_hours", "moves", "restarts")


def main() -> None:
    """Run simulations or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    rows = read_results(args.file)
    if args.what == "table":
        print_table(rows)
        return
    known = {(r["family"], r["load"], r["policy"], r["seed"], r["placement"]) for r in rows}
    with args.file.open("a") as out:
        for seed in range(args.seeds):
            for family in args.families.split(","):
                for load in FAMILIES[family][1]:
                    workload = make_workload(family, load, seed)
                    for policy in args.policies.split(","):
                        for placement in ("repair", "wait"):
                            key = (family, load, policy, seed, placement)
                            if key not in known:
                                print(json.dumps(run(workload, key)), file=out, flush=True)


def make_workload(family: str, load: float, seed: int) -> Workload:
    """Return a workload of a family."""
    name, _, count, gpus = FAMILIES[family]
    made = generate(
        name, seed=seed, load=load, jobs=count, gpus=gpus, nodes_per_rack=NODES_PER_RACK
    )
    jobs = dict(made.tables["workload.csv"])
    if name == "bursty":
        size = np.array(jobs["requested_gpus"])
        if family == "odd":
            changed = np.random.default_rng(seed).random(len(size)) < 0.5
            odd = np.array([ODD.get(k, k) for k in size.tolist()])
            size = np.where(changed, odd, size)
        jobs |= {"requested_gpus": size, "min_gpus": size, "max_gpus": size}
        jobs |= {"sizes": [(k,) for k in size.tolist()]}
    return replace(made, tables={**made.tables, "workload.csv": jobs}).workload()


def run(workload: Workload, key: tuple[str, float, str, int, str]) -> dict[str, Any]:
    """Return the line of a simulation."""
    family, load, policy, seed, placement = key
    begin = time.process_time()
    options = SimulationOptions(seed=seed, placement=placement, prove_every=0)
    done = simulate(workload, policy=policy, options=options)
    metrics = done.metrics
    return {
        "family": family,
        "load": load,
        "policy": policy,
        "seed": seed,
        "placement": placement,
        **{name: metrics[name] for name in KEPT},
        "finished": metrics["finished"],
        "jobs": metrics["jobs"],
        "cpu_s": round(time.process_time() - begin, 2),
    }


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each family, load and policy: with placement against without."""
    seeds = sorted({r["seed"] for r in rows})
    print(f"{machine()}; seeds {seeds[0]} to {seeds[-1]}\n")
    print(
        "| jobs | load | policy | mean completion, h | change | p99 completion, h | change"
        " | unusable GPU-hours | ignoring nodes | moves |\n" + "|---" * 10 + "|"
    )
    for family, load, policy in dict.fromkeys((r["family"], r["load"], r["policy"]) for r in rows):
        by = {
            (r["seed"], r["placement"]): r
            for r in rows
            if (r["family"], r["load"], r["policy"]) == (family, load, policy)
        }
        pairs = [(by[s, "repair"], by[s, "wait"]) for s in seeds if (s, "wait") in by]
        assert all(a["finished"] == b["finished"] == a["jobs"] for a, b in pairs)
        cells = [family, f"{load:g}", f"`{policy}`"]
        for name in ("jct_s_mean", "jct_s_p99"):
            found = compare([a[name] for a, _ in pairs], [b[name] for _, b in pairs])
            cells += [f"{found.policy_mean / 3600:.2f}", describe_change(found)]
        for i in (0, 1):
            hours = np.array([pair[i]["unusable_gpu_hours"] for pair in pairs])
            low, high = interval(hours)
            cells.append(f"{hours.mean():.1f} [{low:.1f}, {high:.1f}]")
        cells.append(f"{np.mean([a['moves'] for a, _ in pairs]):.0f}")
        print("| " + " | ".join(cells) + " |")


def describe_change(found: PairedComparison) -> str:
    """Return a change in percent with its interval."""
    return f"{found.change_percent:+.1f} % [{found.low:+.1f}, {found.high:+.1f}]"


if __name__ == "__main__":
    main()
