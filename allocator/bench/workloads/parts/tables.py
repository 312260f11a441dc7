"""A generated workload as columns of plain values; it can be written or read as a Workload.

The text depends on the values alone: the same tables give the same bytes. Values are in columns,
not rows, because a workload may have 80,000 jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.bench.workloads.parts.draw import Asked
from allocator.domain.schema.cells import texts_of
from allocator.errors import UsageError
from allocator.io.config_toml import format_toml
from allocator.io.plans import write_files
from allocator.io.tables.csv_table import csv_text
from allocator.objects import Record

if TYPE_CHECKING:
    from allocator.domain.workload import Workload

NODE = 8  # GPUs of a node where pools.csv does not say
Columns = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]


@dataclass(frozen=True)
class GeneratedWorkload:
    """One workload folder.

    Attributes
    ----------
    config : keys of config.toml.
    tables : file name -> column name -> values of equal length. None is an empty cell, a tuple is a
    list, and a mapping is JSON.
    about : text of README.md.
    window_s : seconds from 0 in which jobs are submitted.
    """

    name: str
    config: Record
    tables: Mapping[str, Columns]
    about: str = ""
    window_s: float = 0.0

    @classmethod
    def of(cls, asked: Asked, window_s: float, **tables: Columns) -> GeneratedWorkload:
        """Return the workload of a generator from tables named like their files."""
        files = {f"{table}.csv": columns for table, columns in tables.items()}
        return cls(asked.name, asked.figures["config"], files, "", window_s)

    def files(self) -> dict[str, bytes]:
        """Return file name -> content, in order of names."""
        out = {
            file: csv_text(columns, zip(*map(texts_of, columns.values()), strict=True)).encode()
            for file, columns in self.tables.items()
        }
        if self.config:
            out["config.toml"] = format_toml(self.config).encode()
        if self.about:
            out["README.md"] = self.about.encode()
        return dict(sorted(out.items()))

    def write(self, folder: Path | str) -> Path:
        """Write the files into `folder`, which is made if needed; return it.

        Raises UsageError if the folder has any content, and AllocatorError if it cannot be written.
        """
        path = Path(folder)
        if path.is_dir() and any(path.iterdir()):
            raise UsageError(f'"{path}" is not empty; choose another folder or remove it first')
        write_files(path, self.files())
        return path

    def workload(self) -> Workload:
        """Return the validated workload that reading the folder gives.

        Raises InvalidInput if it breaks a rule.
        """
        from allocator.io.workloads import parse_workload

        return parse_workload(self.name, self.files())

    def with_nodes(self, nodes_per_rack: int) -> GeneratedWorkload:
        """Return the workload with nodes.csv.

        A pool gets nodes of `gpus_per_node` GPUs, the last one with what is left, and each rack has
        `nodes_per_rack` of them. Pools whose GPUs come and go by capacity.csv get none.
        """
        pools = self.tables["pools.csv"]
        changing = set(self.tables.get("capacity.csv", {}).get("pool", ()))
        sizes = pools.get("gpus_per_node", [NODE] * len(pools["pool"]))
        nodes = columns_of(
            {
                "node": f"{name}-{first // size}",
                "pool": name,
                "gpus": min(size, gpus - first),
                "rack": f"{name}-r{first // size // nodes_per_rack}",
            }
            for name, gpus, size in zip(pools["pool"], pools["gpus"], sizes, strict=True)
            if name not in changing
            for first in range(0, int(gpus), int(size))
        )
        return replace(self, tables={**self.tables, "nodes.csv": nodes}) if nodes else self


def columns_of(rows: Iterable[Record]) -> dict[str, list[Any]]:
    """Return a table from its rows; what a row lacks is an empty cell."""
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    return {name: [row.get(name) for row in listed] for name in names}
