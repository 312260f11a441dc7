"""A plan as a shell script of `ray job` for the operator of a Ray, who reads it before it is run.

Jobs that change are stopped, and submitted again under another id with the same entrypoint. Each
step is tried only if the job is as it was when it was looked at.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from allocator.clusters.adapter import PlannedJob
from allocator.clusters.ray.api import ADDRESS
from allocator.clusters.ray.resources import NODE_ID
from allocator.clusters.scripts import CHANGES, write_head
from allocator.objects import Record

SHORT = ("capacity", "fragmented", "outranked", "exceeds_cluster")  # more GPUs would help
_NUMBERED = re.compile(r"(.*)\.r(\d+)")


def write_script(jobs: Sequence[PlannedJob], details: Record) -> str:
    """Return the script that carries a plan out on the Ray that was observed.

    Parameters
    ----------
    jobs : sequence of PlannedJob
        What the plan gives every job of the snapshot.
    details : mapping of str to object
        Details of the look.
    """
    known = details["jobs"]
    mine = [job for job in jobs if job.job_id in known]
    running = [job for job in mine if known[job.job_id]["status"] == "RUNNING"]
    changes = [job for job in running if job.action in CHANGES]
    impossible = [job for job in changes if known[job.job_id]["has_gpus"] and len(job.nodes) != 1]
    changes = [job for job in changes if job not in impossible]
    pauses = [job for job in running if job.action == "pause"]
    stops = [shlex.quote(job.job_id) for job in (*changes, *pauses)]
    address = {"@ADDRESS@": shlex.quote(details["address"] or ADDRESS)}
    lines = [write_head(__package__ or "", "the Ray", mine, details, address)]
    lines += [f"expect {ident}" for ident in stops]
    lines += ['[ $faults = 0 ] || { echo "ray.sh: nothing was changed; look again" >&2; exit 1; }']
    lines += [
        f"# {job.job_id}: an entrypoint has the GPUs of one node only; it is left as it is"
        for job in impossible
    ]
    lines.append("\n# 1. jobs that change or pause write a checkpoint and end")
    lines += [f"stop {ident}" for ident in stops]
    lines.append("\n# 2. they start with other GPUs, under another id")
    for job in changes:
        lines += [f"# {job.job_id}: {job.action}, {_describe(job)}", _submit(job, details)]
    lines += [
        f"# {job.job_id}: paused until somebody submits it again:\n# {_submit(job, details)}"
        for job in pauses
    ]
    lines.append("\n# 3. jobs that wait are Ray's to start; it ends none that waits")
    for job in mine:
        if known[job.job_id]["status"] == "PENDING":
            words = f"it waits ({job.reason}: {job.detail or ''})"
            if job.action == "start":
                words = f"the plan starts it: {_describe(job)}; Ray picks its node"
            lines.append(f"# {job.job_id}: {words}")
    waiting = [job for job in mine if job.action in ("wait", "pause") and job.reason in SHORT]
    if waiting:
        # Ray's autoscaler wants all bundles that are to fit at a time, those in use included
        used = [gpus for job in mine for gpus in (job.nodes or {"": job.gpus}).values() if gpus]
        wanted = [known[job.job_id]["gpus"] for job in waiting]
        bundles = json.dumps([{"GPU": gpus} for gpus in (*used, *wanted)])
        names = ", ".join(job.job_id for job in waiting[:5]) + (" ..." if len(waiting) > 5 else "")
        lines += [
            f"\n# 4. GPUs for all of it, {names} included; only a cluster with an autoscaler adds"
            " nodes. To withdraw it: request '[]'",
            f"request {shlex.quote(bundles)}",
        ]
    return "\n".join(lines) + "\nexit $faults\n"


def _describe(job: PlannedJob) -> str:
    nodes = " ".join(f"{node}:{gpus}" for node, gpus in job.nodes.items())
    return f"{job.previous_gpus} -> {job.gpus} GPUs on {nodes or job.pool}"


def _submit(job: PlannedJob, details: Record) -> str:
    """Return the command that submits a job again: with the GPUs of the plan, or those it had."""
    said = details["jobs"][job.job_id]
    environment, options = dict(said["runtime_env"]), []
    if said["has_gpus"]:
        options += ["--entrypoint-num-gpus", str(job.gpus or job.previous_gpus)]
    if job.gpus:
        nodes = "|".join(f"{node}:{gpus}" for node, gpus in job.nodes.items())
        variables = {"ALLOCATOR_GPUS": str(job.gpus), "ALLOCATOR_NODES": nodes}
        environment["env_vars"] = {**environment.get("env_vars", {}), **variables}
        if said["has_gpus"]:
            [node] = job.nodes
            selector = {NODE_ID: details["nodes"][node]}
            options += ["--entrypoint-label-selector", json.dumps(selector)]
    options += ["--metadata-json", json.dumps(said["metadata"])]
    options += ["--runtime-env-json", json.dumps(environment)]
    again = name_again(job.job_id)
    return shlex.join(["submit", again, *options, "--", "sh", "-c", said["entrypoint"]])


def name_again(ident: str) -> str:
    """Return the id under which a job is submitted again.

    Examples
    --------
    >>> name_again("train"), name_again("train.r2")
    ('train.r2', 'train.r3')
    """
    found = _NUMBERED.fullmatch(ident)
    return f"{ident}.r2" if found is None else f"{found[1]}.r{int(found[2]) + 1}"
