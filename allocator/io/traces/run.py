"""Turn a trace into a workload folder: read, select, assemble, write."""

from dataclasses import replace
from pathlib import Path

from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError
from allocator.io import workloads
from allocator.io.formats import FORMATS, choose_format
from allocator.io.traces.assemble import workload
from allocator.io.traces.base import TraceOptions
from allocator.io.traces.curves import draw_curves
from allocator.io.traces.selection import ImportSummary, select_jobs

write_tables = workloads.write_tables


def import_trace(
    name: str, source: Path | str, options: TraceOptions
) -> tuple[Snapshot, ImportSummary]:
    """Return the workload of a trace, not yet checked, and a summary of what became of its jobs.

    Parameters
    ----------
    name : a key of FORMATS, or "auto".
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
    chosen = choose_format(name, path, FORMATS)
    if options.gpus_by_type and not FORMATS[chosen].has_types:
        raise UsageError(f"--gpus TYPE=N: {chosen} does not name the GPU types; write --gpus N")
    whole = FORMATS[chosen].load().read(path, options)
    if whole.speeds is None:
        model = draw_curves(whole.jobs.model, options)
        whole = replace(whole, jobs=replace(whole.jobs, model=model))
    trace, summary = select_jobs(whole, options, chosen)
    tables = workload(trace, options)
    if "assumed" in tables.config:
        summary = replace(summary, notes=(*summary.notes, f"assumed: {tables.config['assumed']}"))
    return tables, summary
