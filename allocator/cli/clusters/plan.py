"""`allocator plan`: a plan in the words of the cluster that it is for."""

from __future__ import annotations

import argparse
from pathlib import Path

from allocator.cli.output import note, show_result
from allocator.cli.parsing import command, option

EXAMPLES = """
allocator plan look --as slurm                            the plan in look/plan, as a script to read
allocator plan look --as slurm --plan other --out files
"""
ABOUT = """\
Write the plan of an observed snapshot as commands or patches for its cluster, in the order in which
they may be run. Nothing is run."""


@command(
    "plan",
    "a plan as commands for a cluster",
    ABOUT,
    EXAMPLES,
    option("snapshot", "DIR", "folder of `allocator observe`"),
    option(
        "--as",
        "CLUSTER",
        "kind of the cluster: slurm ...; an unknown name lists all",
        required=True,
        dest="cluster",
    ),
    option("--plan", "DIR", "folder of `allocator solve --out` (default: DIR/plan)"),
    option("--out", "DIR", "write the files there (default: all on standard output)"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.clusters.folder import read_details, read_planned_jobs
    from allocator.clusters.registry import get_cluster
    from allocator.io.plans import write_files

    adapter = get_cluster(args.cluster)
    folder = Path(args.snapshot)
    details = read_details(folder, args.cluster)
    plan = folder / "plan" if args.plan is None else Path(args.plan)
    files = adapter.commands(read_planned_jobs(folder, plan), details)
    if args.out is None:
        show_result(args.format, {"files": files}, lambda: print(*files.values(), sep="", end=""))
        return 0
    written = [str(path) for path in write_files(Path(args.out), files).values()]
    note(*(f"written to {path}" for path in written))
    show_result(args.format, {"written": written})
    return 0
