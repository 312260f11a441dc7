"""The default where nobody knows: sizes unknown, speeds learned while jobs run.

    # a JSON line per simulation; those that FILE has are not run again
    python scripts/studies/default/measure_learned.py run FILE --first 100 --seeds 10
    python scripts/studies/default/measure_learned.py run FILE \\
        --policies greedy,afs --first 100 --seeds 2
    # parts of the default left out, alone and changed, by their numbers in learned_parts.py
    python scripts/studies/default/measure_learned.py ablation FILE --first 100 --seeds 5
    python scripts/studies/default/measure_learned.py ablation FILE --places 2,3 --parts 0,21 \\
        --first 200 --seeds 5
    # Markdown for docs/learned.md
    python scripts/studies/default/measure_learned.py table FILE
    # CPU time of rounds with a thousand active jobs
    python scripts/studies/default/measure_learned.py time

Every policy gets the same jobs, the same truth, the same observations and the same fits
(allocator/simulator/speed_beliefs.py). Sizes are unknown to all, and what is expected of them is
the same for all. Jobs arrive for eight hours on the cluster of Sia (`heterogeneous`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.paired import compare, compare_pooled
from allocator.bench.workloads import generate
from allocator.loop.rounds import RoundOutcome
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.run import SimulationState
from scripts.studies.default.learned_parts import DEFAULT, PARTS
from scripts.studies.results import read_results

BASELINES = (
    "sia",
    "greedy",
    "afs",
    "ffdl",
    "equal",
    "srtf",
    "las",
    "maxmin",
    "static",
    "greedy-naive",
)
OURS = "mip"


@dataclass(frozen=True)
class Place:
    """A family of workloads at a load, with so many jobs, in rounds of interval_s."""

    family: str
    load: float
    jobs: int
    interval_s: float

    @property
    def name(self) -> str:
        """Return the name in the tables."""
        return f"{self.family}, {self.load:g}, {self.interval_s:g} s"


HEAVY = Place("heterogeneous", 40, 320, 60)
PLACES = (
    Place("heterogeneous", 20, 160, 60),
    Place("heterogeneous", 30, 240, 60),
    HEAVY,
    Place("heterogeneous", 50, 400, 60),
    Place("heterogeneous", 40, 320, 300),
    Place("bursty", 1.4, 200, 60),
    Place("bursty", 1.4, 200, 300),
    Place("mixed", 1.3, 150, 60),
    Place("mixed", 1.3, 150, 300),
)


def main() -> None:
    """Run simulations or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "ablation", "table", "time"))
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--policies", default=f"{OURS},sia", help="with commas (default: mip,sia)")
    parser.add_argument(
        "--places", help="places by number, with commas (default: all; of an ablation 2)"
    )
    parser.add_argument("--parts", help="of an ablation, by number, with commas (default: all)")
    parser.add_argument("--first", type=int, default=100, help="first seed (default: 100)")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--workers", type=int, default=2, help="simulations at a time (default: 2)")
    args = parser.parse_args()
    if args.what == "time":
        time_crowd(args.first)
        return
    if args.file is None:
        parser.error(f"{args.what} needs FILE")
    rows = read_results(args.file)
    if args.what == "table":
        table(rows)
        return
    seeds = range(args.first, args.first + args.seeds)
    places = [PLACES[i] for i in numbers(args.places, range(len(PLACES)))]
    tasks = [
        (place, p, 0, seed) for seed in seeds for place in places for p in args.policies.split(",")
    ]
    if args.what == "ablation":
        places = [PLACES[i] for i in numbers(args.places, (PLACES.index(HEAVY),))]
        parts = numbers(args.parts, range(len(PARTS)))
        tasks = [(place, OURS, part, seed) for seed in seeds for place in places for part in parts]
    known = {(r["place"], r["policy"], r["part"], r["seed"]) for r in rows}
    tasks = [t for t in tasks if (t[0].name, t[1], PARTS[t[2]].name, t[3]) not in known]
    with ProcessPoolExecutor(args.workers) as pool, args.file.open("a") as out:
        for row in pool.map(measure, *zip(*tasks, strict=True)):
            print(json.dumps(row), file=out, flush=True)


def numbers(given: str | None, otherwise: Sequence[int]) -> Sequence[int]:
    """Return the numbers of an argument with commas."""
    return otherwise if given is None else list(map(int, given.split(",")))


def measure(place: Place, policy: str, part: int, seed: int) -> dict[str, Any]:
    """Return the metrics of one simulation, and CPU seconds of a round with its decision."""
    p = PARTS[part]
    workload = generate(place.family, seed=seed, load=place.load, jobs=place.jobs).workload()
    options = SimulationOptions(
        prove_every=0,
        seed=seed,
        interval_s=place.interval_s,
        objective=p.objective,
        sizes="unknown",
        speeds="learned",
        until_s=workload.problem.now_s + 30 * 86_400.0,
    )
    options = replace(options, **p.options)
    begin = time.process_time()
    with nullcontext() if p.patch is None else p.patch():
        found = simulate(workload, policy=policy, options=options)
    m = found.metrics
    return {
        "place": place.name,
        "policy": policy,
        "part": p.name,
        "seed": seed,
        "mean": m["jct_s_mean"],
        "p99": m["jct_s_p99"],
        "restarts": m["restarts"] / place.jobs,
        "unfinished": len(found.unfinished),
        "cpu_s": (time.process_time() - begin) / m["rounds"],
    }


