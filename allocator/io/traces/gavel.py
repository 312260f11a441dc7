"""gavel: a trace of job types and steps, with a table of steps per second (JSON).

The trace has cells between tabs and no header. A line has 7 or 10 cells:

- 7: type, command, steps argument, needs data, total steps, arrival s, GPUs
- 10: type, command, folder, steps argument, needs data, total steps, GPUs, weight, deadline factor,
  arrival s

For each GPU type and "('job type', GPUs)", the table has the steps per second of a job that runs
alone ("null"). Colocations in the table and the `_unconsolidated` types (GPUs spread over nodes)
are not used.

Source of the formats: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep
Learning Workloads", OSDI 2020, and Shockwave (NSDI 2023), which uses the same formats.
"""

import io
import json
import math
from ast import literal_eval
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocator.domain.schema.cells import NUMBER
from allocator.errors import Fault, UsageError
from allocator.io.traces import assemble
from allocator.io.traces.base import (
    MeasuredSpeeds,
    Trace,
    TraceOptions,
    TracePool,
    sort_out,
    trace_jobs,
)
from allocator.io.traces.text import (
    CsvRows,
    content,
    find_packed,
    first_line,
    form_of,
    input_error,
    integer,
    number,
    parse_columns,
    read_text,
    text,
)

LAYOUTS = {
    7: {"steps": 4, "submitted": 5, "gpus": 6},
    10: {"steps": 5, "gpus": 6, "weight": 7, "submitted": 9},
}
COLUMNS = (
    text("type", required=False),
    number("steps"),
    number("submitted"),
    integer("gpus"),
    number("weight", required=False),
)
POOLS = (
    TracePool("k80", "k80", 36, 4),
    TracePool("p100", "p100", 36, 4),
    TracePool("v100", "v100", 36, 4),
)
TABLES = ("simulation_throughputs.json", "throughputs.json", "physical_cluster_throughputs.json")
TABLE = 'table of steps per second, {"v100": {"(\'job type\', GPUs)": {"null": 1.5}}}'
SPREAD = "_unconsolidated"
MOST_GPUS = 1 << 20


def recognise(source: Path) -> str:
    """Return "" if the first line has 7 or 10 cells with numbers at the right places; else why."""
    first = first_line(source)
    cells = first.split("\t")
    layout = LAYOUTS.get(len(cells))
    if layout is None:
        return f"its first line has {len(cells)} cells between tabs, not 7 or 10"
    odd = [name for name, i in layout.items() if not NUMBER.fullmatch(cells[i].strip())]
    return f"its first line has no number for {', '.join(odd)}" if odd else ""


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the jobs that have a measured speed, on nodes of K80, P100 and V100.

    Raises InvalidInput and UsageError.
    """
    given = options.extra_value("throughputs")
    table = Path(given) if given else find_packed(source.parent, *TABLES)
    if table is None:
        raise UsageError(
            f'there is no table of steps per second next to "{source}"; name it by --throughputs'
            " FILE"
        )
    speeds = MeasuredSpeeds.of(read_speeds_alone(table, SPREAD))
    per_node = options.gpus_per_node
    pools = [
        replace(p, gpus_per_node=per_node or p.gpus_per_node)
        for p in POOLS
        if p.gpu_type in speeds.gpu_type
    ]
    if not pools:
        raise input_error(
            table, f"has none of the GPU types {', '.join(p.gpu_type for p in POOLS)}"
        )
    pools = list(assemble.scale_pools(pools, options.gpus))
    rows = _lines(source)
    model, gpus, weight = rows["type"], rows["gpus"], rows["weight"]
    duration = assemble.seconds_at_request(speeds, pools, model, gpus, rows["steps"])
    unknown = ~(duration > 0) | (gpus < 1)
    dropped, known = sort_out({"have no measured speed at their size": unknown})
    jobs = trace_jobs(
        [f"gavel-{i + 1}" for i in range(len(model))],
        rows["submitted"],
        duration,
        gpus,
        model=model,
        work=rows["steps"],
        weight=np.where(weight > 0, weight, 1.0),
    )
    return Trace(
        jobs.select(known),
        tuple(pools),
        len(model),
        dropped,
        (f"speeds from {table.name}",),
        speeds,
    )


def _lines(source: Path) -> CsvRows:
    """Return the job type of each line, and its numbers by name."""
    faults: list[Fault] = []
    lines: list[int] = []
    cells: dict[str, list[str]] = {column.name: [] for column in COLUMNS}
    for line, row in enumerate(io.StringIO(read_text(source), newline=None), start=1):
        parts = [part.strip() for part in row.split("\t")]
        if len(parts) in LAYOUTS:
            place = {"type": 0, **LAYOUTS[len(parts)]}
            lines.append(line)
            for name, column in cells.items():
                column.append(parts[place[name]] if name in place else "")
        elif row.strip():
            words = f"has {len(parts)} cells between tabs, not 7 or 10"
            faults.append(Fault(str(source), line, words))
    if not faults and not lines:
        faults.append(Fault(str(source), None, "is empty"))
    return parse_columns(source, COLUMNS, cells, lines, faults)


def read_speeds_alone(path: Path, without: str | None = None) -> list[tuple[str, str, int, float]]:
    """Return rows of (job type, GPU type, GPUs, steps per second above 0) of jobs that run alone.

    GPU types whose names end in `without` are left out.
    """
    rows: list[tuple[str, str, int, float]] = []
    with form_of(path, TABLE):
        for gpu_type, jobs in json.loads(content(path)).items():
            for key, pairs in jobs.items():
                rate = float(pairs["null"])
                if not (without and gpu_type.endswith(without)) and rate > 0:
                    name, gpus = literal_eval(key)
                    if not (isinstance(gpus, int) and 1 <= gpus <= MOST_GPUS and rate < math.inf):
                        raise ValueError(f"{key} has {rate:g}")
                    rows.append((str(name), gpu_type, gpus, rate))
    if not rows:
        raise input_error(path, "has no speed above 0")
    return rows
