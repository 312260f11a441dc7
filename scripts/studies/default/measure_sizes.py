"""Where sizes come from if nobody knows them: models, tenants, Gittins' index.

    # a JSON line per simulation; those that FILE has are not run again
    python scripts/studies/default/measure_sizes.py run FILE --first 0 --seeds 2
    # workloads in folders, e.g. what `allocator import philly` wrote
    python scripts/studies/default/measure_sizes.py run FILE --folders WORKLOAD ...
    # Markdown for docs/learned.md
    python scripts/studies/default/measure_sizes.py table FILE

Objective `flow`, unknown sizes, learned speeds. The estimates are in size_sources.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.workloads import generate
from allocator.domain.problem import Problem
from allocator.domain.workload import Workload
from allocator.io.workloads import read_workload
from allocator.loop import stability
from allocator.options import instance_building
from allocator.performance.sizes import estimate_sizes
from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.cluster import TraceDrivenCluster
from allocator.valuation import values
from formulations.objectives.context import Facts
from scripts.studies.default.measure_learned import Place
from scripts.studies.default.replacing import replaced
from scripts.studies.default.size_sources import FinishedOfTenants, estimate_with_groups
from scripts.studies.results import read_results

PLACES = (
    Place("heterogeneous", 40, 320, 60),
    Place("bursty", 1.4, 200, 60),
    Place("mixed", 1.3, 150, 60),
)
FOLDERS_INTERVAL_S = 300.0
DEFAULT = "jobs of the model (the default)"
KNOWN = "sizes known, valued as if they were not"
SOURCES = {
    DEFAULT: estimate_sizes,
    "jobs of the model and of the tenant": partial(
        estimate_with_groups, by_tenant=True, by_index=False
    ),
    "Gittins' index, jobs of the model": partial(
        estimate_with_groups, by_tenant=False, by_index=True
    ),
    "Gittins' index, of the model and of the tenant": partial(
        estimate_with_groups, by_tenant=True, by_index=True
    ),
    KNOWN: estimate_sizes,
}


def main() -> None:
    """Run simulations or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--places", default="0,1,2", help="families by number (default: all)")
    parser.add_argument("--folders", type=Path, nargs="*", help="workloads in place of families")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=2, help="how many (default: 2)")
    args = parser.parse_args()
    rows = read_results(args.file)
    if args.what == "table":
        table(rows)
        return
    known = {(r["place"], r["source"], r["seed"]) for r in rows}
    for place, seed, workload, interval_s in worlds(args):
        for source in SOURCES:
            if (place, source, seed) not in known:
                row = measure(workload, source, seed, interval_s)
                with args.file.open("a") as out:
                    print(json.dumps({"place": place} | row), file=out)


def worlds(args: argparse.Namespace) -> Iterator[tuple[str, int, Workload, float]]:
    """Yield name, seed, workload and interval of what is to be simulated."""
    for number, folder in enumerate(args.folders or ()):
        yield "folders, 300 s", number, read_workload(folder), FOLDERS_INTERVAL_S
    if args.folders is None:
        for seed in range(args.first, args.first + args.seeds):
            for place in (PLACES[int(i)] for i in args.places.split(",")):
                made = generate(place.family, seed=seed, load=place.load, jobs=place.jobs)
                yield place.name, seed, made.workload(), place.interval_s


def measure(workload: Workload, source: str, seed: int, interval_s: float) -> dict[str, Any]:
    """Return the metrics of one simulation."""
    options = SimulationOptions(
        prove_every=0,
        seed=seed,
        interval_s=interval_s,
        objective="flow",
        sizes="known" if source == KNOWN else "unknown",
        speeds="learned",
        until_s=workload.problem.now_s + 30 * 86_400.0,
    )
    with sized_by(source):
        found = simulate(workload, policy="mip", options=options).metrics
    return {
        "source": source,
        "seed": seed,
        "mean": found["jct_s_mean"],
        "p99": found["jct_s_p99"],
        "restarts": found["restarts"] / len(workload.problem.jobs),
    }


@contextmanager
def sized_by(source: str) -> Iterator[None]:
    """Take the sizes from the source for a while."""
    with ExitStack() as stack:
        for owner in (instance_building, stability):
            stack.enter_context(replaced(owner, "estimate_sizes", SOURCES[source]))
        stack.enter_context(replaced(TraceDrivenCluster, "_list_finished", list_with_tenants))
        if source == KNOWN:
            stack.enter_context(replaced(values, "build_facts", build_unsure_facts))
        yield


def list_with_tenants(cluster: TraceDrivenCluster) -> FinishedOfTenants:
    """Return the jobs of the workload that are done, with their tenants."""
    jobs = cluster._problem.jobs
    done = np.flatnonzero(~np.isnan(cluster.world.finished_s))
    return FinishedOfTenants(jobs.model[done], jobs.total_work[done], jobs.tenant[done])


def build_unsure_facts(problem: Problem, table: RateTable) -> Facts:
    """Return the facts of a problem, its sizes taken for uncertain ones."""
    return replace(BUILD_FACTS(problem, table), sizes_known=False)


BUILD_FACTS = values.build_facts


def table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the change of each source against the default on the same seeds."""
    print(f"Machine: {machine()}.\n")
    print(
        "| workload, load, rounds | sizes from | seeds | mean, min | change, % | by seed"
        " | p99, % | restarts a job |\n" + "|---" * 8 + "|"
    )
    by = {(r["place"], r["source"], r["seed"]): r for r in rows}
    for place in dict.fromkeys(r["place"] for r in rows):
        seeds = sorted({r["seed"] for r in rows if r["place"] == place})
        for source in SOURCES:
            common = [s for s in seeds if {(place, source, s), (place, DEFAULT, s)} <= set(by)]
            if common:
                pairs = [(by[place, source, s], by[place, DEFAULT, s]) for s in common]
                print(f"| {place} | {source} | {len(common)} | {_cells(pairs)} |")


def _cells(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return the cells of a source; each pair has its row and that of the default."""
    mean, p99 = (np.array([[x[k] for x in pair] for pair in pairs]) for k in ("mean", "p99"))
    change = 100.0 * (mean[:, 0] / mean[:, 1] - 1.0)
    total = 100.0 * (mean[:, 0].sum() / mean[:, 1].sum() - 1.0)
    tail = 100.0 * (p99[:, 0].sum() / p99[:, 1].sum() - 1.0)
    restarts = np.mean([mine["restarts"] for mine, _ in pairs])
    each = f"{change.min():+.1f} to {change.max():+.1f}"
    return f"{mean[:, 0].mean() / 60:.1f} | {total:+.1f} | {each} | {tail:+.1f} | {restarts:.2f}"


if __name__ == "__main__":
    main()
