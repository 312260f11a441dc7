"""A new job for a snapshot: an sbatch script, a manifest of Kubernetes, or a row of jobs.csv."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.columns import POOLS
from allocator.domain.snapshot import Snapshot
from allocator.errors import Fault, InvalidInput
from allocator.objects import Record

CLUSTER_JSON = "cluster.json"


@dataclass(frozen=True)
class NewJob:
    """A job that nobody has submitted yet.

    Parameters
    ----------
    row : mapping of str to object
        Columns of jobs.csv.
    file : str
        Where it is described.
    line : int
        Line of that file where the job begins.
    lines : mapping of str to int
        Lines of that file by column.
    notes : tuple of str
        What of the file does not count.
    """

    row: Record
    file: str
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def locate(self, faults: Iterable[Fault], snapshot: Snapshot) -> list[Fault]:
        """Return the faults of a snapshot that has the job as its last row.

        Those of the job are given with their place in its own file.
        """
        last = max(snapshot.tables["jobs.csv"].lines)
        return [
            Fault(
                self.file,
                self.lines.get(fault.message.partition(" ")[0], self.line),
                fault.message,
                fault.subject,
            )
            if (fault.file, fault.line) == ("jobs.csv", last)
            else fault
            for fault in faults
        ]


@dataclass(frozen=True)
class Site:
    """What a snapshot says about its cluster that a new job has to fit.

    Parameters
    ----------
    gpu_types : mapping of str to str
        GPU type of each pool.
    partitions : mapping of str to sequence of str
        Partitions of each pool.
    job_ids, tenants : frozenset of str
        Names that are there.
    gpus_per_node : mapping of str to int
        GPUs of a node of each pool.
    """

    gpu_types: Mapping[str, str]
    partitions: Mapping[str, Sequence[str]]
    job_ids: frozenset[str]
    tenants: frozenset[str]
    gpus_per_node: Mapping[str, int]

    @classmethod
    def of(cls, snapshot: Snapshot, folder: Path | None = None) -> Site:
        """Return the site of a snapshot; in a folder that was observed, with its partitions."""
        table = snapshot.tables["pools.csv"]
        pools, sizes = table.texts("pool"), table.texts("gpus_per_node")
        usual = POOLS.column("gpus_per_node").default
        partitions: dict[str, Sequence[str]] = {pool: [pool] for pool in pools}
        if folder is not None and (folder / CLUSTER_JSON).is_file():
            document = json.loads((folder / CLUSTER_JSON).read_text(encoding="utf-8"))
            if document.get("cluster") == "slurm":
                partitions |= document["details"]["pools"]
        tables = [snapshot.tables[n] for n in ("jobs.csv", "tenants.csv") if n in snapshot.tables]
        tenants = {name for table in tables for name in table.texts("tenant")}
        return cls(
            dict(zip(pools, table.texts("gpu_type"), strict=True)),
            partitions,
            frozenset(snapshot.tables["jobs.csv"].texts("job_id")),
            frozenset(tenants - {""}),
            {
                pool: int(float(n)) if re.fullmatch(r"\d+(\.0)?", n) else usual
                for pool, n in zip(pools, sizes, strict=True)
            },
        )

    def find_types(self, named: str) -> list[str]:
        """Return the GPU types of the site that a user means, such as "a100" for "A100@train".

        Raises
        ------
        ValueError
            If there is none.
        """
        known = sorted(set(self.gpu_types.values()))
        types = [
            gpu_type
            for gpu_type in known
            if gpu_type.partition("@")[0].casefold() == named.casefold()
        ]
        if not types:
            raise ValueError(
                f"no pool has GPUs of a type {quote(named)}{did_you_mean(named, known)}"
                f" (types: {', '.join(known)})"
            )
        return types

    def free_name(self, wanted: str) -> str:
        """Return the name of a new job: the one that is wanted, or with a number behind it."""
        name, n = wanted, 2
        while name in self.job_ids:
            name, n = f"{wanted}-{n}", n + 1
        return name


def refuse(file: str, line: int | None, message: str) -> InvalidInput:
    """Return the error for one fault of a file; the caller raises it."""
    return InvalidInput([Fault(file, line, message)])
