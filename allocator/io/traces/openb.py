"""alibaba-openb: the pods and nodes of one production GPU cluster.

The files are `openb_pod_list_*.csv` and `openb_node_list_*.csv`. Pods without GPUs and pods that
never ran (no scheduled_time) are dropped. A pod that asks for a part of a GPU gets a whole one,
since a job holds whole GPUs only. The run time is deletion - scheduled, also for pods that the end
of the trace cut short. `gpu_spec` becomes the allowed types. Each (GPU type, GPUs per node) of the
node list is a pool. SPEED has the speeds of the types relative to V100; types under code names have
the speed 1.

Source of the format: the 2023 GPU trace published with Weng et al., "Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC 2023.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from allocator.errors import UsageError
from allocator.io.traces import assemble
from allocator.io.traces.base import (
    Trace,
    TraceOptions,
    TracePool,
    map_distinct,
    sort_out,
    trace_jobs,
)
from allocator.io.traces.text import (
    csv_rows,
    find_packed,
    input_error,
    integer,
    missing_columns,
    number,
    text,
)

PODS = (
    text("name"),
    integer("num_gpu"),
    integer("gpu_milli"),
    text("gpu_spec", required=False),
    text("pod_phase", required=False),
    number("creation_time"),
    number("deletion_time"),
    number("scheduled_time", required=False),
)
NODES = (text("sn"), integer("gpu"), text("model", required=False))
# speed of one GPU relative to one V100; docs/traces.md has the sources
SPEED = {"T4": 0.4, "P100": 0.7, "A10": 0.8}
POD_LIST = "openb_pod_list_default.csv"
NODE_LIST = (
    "openb_node_list_gpu_node.csv",
    "openb_node_list_all_node.csv",
)


def recognise(source: Path) -> str:
    """Return "" for a pod list, or for a folder with the default pod list; else the reason."""
    pods = find_packed(source, POD_LIST) if source.is_dir() else source
    return (
        f"has no {POD_LIST}"
        if pods is None
        else missing_columns(pods, ("num_gpu", "gpu_milli", "gpu_spec", "scheduled_time"))
    )


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the pods that ran on GPUs, and the pools of the node list.

    Raises InvalidInput, and UsageError if there is no node list.
    """
    folder = source if source.is_dir() else source.parent
    pods = find_packed(source, POD_LIST) if source.is_dir() else source
    if pods is None:
        raise input_error(source, f"has no {POD_LIST} (or .gz)")
    given = options.extra_value("nodes")
    nodes = Path(given) if given else find_packed(folder, *NODE_LIST)
    if nodes is None:
        raise UsageError(f'there is no node list next to "{pods}"; name it by --nodes FILE')
    if options.gpus_per_node is not None:
        raise UsageError("--gpus-per-node: the node list says how many GPUs a node has")
    pools = assemble.scale_pools(_pools(nodes), options.gpus)
    rows = csv_rows(pods, PODS)
    begin, end = rows["scheduled_time"], rows["deletion_time"]
    dropped, keep = sort_out(
        {"ask for no GPU": rows["num_gpu"] < 1, "never ran": ~(end - begin > 0)}
    )
    is_cut = np.array([phase == "Running" for phase in rows["pod_phase"]], dtype=bool)
    there = {p.gpu_type for p in pools}
    jobs = trace_jobs(
        rows["name"],
        rows["creation_time"],
        end - begin,
        rows["num_gpu"],
        gpu_types=map_distinct(lambda spec: _types(spec, there), rows["gpu_spec"]),
        recorded=(begin, np.where(is_cut, np.nan, end)),
    ).select(keep)
    parts = (rows["gpu_milli"][keep] < 1000).sum()
    notes = (
        f"{parts} pods ask for a part of a GPU and get a whole one",
        f"{is_cut[keep].sum()} pods were still running at the end of the trace; their run time is"
        " cut there",
    )
    return Trace(jobs, pools, len(rows), dropped, notes)


def _types(spec: str, there: set[str]) -> str:
    """Return the distinct types, of which those of no pool count only if no other is named."""
    names = dict.fromkeys(t.strip() for t in spec.split("|") if t.strip())
    return "|".join([name for name in names if name in there] or names)


def _pools(path: Path) -> tuple[TracePool, ...]:
    rows = csv_rows(path, NODES)
    count = Counter(
        (m, int(g))
        for m, g in zip(rows["model"], rows["gpu"].tolist(), strict=True)
        if m and g >= 1
    )
    if not count:
        raise input_error(path, "has no node with GPUs")
    shapes = Counter(m for m, _ in count)
    return tuple(
        TracePool(m if shapes[m] == 1 else f"{m}-{g}", m, n * g, g, SPEED.get(m, 1.0))
        for (m, g), n in sorted(count.items())
    )
