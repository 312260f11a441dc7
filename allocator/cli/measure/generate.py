"""`allocator generate`: write a workload folder made by one of the seeded generators."""

from argparse import Namespace

from allocator import UsageError
from allocator.bench.workloads import GENERATORS, generate as make
from allocator.cli.measure.commands import list_generators
from allocator.cli.output import Answer, note, pick


def generate(args: Namespace) -> Answer:
    if args.name is None:
        names = ("name", "about", "jobs", "load", "unit")
        known = [pick(g, *names) for g in GENERATORS.values()]
        return Answer({"generators": known}, f"{list_generators()}\n")
    options = ("name", "seed", "load", "jobs", "gpus", "nodes_per_rack")
    workload = make(**pick(args, *options))
    if args.out is None:
        raise UsageError("generate needs --out DIR, a new or empty folder")
    workload.write(args.out)
    document = {
        "folder": str(args.out),
        "jobs": len(workload.tables["workload.csv"]["job_id"]),
        "gpus": sum(workload.tables["pools.csv"]["gpus"]),
        "window_s": workload.window_s,
    }
    note(
        f"{args.out}: {document['jobs']} jobs submitted in {workload.window_s / 3_600:.1f} hours,"
        f" {document['gpus']} GPUs"
    )
    return Answer(document)
