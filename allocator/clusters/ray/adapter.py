"""Ray behind the seam of clusters: look at it, and write plans as a script for its operator.

Of jobs that users submitted, progress is asked: the logs that Ray keeps of them, or their metrics.
Nobody trusts what is read there (io/progress_sources.py). Metrics are asked for on the node of the
job's entrypoint, whatever machine their address names.

A plan is a shell script of `ray job`, which the operator reads before it is run. Jobs that change
are stopped, and submitted again under another id with the same entrypoint. Each step is tried only
if the job is as it was when it was looked at.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob
from allocator.clusters.ray.api import ADDRESS, ANSWERS, RayApi, RayUnreachable, read_answers
from allocator.clusters.ray.observe import RaySettings, observe_ray, read_statement
from allocator.clusters.ray.resources import NODE_ID
from allocator.clusters.scripts import CHANGES, write_head
from allocator.clusters.statements import read_settings
from allocator.io.progress_sources import LogPattern, Progress, as_variables, read_source
from allocator.objects import Record

ASKING_S = 5.0  # for all jobs of one look; nothing is known of those that were not asked


class RayAdapter:
    """Observe a Ray by its dashboard, and write plans as a script of `ray job`.

    A running job gets another size by being stopped and submitted again under another id.
    """

    def observe(self, request: ObserveRequest) -> ClusterView:
        settings = read_settings(RaySettings, "Ray", request.settings)
        if request.answers is not None:
            return observe_ray(read_answers(request.answers), settings, time.time())
        api = RayApi(settings.address)
        answers = {kind: api.list_records(kind) for kind in ANSWERS}
        progress = ask_jobs(api, answers)
        return observe_ray(answers, replace(settings, address=api.address), time.time(), progress)

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> dict[str, str]:
        return {"ray.sh": write_script(jobs, details)}


def ask_jobs(api: RayApi, answers: Mapping[str, Sequence[Record]]) -> dict[str, Progress]:
    """Return the progress of the running jobs that state its source and their work, by job."""
    addresses = {str(node["node_id"]): str(node["node_ip"]) for node in answers["nodes"]}
    until = time.monotonic() + ASKING_S
    by_job: dict[str, Progress] = {}
    for record in answers["jobs"]:
        node = str(record.get("driver_node_id") or "")
        said, _ = read_statement(record)
        source = read_source(as_variables(said))
        is_to_be_asked = record.get("status") == "RUNNING" and "total_work" in said
        if source is None or not is_to_be_asked or node not in addresses:
            continue
        if time.monotonic() > until:
            break
        ident = str(record["submission_id"])
        if isinstance(source, LogPattern):
            try:
                progress = source.find(api.read_log(ident, node))
            except RayUnreachable:
                progress = None
        else:
            progress = source.move_to(addresses[node]).fetch()
        if progress is not None:
            by_job[ident] = progress
    return by_job


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
    planned = [job for job in jobs if job.job_id in known]
    running = [job for job in planned if known[job.job_id]["status"] == "RUNNING"]
    changes = [job for job in running if job.action in CHANGES]
    impossible = [job for job in changes if known[job.job_id]["has_gpus"] and len(job.nodes) != 1]
    changes = [job for job in changes if job not in impossible]
    pauses = [job for job in running if job.action == "pause"]
    stops = [shlex.quote(job.job_id) for job in (*changes, *pauses)]
    address = {"@ADDRESS@": shlex.quote(details["address"] or ADDRESS)}
    lines = [write_head(__package__ or "", "the Ray", planned, details, address)]
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
    for job in planned:
        if known[job.job_id]["status"] == "PENDING":
            words = f"it waits ({job.reason}: {job.detail or ''})"
            if job.action == "start":
                words = f"the plan starts it: {_describe(job)}; Ray picks its node"
            lines.append(f"# {job.job_id}: {words}")
    waiting = [job for job in planned if job.action in ("wait", "pause") and job.reason in SHORT]
    if waiting:
        # Ray's autoscaler wants all bundles that are to fit at a time, those in use included
        used = [gpus for job in planned for gpus in (job.nodes or {"": job.gpus}).values() if gpus]
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
    about = details["jobs"][job.job_id]
    environment, options = dict(about["runtime_env"]), []
    if about["has_gpus"]:
        options += ["--entrypoint-num-gpus", str(job.gpus or job.previous_gpus)]
    if job.gpus:
        nodes = "|".join(f"{node}:{gpus}" for node, gpus in job.nodes.items())
        variables = {"ALLOCATOR_GPUS": str(job.gpus), "ALLOCATOR_NODES": nodes}
        environment["env_vars"] = {**environment.get("env_vars", {}), **variables}
        if about["has_gpus"]:
            [node] = job.nodes
            selector = {NODE_ID: details["nodes"][node]}
            options += ["--entrypoint-label-selector", json.dumps(selector)]
    options += ["--metadata-json", json.dumps(about["metadata"])]
    options += ["--runtime-env-json", json.dumps(environment)]
    again = name_again(job.job_id)
    return shlex.join(["submit", again, *options, "--", "sh", "-c", about["entrypoint"]])


def name_again(ident: str) -> str:
    """Return the id under which a job is submitted again.

    Examples
    --------
    >>> name_again("train"), name_again("train.r2")
    ('train.r2', 'train.r3')
    """
    match = _NUMBERED.fullmatch(ident)
    return f"{ident}.r2" if match is None else f"{match[1]}.r{int(match[2]) + 1}"
