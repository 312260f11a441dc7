"""What Slurm answered, asked for or recorded.

A look is four calls that change nothing and that every user may make, and two of slurmdbd where
there is one. A recorded look is a folder with the same answers as files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.clusters.slurm.commands import SlurmUnreachable, run_slurm
from allocator.clusters.slurm.values import parse_records, read_number
from allocator.objects import Record

OLD_NODES = ("sinfo", "--json")  # lists nodes up to 22.05, and groups of nodes since 23.02
FILES = {  # name of a recorded answer -> the call whose answer it holds
    # first, since scontrol fails at once where squeue and sinfo write empty lists
    "partitions.txt": ("scontrol", "show", "partition", "-a", "-o"),
    "jobs.json": ("squeue", "--json"),
    "nodes.json": ("scontrol", "show", "nodes", "--json"),
    "reservations.txt": ("scontrol", "show", "reservation", "-o"),
    "associations.txt": (
        *("sacctmgr", "-n", "-P", "show", "assoc"),
        "format=Cluster,Account,User,Partition,ParentName,GrpTRES,Fairshare",
    ),
    "qos.txt": ("sacctmgr", "-n", "-P", "show", "qos", "format=Name,GrpTRES,Priority"),
}
ACCOUNTING = ("associations.txt", "qos.txt")  # not every Slurm has it
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
    associations: list[list[str]] | None
    qos: list[list[str]] | None


def ask_slurm() -> Answers:
    """Ask the Slurm of this machine. Raises ClusterUnreachable."""
    version = ask_version()
    if version < OLDEST_JSON:
        raise SlurmUnreachable(
            f"Slurm {'.'.join(map(str, version))} has no squeue --json; 21.08 or newer is needed"
        )

    def ask(name: str) -> str | None:
        is_old = name == "nodes.json" and version < NODES_SINCE
        try:
            return run_slurm(*OLD_NODES if is_old else FILES[name])
        except SlurmUnreachable:
            if name in ACCOUNTING:
                return None
            raise

    return _build_answers(ask, time.time())


def ask_version() -> tuple[int, ...]:
    """Return the version of the commands of this machine, such as (22, 5, 8)."""
    text = (run_slurm("squeue", "--version").split() or [""])[-1]
    parts = text.partition("-")[0].split(".")
    numbers = tuple(int(part) for part in parts if part.isdecimal())
    if len(numbers) < 2:
        raise SlurmUnreachable(f'squeue --version says "{text}", which is no version of Slurm')
    return numbers


def read_answers(folder: Path) -> Answers:
    """Return the answers that were recorded in a folder. Raises ClusterUnreachable."""

    def read(name: str) -> str | None:
        try:
            return (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            is_optional = name in (*ACCOUNTING, "reservations.txt")
            if is_optional and isinstance(error, FileNotFoundError):
                return None
            call = " ".join(FILES[name])
            raise SlurmUnreachable(
                f'"{folder / name}" cannot be read: {error.strerror}; it holds what "{call}" says'
            ) from error

    return _build_answers(read, None)


def _build_answers(read: Callable[[str], str | None], now_s: float | None) -> Answers:
    """Return the answers from their texts by name.

    Without a time the latest one that the jobs tell of is taken. Raises ClusterUnreachable if an
    answer makes no sense.
    """
    texts = {name: read(name) for name in FILES}
    jobs, meta = parse_json(texts["jobs.json"] or "", "squeue --json", "jobs")
    nodes, _ = parse_json(texts["nodes.json"] or "", "the list of nodes", "nodes")
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    partitions = parse_records(texts["partitions.txt"] or "")
    if not partitions or not all("PartitionName" in partition for partition in partitions):
        raise SlurmUnreachable("scontrol show partition names no partition")
    if now_s is None:
        running = [job for job in jobs if "RUNNING" in str(job.get("job_state"))]
        times = [(job, "submit_time") for job in jobs]
        times += [
            (job, name) for job in running for name in ("start_time", "last_sched_evaluation")
        ]
        now_s = max((read_number(*pair) or 0.0 for pair in times), default=0.0)
    version: tuple[int, ...] = (0, 0, 0)
    with suppress(KeyError, TypeError, ValueError):  # in 22.05 {"major": 22, "minor": 5}
        version = tuple(int(slurm["version"][name]) for name in ("major", "minor", "micro"))
    return Answers(
        version,
        str(slurm.get("cluster") or next((j["cluster"] for j in jobs if j.get("cluster")), "")),
        now_s,
        jobs,
        nodes,
        partitions,
        parse_records(texts["reservations.txt"] or ""),
        *(
            None if text is None else [row.split("|") for row in text.splitlines() if "|" in row]
            for text in map(texts.get, ACCOUNTING)
        ),
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
        raise SlurmUnreachable(f"{call}: the answer is no JSON ({error})") from None
    items = document.get(field) if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SlurmUnreachable(f'{call}: the answer has no list "{field}"')
    if document.get("errors"):
        raise SlurmUnreachable(f"{call}: {json.dumps(document['errors'])[:400]}")
    meta = document.get("meta")
    return items, meta if isinstance(meta, dict) else {}
