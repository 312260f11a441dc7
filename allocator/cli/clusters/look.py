"""Look at a cluster, and tell it a plan, a job or an answer of Kueue's in its own words."""

import os
import shlex
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from allocator import AllocatorError, UsageError, solve
from allocator.cli.output import Answer, Values, note, show_answer, warn
from allocator.cli.parsing import find_given
from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob, get_cluster
from allocator.clusters.folder import (
    build_snapshot,
    plan_jobs,
    read_details,
    read_planned_jobs,
    write_observation,
)
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import ClientApi, Reader, read_role
from allocator.clusters.slurm.settings import read_plugin, write_sbatch
from allocator.clusters.statements import JOB_FIELDS
from allocator.io.plans import write_files
from allocator.io.progress_sources import FIELDS


def observe(args: Namespace) -> Answer:
    adapter = get_cluster(args.cluster)
    view = adapter.observe(read_request(args))
    warnings = write_observation(view, args.cluster, Path(args.out), list(map(Path, args.add)))
    note(*(f"note: {remark}" for remark in view.notes))
    warn(warnings)
    rows = {file.removesuffix(".csv"): len(table) for file, table in view.tables.items()}
    note(f"written to {args.out}: {', '.join(f'{n} {name}' for name, n in rows.items())}")
    return Answer(
        {"folder": args.out, "rows": rows, "notes": list(view.notes), "warnings": list(warnings)}
    )


def read_request(args: Namespace) -> ObserveRequest:
    """Return what the options LOOK ask for. Raises UsageError."""
    settings: Values = {}
    if args.settings is not None:
        try:
            settings = tomllib.loads(Path(args.settings).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f'"{args.settings}" cannot be read: {error}') from error
    if args.address is not None:
        settings["address"] = args.address
    return ObserveRequest(settings, None if args.answers is None else Path(args.answers))


def plan(args: Namespace) -> Answer:
    adapter = get_cluster(args.cluster)
    folder = Path(args.snapshot)
    details = read_details(folder, args.cluster)
    planned = folder / "plan" if args.plan is None else Path(args.plan)
    files = adapter.commands(read_planned_jobs(folder, planned), details)
    if args.out is None:
        return Answer({"files": files}, "".join(files.values()))
    written = [str(path) for path in write_files(Path(args.out), files).values()]
    note(*(f"written to {path}" for path in written))
    return Answer({"written": written})


def submit_slurm(args: Namespace) -> Answer:
    if args.plugin:
        plugin = read_plugin()
        return Answer({"lua": plugin}, plugin)
    words = write_sbatch(find_given(args, (*JOB_FIELDS, *FIELDS)), args.sbatch)
    if args.show:
        return Answer({"command": words}, f"{shlex.join(words)}\n")
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise AllocatorError(f"sbatch cannot be run: {error.strerror}") from error


def rbac(args: Namespace) -> Answer:
    roles = read_role(args.use)
    return Answer({"use": args.use, "yaml": roles}, roles)


def admit(args: Namespace) -> Answer:
    reader = Reader(ClientApi(args.context, args.kubeconfig))
    while True:
        try:
            lines = answer_checks(reader, lambda view: decide(view, args.objective), time.time())
        except AllocatorError as error:  # the next round looks again
            if args.once or isinstance(error, UsageError):
                raise
            lines = [f"nothing decided: {error}"]
        note(*lines)
        answer = Answer({"answers": list(lines)})
        if args.once:
            return answer
        show_answer(answer, args)
        time.sleep(args.every)


def decide(view: ClusterView, objective: str | None) -> Sequence[PlannedJob]:
    """Return what a plan for the cluster gives every job."""
    if not view.tables["jobs.csv"] or not view.tables["pools.csv"]:
        return ()
    plan = solve(build_snapshot("cluster", view), objective=objective)
    return plan_jobs(plan.to_dict()["jobs"])
