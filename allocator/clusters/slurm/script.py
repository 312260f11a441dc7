"""A plan as a shell script for the operator of a Slurm, who reads it before it is run.

Running jobs that change are requeued and held, changed when they have ended, and released. Nothing
is cancelled. What was asked is read back: Slurm accepts, shows and ignores some requests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.clusters.adapter import PlannedJob
from allocator.clusters.scripts import write_head

BATCH = 500  # jobs of one call of scontrol
CHANGES = ("grow", "shrink", "move")

STOP = (
    '[ $faults = 0 ] || { echo "slurm.sh: nothing was changed; look again: allocator observe" >&2;'
    " exit 1; }"
)
FOOT = """
# 7. the other waiting jobs go back to Slurm
give_back
exit $faults
"""


@dataclass(frozen=True)
class _Change:
    """A job that gets GPUs, and the arguments of `scontrol update` for it."""

    ident: str
    arguments: tuple[str, ...]
    gpus: int
    nodes: tuple[str, ...]
    about: str


def write_script(jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> str:
    """Return the script that carries a plan out on the Slurm that was observed.

    Parameters
    ----------
    jobs : sequence of PlannedJob
        What the plan gives every job of the snapshot.
    details : mapping of str to object
        Details of the look.
    """
    known = details["jobs"]
    mine = [job for job in jobs if job.job_id in known and not known[job.job_id]["left_to_slurm"]]
    starts = [job for job in mine if job.action == "start"]
    pauses = [job for job in mine if job.action == "pause"]
    moves = [job for job in mine if job.action in CHANGES or _is_elsewhere(job, details)]
    described = {job.job_id: _describe_change(job, details) for job in (*starts, *moves)}
    changes = [change for change in described.values() if change is not None]
    impossible = [ident for ident, change in described.items() if change is None]
    done = {change.ident for change in changes}
    stops = [job.job_id for job in (*moves, *pauses) if job.job_id in done or job in pauses]
    lend = [
        job.job_id
        for job in mine
        if known[job.job_id]["state"] == "PENDING" and not known[job.job_id]["is_held"]
    ]
    waiting = [ident for ident in lend if ident not in done]
    lines = [_write_head(mine, details)]
    # a job that keeps its GPUs may end meanwhile
    acted = [job.job_id for job in mine if job.action != "keep"]
    lines += [f"expect {shlex.quote(_identity(ident, known))}" for ident in acted]
    lines.append(STOP)
    lines += [
        f"# job {ident}: its GPUs per node differ; it is left as it is" for ident in impossible
    ]
    lines += _step("1. no other waiting job may take the GPUs meanwhile", "scontrol hold", lend)
    if waiting:
        lines.append(f"lent=({' '.join(waiting)})")
    lines += _step(
        "2. running jobs that change or pause write a checkpoint, end, and wait",
        "scontrol requeuehold",
        stops,
    )
    lines += [f"await_end {','.join(part)}" for part in _batches(stops)]
    lines += _step("3. only an operator may release them", "scontrol hold", stops)
    lines.append("\n# 4. GPUs and nodes of every job that the plan starts or changes")
    for change in changes:
        lines += [f"# {change.about}", f"change {change.ident} {shlex.join(change.arguments)}"]
    lines.append("\n# 5. they start\nrelease_changed")
    lines.append("\n# 6. what was asked is what runs")
    lines += [
        f"want[{change.ident}]={shlex.quote(f'{change.gpus} ' + ','.join(change.nodes))}"
        for change in changes
    ]
    lines.append("read_back")
    paused = [job.job_id for job in pauses]
    if paused:
        lines.append(f"# paused until somebody releases them: scontrol release {','.join(paused)}")
    return "\n".join(lines) + FOOT


def _write_head(jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> str:
    version = details["version"]
    release = f"{version[0]}.{version[1]:02d}"
    name = _plain(details["cluster"]) or "without a name"
    cluster = f"the cluster {name}, Slurm {release},"
    return write_head(__package__ or "", cluster, jobs, details, {"@RELEASE@": release})


def _is_elsewhere(job: PlannedJob, details: Mapping[str, Any]) -> bool:
    """Return whether a job that keeps its pool and size is on other nodes in the plan."""
    places = details["jobs"][job.job_id]["places"]
    return job.action == "keep" and bool(job.nodes) and dict(job.nodes) != places


def _identity(ident: str, known: Mapping[str, Any]) -> str:
    """Return a job as a line of `squeue -o '%i|%T|%U|%V|%j'`."""
    job = known[ident]
    words = (ident, job["state"], job["user_id"], int(job["submitted_s"]), job["name"])
    return "|".join(map(str, words))


def _describe_change(job: PlannedJob, details: Mapping[str, Any]) -> _Change | None:
    """Return how a job gets what the plan says; None if scontrol cannot say it."""
    known = details["jobs"][job.job_id]
    names = details["nodes"]
    nodes = tuple(sorted(names[row] for row in job.nodes))
    sizes = set(job.nodes.values())
    if known["per"] == "node" and len(sizes) > 1:
        return None
    arguments = []
    partitions = [name for name in known["partitions"] if name in details["pools"][job.pool]]
    if len(known["partitions"]) == 1 and not partitions:
        arguments.append(f"Partition={details['pools'][job.pool][0]}")
    if nodes:
        arguments.append(f"NumNodes={len(nodes)}-{len(nodes)}")
    if known["per"] == "node":
        words = (details["gres_prefix"], known["gpu_type"], str(min(sizes)) if sizes else "1")
        arguments.append(f"TresPerNode={':'.join(word for word in words if word)}")
    arguments += [f"ReqNodeList={','.join(nodes)}", "StartTime=now"]
    before = f"{job.previous_gpus} -> " if job.previous_gpus else ""
    about = (
        f"job {job.job_id} {_plain(known['name'])} of {_plain(known['user'])}: {job.action},"
        f" {before}{job.gpus} GPUs on {', '.join(nodes)}"
    )
    return _Change(job.job_id, tuple(arguments), job.gpus, nodes, about)


def _step(title: str, command: str, idents: Sequence[str]) -> Iterable[str]:
    """Return the lines of a step that is one command for many jobs; none without jobs."""
    if not idents:
        return []
    return [f"\n# {title}", *(f"{command} {','.join(part)}" for part in _batches(idents))]


def _batches(idents: Sequence[str]) -> list[Sequence[str]]:
    return [idents[i : i + BATCH] for i in range(0, len(idents), BATCH)]


def _plain(text: str) -> str:
    """Return free text of users as it may stand in a comment of a script."""
    return re.sub(r"[^\w.@+/-]+", " ", text, flags=re.ASCII).strip()[:60]
