"""A generated workload as columns of plain values; it can be written or read as a Workload.

The text depends on the values alone: the same tables give the same bytes. Values are in columns,
not rows, because a workload may have 80,000 jobs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.domain.schema.texts import texts_of
from allocator.errors import UsageError
from allocator.io.config_toml import format_toml
from allocator.io.plans import write_files
from allocator.io.tables.csv_table import csv_text

if TYPE_CHECKING:
    import pandas as pd

    from allocator.domain.workload import Workload

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
    load : the load that was asked for, in the unit of the generator.
    """

    name: str
    config: Mapping[str, Any]
    tables: Mapping[str, Columns]
    about: str = ""
    window_s: float = 0.0
    load: float = float("nan")

    def files(self) -> dict[str, bytes]:
        """Return file name -> content, in order of names."""
        out = {file: _csv(columns).encode() for file, columns in self.tables.items()}
        if self.config:
            out["config.toml"] = format_toml(self.config).encode()
        if self.about:
            out["README.md"] = self.about.encode()
        return dict(sorted(out.items()))

    def write(self, folder: str | os.PathLike[str]) -> Path:
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

    def frame(self, file: str = "workload.csv") -> pd.DataFrame:
        """Return one table as a pandas frame. Raises KeyError for a table that does not exist."""
        import pandas as pd

        return pd.DataFrame({name: list(values) for name, values in self.tables[file].items()})


def _csv(columns: Columns) -> str:
    return csv_text(columns, zip(*map(texts_of, columns.values()), strict=True))
