"""Slurm behind the seam of clusters: look at it, and write plans as a script for its operator.

The operator reads the script before it is run. Running jobs that change are requeued and held,
changed when they have ended, and released. Nothing is cancelled. What was asked is read back: Slurm
accepts, shows and ignores some requests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob
from allocator.clusters.scripts import CHANGES, write_head
from allocator.clusters.slurm.answers import ask_slurm, read_answers
from allocator.clusters.slurm.observe import observe_slurm
from allocator.clusters.slurm.settings import read_slurm_settings
from allocator.objects import Record


class SlurmAdapter:
    """Observe a Slurm by its commands, and write plans as a script of `scontrol`.

    A running job gets another size by being requeued, held, changed and released.
    """

    def observe(self, request: ObserveRequest) -> ClusterView:
        settings = read_slurm_settings(request.settings)
        answers = ask_slurm() if request.answers is None else read_answers(request.answers)
        return observe_slurm(answers, settings)

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> dict[str, str]:
        return {"slurm.sh": write_script(jobs, details)}


BATCH = 500  # jobs of one call of scontrol

STOP = (
    '[ $faults = 0 ] || { echo "slurm.sh: nothing was changed; look again: allocator observe" >&2;'
    " exit 1; }"
)
FOOT = """
# 7. the other waiting jobs go back to Slurm
give_back
exit $faults
"""


def write_script(jobs: Sequence[PlannedJob], details: Record) -> str:
    """Return the script that carries a plan out on the Slurm that was observed.

    Parameters
    ----------
    jobs : sequence of PlannedJob
        What the plan gives every job of the snapshot.
    details : mapping of str to object
        Details of the look.
    """
    known = details["jobs"]
    planned = [
        job for job in jobs if job.job_id in known and not known[job.job_id]["left_to_slurm"]
    ]
    starts = [job for job in planned if job.action == "start"]
    pauses = [job for job in planned if job.action == "pause"]
    moves = [job for job in planned if job.action in CHANGES or _is_elsewhere(job, details)]
    # None: scontrol cannot say it
    arguments = {job.job_id: _list_arguments(job, details) for job in (*starts, *moves)}
    changes = [job for job in (*starts, *moves) if arguments[job.job_id] is not None]
    stops = [job.job_id for job in (*moves, *pauses) if job in changes or job in pauses]
    lend = [
        job
        for job in planned
        if known[job.job_id]["state"] == "PENDING" and not known[job.job_id]["is_held"]
    ]
    waiting = [job.job_id for job in lend if job not in changes]
    version = details["version"]
    release = f"{version[0]}.{version[1]:02d}"
    name = _plain(details["cluster"]) or "without a name"
    cluster = f"the cluster {name}, Slurm {release},"
    lines = [write_head(__package__ or "", cluster, planned, details, {"@RELEASE@": release})]
    for job in planned:
        if job.action != "keep":  # a job that keeps its GPUs may end meanwhile
            about = known[job.job_id]  # a line of `squeue -o '%i|%T|%U|%V|%j'`
            when = int(about["submitted_s"])
            words = (job.job_id, about["state"], about["user_id"], when, about["name"])
            lines.append(f"expect {shlex.quote('|'.join(map(str, words)))}")
    lines.append(STOP)
    lines += [
        f"# job {ident}: its GPUs per node differ; it is left as it is"
        for ident, change in arguments.items()
        if change is None
    ]
    titles = (
        "\n# 1. no other waiting job may take the GPUs meanwhile",
        "\n# 2. running jobs that change or pause write a checkpoint, end, and wait",
        "\n# 3. only an operator may release them",
    )
    if lend:
        lines += [titles[0], *_in_batches("scontrol hold", [job.job_id for job in lend])]
    if waiting:
        lines.append(f"lent=({' '.join(waiting)})")
    if stops:
        lines += [titles[1], *_in_batches("scontrol requeuehold", stops)]
        lines += _in_batches("await_end", stops)
        lines += [titles[2], *_in_batches("scontrol hold", stops)]
    lines.append("\n# 4. GPUs and nodes of every job that the plan starts or changes")
    wants = []
    for job in changes:
        about = known[job.job_id]
        nodes = _list_nodes(job, details)
        before = f"{job.previous_gpus} -> " if job.previous_gpus else ""
        lines += [
            f"# job {job.job_id} {_plain(about['name'])} of {_plain(about['user'])}:"
            f" {job.action}, {before}{job.gpus} GPUs on {', '.join(nodes)}",
            f"change {job.job_id} {shlex.join(arguments[job.job_id] or ())}",
        ]
        wants.append(f"want[{job.job_id}]={shlex.quote(f'{job.gpus} ' + ','.join(nodes))}")
    lines += ["\n# 5. they start\nrelease_changed", "\n# 6. what was asked is what runs"]
    lines += [*wants, "read_back"]
    if pauses:
        paused = ",".join(job.job_id for job in pauses)
        lines.append(f"# paused until somebody releases them: scontrol release {paused}")
    return "\n".join(lines) + FOOT


def _is_elsewhere(job: PlannedJob, details: Record) -> bool:
    """Return whether a job that keeps its pool and size is on other nodes in the plan."""
    places = details["jobs"][job.job_id]["places"]
    return job.action == "keep" and bool(job.nodes) and dict(job.nodes) != places


def _list_nodes(job: PlannedJob, details: Record) -> list[str]:
    return sorted(details["nodes"][row] for row in job.nodes)


def _list_arguments(job: PlannedJob, details: Record) -> list[str] | None:
    """Return the arguments of `scontrol update` for what the plan says; None if there are none."""
    known = details["jobs"][job.job_id]
    sizes = set(job.nodes.values())
    if known["per"] == "node" and len(sizes) > 1:
        return None
    of_pool = details["pools"][job.pool]
    is_in_pool = not set(of_pool).isdisjoint(known["partitions"])
    partition = "" if len(known["partitions"]) != 1 or is_in_pool else of_pool[0]
    gpus = (details["gres_prefix"], known["gpu_type"], max(sizes, default=1))
    nodes = _list_nodes(job, details)
    return list_arguments(partition, nodes, len(nodes), gpus if known["per"] == "node" else ())


def list_arguments(
    partition: str, nodes: Sequence[str], count: int, gpus: Sequence[object]
) -> list[str]:
    """Return the arguments of `scontrol update` that give a waiting job its GPUs and nodes.

    Parameters
    ----------
    partition : str
        Its partition; "": it stays.
    nodes : sequence of str
        The nodes that it asks for.
    count : int
        Nodes in all; 0: as many as it asked for.
    gpus : sequence
        How this Slurm spells GPUs, their type if it names one, and their number on each node; empty
        for a job that does not ask for them by node.
    """
    return [
        *([f"Partition={partition}"] if partition else ()),
        *([f"NumNodes={count}-{count}"] if count else ()),
        *([f"TresPerNode={':'.join(str(word) for word in gpus if word)}"] if gpus else ()),
        f"ReqNodeList={','.join(nodes)}",
        "StartTime=now",
    ]


def _in_batches(command: str, idents: Sequence[str]) -> list[str]:
    """Return the lines of one command for many jobs."""
    starts = range(0, len(idents), BATCH)
    return [f"{command} {','.join(idents[start : start + BATCH])}" for start in starts]


def _plain(text: str) -> str:
    """Return free text of users as it may stand in a comment of a script."""
    return re.sub(r"[^\w.@+/-]+", " ", text, flags=re.ASCII).strip()[:60]
