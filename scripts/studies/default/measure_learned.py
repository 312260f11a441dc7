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
from scripts.studies.default.learned_parts import DEFAULT, PARTS, Part
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
    print(f"Machine: {machine()}; seeds {seeds[0]} to {seeds[-1]}.")
    _print_rows(
        "workload, load, rounds | seeds | mean of `mip`, min | `sia` | change, %"
        " | p99 of `mip`, min | `sia` | change, % | restarts a job: `mip` | `sia`",
        [(x.name, _cells_of_sia(pairs)) for x in PLACES if (pairs := _pairs(rows, x, "sia"))],
    )
    places = [x for x in PLACES if any(_pairs(rows, x, p) for p in BASELINES if p != "sia")]
    _print_rows(
        f"mean of `mip` against it, % | {' | '.join(x.name for x in places)}",
        [(p, " | ".join(_change(rows, x, p) for x in places)) for p in BASELINES if p != "sia"],
    )
    _print_rows(
        "changed | workload, load, rounds | seeds | mean, % | p99, % | restarts a job | before",
        [
            (part.name, f"{x.name} | {_cells_of_part(pairs)}")
            for part in PARTS[1:]
            for x in PLACES
            if (pairs := _pairs_of_part(rows, x, part))
        ],
    )
    for part in PARTS[1:]:
        found = [pairs for x in PLACES if (pairs := _pairs_of_part(rows, x, part))]
        common = set.intersection(*({a["seed"] for a, _ in x} for x in found)) if found else set()
        if len(found) > 1 and len(common) > 1:
            mine, base = (
                [[x[i]["mean"] for x in pairs if x[0]["seed"] in common] for pairs in found]
                for i in (0, 1)
            )
            x = compare_pooled(mine, base)
            print(
                f"\n{part.name}, {len(found)} workloads, {len(common)} seeds:"
                f" mean {x.change_percent:+.2f} % ({x.low:+.2f} to {x.high:+.2f})"
            )


def _print_rows(head: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print a table in Markdown if it has rows with any cells."""
    if any(cells.strip(" |") for _, cells in rows):
        print(f"\n| {head} |\n{'|---' * (head.count(' | ') + 1)}|")
        for name, cells in rows:
            print(f"| {name} | {cells} |")


def _by_seed(
    rows: Sequence[Mapping[str, Any]], place: str, policy: str, part: str
) -> dict[int, Mapping[str, Any]]:
    wanted = (place, policy, part)
    return {r["seed"]: r for r in rows if (r["place"], r["policy"], r["part"]) == wanted}


def _pairs(
    rows: Sequence[Mapping[str, Any]], place: Place, policy: str
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the rows of the default and of a policy at a place, seed by seed."""
    ours = _by_seed(rows, place.name, OURS, DEFAULT)
    theirs = _by_seed(rows, place.name, policy, DEFAULT)
    return [(ours[s], theirs[s]) for s in sorted(set(ours) & set(theirs))]


def _pairs_of_part(
    rows: Sequence[Mapping[str, Any]], place: Place, part: Part
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the rows of a part and of its base at a place, seed by seed."""
    mine, base = (_by_seed(rows, place.name, OURS, name) for name in (part.name, part.against))
    return [(mine[s], base[s]) for s in sorted(set(mine) & set(base))]


def _change(rows: Sequence[Mapping[str, Any]], place: Place, policy: str) -> str:
    """Return the change of the mean of the default against a policy, and the number of seeds."""
    pairs = _pairs(rows, place, policy)
    if not pairs:
        return ""
    ours, theirs = (np.mean([pair[i]["mean"] for pair in pairs]) for i in (0, 1))
    return f"{100.0 * (ours / theirs - 1.0):+.1f} ({len(pairs)})"


def _cells_of_sia(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return means, p99, restarts of the default and of Sia, and the changes with intervals."""
    cells = [str(len(pairs))]
    for metric, digits in (("mean", 1), ("p99", 0)):
        ours, theirs = ([pair[i][metric] for pair in pairs] for i in (0, 1))
        cells += [f"{np.mean(x) / 60:.{digits}f}" for x in (ours, theirs)]
        cells.append(_with_interval(ours, theirs))
    cells += [f"{np.mean([pair[i]['restarts'] for pair in pairs]):.2f}" for i in (0, 1)]
    return " | ".join(cells)


def _with_interval(mine: Sequence[float], base: Sequence[float]) -> str:
    """Return the change of the mean over seeds in %, and the 95 % interval of changes by seed."""
    change = f"{100.0 * (np.mean(mine) / np.mean(base) - 1.0):+.1f}"
    if len(mine) < 2:
        return change
    x = compare(mine, base)
    return f"{change} ({x.low:+.1f} to {x.high:+.1f})"


def _cells_of_part(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return the cells of a part; each pair has its row and that of its base."""
    mine, base = (
        {k: [pair[i][k] for pair in pairs] for k in ("mean", "p99", "restarts")} for i in (0, 1)
    )
    changes = " | ".join(_with_interval(mine[k], base[k]) for k in ("mean", "p99"))
    restarts = (f"{np.mean(x['restarts']):.2f}" for x in (mine, base))
    return f"{len(pairs)} | {changes} | {' | '.join(restarts)}"


if __name__ == "__main__":
    main()
