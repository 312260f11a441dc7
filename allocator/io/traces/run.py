"""Turn a trace into a workload folder: read, select, assemble, write."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from allocator.domain.findings import did_you_mean
from allocator.errors import UsageError
from allocator.io.formats import first_recognised
from allocator.io.traces import registry
from allocator.io.traces.assemble import workload
from allocator.io.traces.base import TraceOptions, WorkloadText
from allocator.io.traces.selection import ImportSummary, select_jobs
from allocator.io.workloads import write_workload


def import_trace(
    name: str, source: str | os.PathLike[str], options: TraceOptions
) -> tuple[WorkloadText, ImportSummary]:
    """Return the workload of a trace as text, and a summary of what became of its jobs.

    Parameters
    ----------
    name : a key of registry.FORMATS, or "auto".
    source : file or folder of the trace.
    options : what the user set for any format.

    Raises
    ------
    UsageError
        For an unknown format, or options that cannot be met.
    InvalidInput
        For faults of the files.
    """
    path = Path(source)
    chosen = recognise_format(path) if name == "auto" else name
    if chosen not in registry.FORMATS:
        known = ", ".join(registry.FORMATS)
        raise UsageError(
            f'no format "{name}"{did_you_mean(name, registry.FORMATS)}; known: auto, {known}'
        )
    if options.gpus_by_type and not registry.FORMATS[chosen].has_types:
        raise UsageError(f"--gpus TYPE=N: {chosen} does not name the GPU types; write --gpus N")
    form = registry.load(chosen)
    trace, summary = select_jobs(form.read(path, options), options, chosen)
    tables = workload(trace, options)
    if "assumed" in tables.config:
        summary = replace(summary, notes=(*summary.notes, f"assumed: {tables.config['assumed']}"))
    return tables, summary


def recognise_format(path: Path) -> str:
    """Return the first format that recognises the file; raise UsageError if none does."""
    return first_recognised(path, registry.FORMATS, lambda name: registry.load(name).recognise)


def write_tables(tables: WorkloadText, folder: str | os.PathLike[str]) -> Path:
    """Check the workload and write it into a folder, which is made if needed; return its path.

    Raises the errors of `write_workload`.
    """
    import pandas as pd

    frames = {
        file.removesuffix(".csv"): pd.DataFrame(dict(cells), dtype=object)
        for file, cells in tables.files.items()
    }
    return write_workload(folder, frames, config=tables.config)