def time_crowd(seed: int, jobs: int = 1100, crowd: int = 900) -> None:
    """Print CPU seconds of rounds with a crowd: observations, fits and the decision."""
    workload = generate("heterogeneous", seed=seed, load=1000, jobs=jobs).workload()
    last, rounds = time.process_time(), list[tuple[int, float]]()

    def note(state: SimulationState, _: RoundOutcome) -> None:
        nonlocal last
        rounds.append((len(state.cluster.world.active), time.process_time() - last))
        last = time.process_time()

    options = SimulationOptions(
        prove_every=0,
        seed=seed,
        interval_s=60,
        objective="flow",
        sizes="unknown",
        speeds="learned",
        until_s=float(workload.problem.jobs.submitted_s.max()) + 600.0,
    )
    simulate(workload, policy=OURS, options=options, on_round=note)
    active, cpu_s = np.array([r for r in rounds if r[0] >= crowd]).T
    print(
        f"{len(cpu_s)} rounds with {active.mean():.0f} active jobs: mean {cpu_s.mean():.3f} CPU s,"
        f" largest {cpu_s.max():.3f}"
    )


def table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the changes against every baseline, and the effect of each part."""
    seeds = sorted({r["seed"] for r in rows})
    print(f"Machine: {machine()}; seeds {seeds[0]} to {seeds[-1]}.\n")
    print(
        "| workload, load, rounds | policy | seeds | mean, min | p99, min | restarts a job"
        " | CPU ms a round | mean of `mip` against it, % | p99, % |\n" + "|---" * 9 + "|"
    )
    for place in PLACES:
        ours = _by_seed(rows, place.name, OURS, DEFAULT)
        for policy in (OURS, *BASELINES):
            theirs = _by_seed(rows, place.name, policy, DEFAULT)
            common = sorted(set(ours) & set(theirs))
            if common:
                pairs = [(ours[s], theirs[s]) for s in common]
                print(f"| {place.name} | {policy} | {_cells(pairs, policy == OURS)} |")
    print(
        "\n| workload, load, rounds | changed | seeds | mean, % | p99, % | restarts a job"
        " | before |\n" + "|---" * 7 + "|"
    )
    for place in PLACES:
        for part in PARTS:
            base = _by_seed(rows, place.name, OURS, part.against)
            mine = _by_seed(rows, place.name, OURS, part.name)
            common = sorted(set(base) & set(mine))
            if common and part.name != DEFAULT:
                pairs = [(mine[s], base[s]) for s in common]
                print(f"| {place.name} | {part.name} | {_cells_of_part(pairs)} |")
    _print_pooled(rows)


def _print_pooled(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the changes of parts that were measured at several places, over all of them."""
    for part in PARTS[1:]:
        pairs = [
            (_by_seed(rows, p.name, OURS, part.name), _by_seed(rows, p.name, OURS, part.against))
            for p in PLACES
        ]
        pairs = [(mine, base) for mine, base in pairs if mine and base]
        common = sorted(set.intersection(*({*a} & {*b} for a, b in pairs))) if pairs else []
        if len(pairs) < 2 or len(common) < 2:
            continue
        mine, base = ([[x[i][s]["mean"] for s in common] for x in pairs] for i in (0, 1))
        x = compare_pooled(mine, base)
        print(
            f"\n{part.name}, {len(pairs)} places, {len(common)} seeds:"
            f" mean {x.change_percent:+.2f} % ({x.low:+.2f} to {x.high:+.2f})"
        )


def _by_seed(
    rows: Sequence[Mapping[str, Any]], place: str, policy: str, part: str
) -> dict[int, Mapping[str, Any]]:
    wanted = (place, policy, part)
    return {r["seed"]: r for r in rows if (r["place"], r["policy"], r["part"]) == wanted}


def _cells(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], is_ours: bool) -> str:
    """Return the cells of a policy: its own figures, and the change of ours against it."""
    theirs = {k: np.array([b[k] for _, b in pairs]) for k in ("mean", "p99", "restarts", "cpu_s")}
    ours = {k: np.array([a[k] for a, _ in pairs]) for k in ("mean", "p99")}
    own = (
        f"{len(pairs)} | {theirs['mean'].mean() / 60:.1f} | {theirs['p99'].mean() / 60:.0f}"
        f" | {theirs['restarts'].mean():.2f} | {1e3 * theirs['cpu_s'].mean():.0f}"
    )
    if is_ours:
        return f"{own} | | "
    change = {k: 100.0 * (ours[k].mean() / theirs[k].mean() - 1.0) for k in ours}
    spread = ""
    if len(pairs) > 1:
        x = compare(ours["mean"].tolist(), theirs["mean"].tolist())
        spread = f" ({x.low:+.1f} to {x.high:+.1f})"
    return f"{own} | {change['mean']:+.1f}{spread} | {change['p99']:+.1f}"


def _cells_of_part(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return the cells of a part; each pair has its row and that of its base."""
    mine, base = (
        {k: np.array([pair[i][k] for pair in pairs]) for k in ("mean", "p99", "restarts")}
        for i in (0, 1)
    )
    mean, p99 = (100.0 * (mine[k].mean() / base[k].mean() - 1.0) for k in ("mean", "p99"))
    spread = ""
    if len(pairs) > 1:
        x = compare(mine["mean"].tolist(), base["mean"].tolist())
        spread = f" ({x.low:+.1f} to {x.high:+.1f})"
    return (
        f"{len(pairs)} | {mean:+.1f}{spread} | {p99:+.1f} | {mine['restarts'].mean():.2f}"
        f" | {base['restarts'].mean():.2f}"
    )


if __name__ == "__main__":
    main()
