"""`allocator generate`: write a workload folder made by one of the seeded generators."""

from __future__ import annotations

import argparse
from pathlib import Path

from allocator.cli.output import note, show_result
from allocator.cli.parsing import command, number, option, parse_integer
from allocator.errors import UsageError

EXAMPLES = """
allocator generate                                               the generators, a line each
allocator generate bursty --out traces/bursty --seed 1 --load 1.4
allocator generate reproduction --out traces/paper --jobs 250
"""


def _listing() -> str:
    from allocator.bench.workloads.registry import GENERATORS

    return "\n".join(
        f"  {g.name:<13} {g.about}\n{'':<16}{g.jobs} jobs, load {g.load:g} ({g.unit})"
        for g in GENERATORS.values()
    )


@command(
    "generate",
    "a synthetic workload to simulate",
    "Write a workload folder. The same name, seed, load, jobs and GPUs give the same bytes.",
    EXAMPLES,
    option("name", "NAME", "a generator; without it they are listed", nargs="?"),
    option("--out", "DIR", "folder to write, new or empty", Path),
    option("--seed", "N", "seed of every draw (default: 0)", parse_integer(0), 0),
    option("--load", "X", "how busy; its unit is the generator's, see below", number()),
    option("--jobs", "N", "number of jobs", parse_integer(1)),
    option("--gpus", "N", "GPUs of the cluster, about", parse_integer(1, 10_000_000)),
    option(
        "--nodes-per-rack",
        "N",
        "put the GPUs on nodes (nodes.csv), N of them in a rack",
        parse_integer(1, 10_000_000),
    ),
    epilog="generators:\n" + _listing(),
)
def call(args: argparse.Namespace) -> int:
    if args.name is None:
        from allocator.bench.workloads.registry import GENERATORS

        known = [
            {"name": g.name, "about": g.about, "jobs": g.jobs, "load": g.load, "unit": g.unit}
            for g in GENERATORS.values()
        ]
        show_result(args.format, {"generators": known}, lambda: print(_listing()))
        return 0
    from allocator.bench.workloads import generate as make

    made = make(
        args.name,
        seed=args.seed,
        load=args.load,
        jobs=args.jobs,
        gpus=args.gpus,
        nodes_per_rack=args.nodes_per_rack,
    )
    if args.out is None:
        raise UsageError("generate needs --out DIR, a new or empty folder")
    made.write(args.out)
    count = len(made.tables["workload.csv"]["job_id"])
    gpus = sum(made.tables["pools.csv"]["gpus"])
    note(f"{args.out}: {count} jobs submitted in {made.window_s / 3_600:.1f} hours, {gpus} GPUs")
    show_result(
        args.format,
        {"folder": str(args.out), "jobs": count, "gpus": gpus, "window_s": made.window_s},
    )
    return 0
