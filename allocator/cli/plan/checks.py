"""`allocator validate`, `schema` and `promise`: the faults of an input, its form, its deadlines."""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from allocator import InvalidInput, read_snapshot, read_workload, validate as check
from allocator.cli.output import (
    SCHEMA_VERSION,
    Answer,
    Table,
    Values,
    describe_fault,
    format_csv,
    format_json,
    text,
    warn,
)
from allocator.cli.sources import read_problem
from allocator.domain.problem import Problem
from allocator.io import json_schema
from allocator.io.workloads import is_workload


def validate(args: Namespace) -> Answer:
    changes = []
    try:
        if is_workload(args.snapshot):
            workload = read_workload(args.snapshot)
            problem, changes = workload.problem, [("changes", len(workload.changes))]
        else:
            problem = check(read_snapshot(args.snapshot))
    except InvalidInput as error:
        if args.format == "json":
            print(format_json(_findings(map(describe_fault, error.faults), error.warnings)))
        raise
    warn(problem.warnings)
    counts = (
        ("jobs", len(problem.jobs)),
        ("pools", len(problem.pools)),
        ("GPUs", int(problem.pools.gpus.sum())),
        ("tenants", len(problem.tenants)),
        ("models", len(problem.models)),
        ("rates", len(problem.rates.rate)),
        *changes,
    )
    numbers = ", ".join(f"{n} {name[:-1] if n == 1 else name}" for name, n in counts)
    return Answer(_findings((), problem.warnings), f"valid: {numbers}\n")


def _findings(faults: Iterable[Values], warnings: Sequence[str]) -> Values:
    listed = list(faults)
    return {"valid": not listed, "faults": listed, "warnings": list(warnings)}


def promise(args: Namespace) -> Answer:
    from allocator.engine.promises import promises

    problem = read_problem(args.snapshot)
    result = promises(problem)
    jobs = [a.to_dict() for a in result.jobs]
    document = {
        "now_s": problem.now_s,
        "wanted": result.wanted,
        "kept": result.kept,
        "most": result.most,
        "jobs": jobs,
    }
    rows = format_csv(jobs, 10)
    return Answer(
        document,
        _show(result, problem),
        rows,
        files={"promises.csv": rows, "promises.json": document},
    )


def _show(result: Any, problem: Problem) -> Iterator[str | Table]:
    def hours(at: float | None) -> str:
        return text(None if at is None else (at - problem.now_s) / 3600.0)

    if not result.wanted:
        yield (
            "no job has a deadline (column deadline_s of jobs.csv); --format csv has the earliest"
            " to offer to each"
        )
        return
    rows = [
        (
            a.job_id,
            "yes" if a.promised else "no",
            *(hours(at) for at in (a.due_s, a.done_s, a.earliest_s)),
            *(a.pool, a.gpus_now, a.most_gpus),
            a.reason or "-",
        )
        for a in sorted(result.jobs, key=lambda a: (a.due_s or 0.0, a.job_id))
        if a.promised is not None
    ]
    yield (
        f"{result.kept} of {result.wanted} deadlines can be promised together; no plan keeps more"
        f" than {result.most}"
    )
    what = ("job", "promised", ">due in h", ">done in h", ">could be in h", "pool", ">GPUs now")
    yield Table("deadlines", (*what, ">most", "reason"), rows)


def schema(args: Namespace) -> int:
    document = getattr(json_schema, f"{args.what}_schema")()
    print(json.dumps(document | {"schema_version": SCHEMA_VERSION}, indent=2))
    return 0
