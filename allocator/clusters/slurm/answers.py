"""What Slurm answered, asked for or recorded.

A look is four calls that change nothing and that every user may make, and two of slurmdbd where
there is one. A recorded look is a folder with the same answers as files.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.clusters.adapter import ClusterUnreachable
from allocator.clusters.slurm.commands import run_slurm
from allocator.clusters.slurm.shapes import Record, parse_records, read_number

JOBS = ("squeue", "--json")
NODES = ("scontrol", "show", "nodes", "--json")
OLD_NODES = ("sinfo", "--json")  # lists nodes up to 22.05, and groups of nodes since 23.02
PARTITIONS = ("scontrol", "show", "partition", "-a", "-o")
RESERVATIONS = ("scontrol", "show", "reservation", "-o")
LIMITS = (
    *("sacctmgr", "-n", "-P", "show", "assoc"),
    "format=Cluster,Account,User,Partition,ParentName,GrpTRES,Fairshare",
)
QOS = ("sacctmgr", "-n", "-P", "show", "qos", "format=Name,GrpTRES,Priority")
FILES = {  # name of a recorded answer -> the calls whose answer it may hold
    "jobs.json": JOBS,
    "nodes.json": NODES,
    "partitions.txt": PARTITIONS,
    "reservations.txt": RESERVATIONS,
    "associations.txt": LIMITS,
    "qos.txt": QOS,
}
OPTIONAL = ("reservations.txt", "associations.txt", "qos.txt")
OLDEST_JSON = (21, 8)
NODES_SINCE = (23, 2)  # since then `scontrol show nodes --json` is there


@dataclass(frozen=True)
class Answers:
    """Hold the answers of one look.

    Parameters
    ----------
    version : tuple of int
        Version of Slurm, such as (22, 5, 8).
    cluster : str
        Name of the cluster; "" if it is not said.
    now_s : float
        Time of the look, in unix seconds.
    jobs, nodes : list of mapping
        Objects of the JSON.
    partitions, reservations : list of mapping
        Records of `scontrol`.
    associations, qos : list of tuple of str, optional
        Rows of `sacctmgr`; None: there is no accounting, or it does not answer.
    """

    version: tuple[int, ...]
    cluster: str
    now_s: float
    jobs: list[Record]
    nodes: list[Record]
    partitions: list[dict[str, str]]
    reservations: list[dict[str, str]]
    associations: list[tuple[str, ...]] | None
    qos: list[tuple[str, ...]] | None


def ask_slurm() -> Answers:
    """Ask the Slurm of this machine. Raises ClusterUnreachable."""
    version = ask_version()
    if version < OLDEST_JSON:
        raise ClusterUnreachable(
            f"Slurm {'.'.join(map(str, version))} has no squeue --json; 21.08 or newer is needed"
        )
    nodes = NODES if version >= NODES_SINCE else OLD_NODES
    now_s = time.time()
    return build_answers(
        {
            # first, since scontrol fails at once where squeue and sinfo write empty lists
            "partitions.txt": run_slurm(*PARTITIONS),
            "jobs.json": run_slurm(*JOBS),
            "nodes.json": run_slurm(*nodes),
            "reservations.txt": run_slurm(*RESERVATIONS),
            "associations.txt": _ask_accounting(*LIMITS),
            "qos.txt": _ask_accounting(*QOS),
        }.get,
        now_s,
    )


def ask_version() -> tuple[int, ...]:
    """Return the version of the commands of this machine, such as (22, 5, 8)."""
    said = run_slurm("squeue", "--version").split()
    return _parse_version(said[-1] if said else "")


def _parse_version(text: str) -> tuple[int, ...]:
    parts = text.partition("-")[0].split(".")
    numbers = tuple(int(part) for part in parts if part.isdecimal())
    if len(numbers) < 2:
        raise ClusterUnreachable(f'squeue --version says "{text}", which is no version of Slurm')
    return numbers


def _ask_accounting(*argv: str) -> str | None:
    """Return the answer of slurmdbd, or None where there is none."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        return run_slurm(*argv)
    except ClusterUnreachable:
        return None


def read_answers(folder: Path) -> Answers:
    """Return the answers that were recorded in a folder. Raises ClusterUnreachable."""

    def read(name: str) -> str | None:
        try:
            return (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            if name in OPTIONAL and isinstance(error, FileNotFoundError):
                return None
            call = " ".join(FILES[name])
            raise ClusterUnreachable(
                f'"{folder / name}" cannot be read: {error.strerror}; it holds what "{call}" says'
            ) from error

    return build_answers(read, None)


def build_answers(read: Callable[[str], str | None], now_s: float | None) -> Answers:
    """Return the answers from their texts by name.

    Without a time the latest one that the jobs tell of is taken.

    Raises
    ------
    ClusterUnreachable
        If an answer makes no sense.
    """
    jobs, meta = parse_json(read("jobs.json") or "", "squeue --json", "jobs")
    nodes, _ = parse_json(read("nodes.json") or "", "the list of nodes", "nodes")
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    partitions = parse_records(read("partitions.txt") or "")
    if not partitions or not all("PartitionName" in one for one in partitions):
        raise ClusterUnreachable("scontrol show partition names no partition")
    if now_s is None:
        fields = ("submit_time", "start_time", "last_sched_evaluation")
        times = [read_number(job, "submit_time") or 0.0 for job in jobs]
        times += [
            read_number(job, field) or 0.0
            for job in jobs
            for field in fields
            if "RUNNING" in str(job.get("job_state"))
        ]
        now_s = max(times, default=0.0)
    return Answers(
        _read_version(slurm.get("version")),
        str(slurm.get("cluster") or next((j["cluster"] for j in jobs if j.get("cluster")), "")),
        now_s,
        jobs,
        nodes,
        partitions,
        parse_records(read("reservations.txt") or ""),
        _rows(read("associations.txt")),
        _rows(read("qos.txt")),
    )


def parse_json(text: str, call: str, field: str) -> tuple[list[Record], Record]:
    """Return the list of a field of an answer of Slurm, and what it says of itself.

    Raises
    ------
    ClusterUnreachable
        If it is no JSON, has no such list, or reports errors.
    """
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise ClusterUnreachable(f"{call}: the answer is no JSON ({error})") from None
    items = document.get(field) if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ClusterUnreachable(f'{call}: the answer has no list "{field}"')
    if document.get("errors"):
        raise ClusterUnreachable(f"{call}: {json.dumps(document['errors'])[:400]}")
    meta = document.get("meta")
    return items, meta if isinstance(meta, dict) else {}


def _read_version(value: Any) -> tuple[int, ...]:
    """Return a version of the JSON: in 22.05 {"major": 22, "minor": 5}, later texts."""
    try:
        return tuple(int(value[name]) for name in ("major", "minor", "micro"))
    except (KeyError, TypeError, ValueError):
        return (0, 0, 0)


def _rows(text: str | None) -> list[tuple[str, ...]] | None:
    if text is None:
        return None
    return [tuple(line.split("|")) for line in text.splitlines() if "|" in line]
