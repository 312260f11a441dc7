"""Put the GPUs of a generated workload on nodes that stand in racks."""

from __future__ import annotations

from dataclasses import replace

from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

NODE = 8  # GPUs of a node where pools.csv does not say


def with_nodes(made: GeneratedWorkload, nodes_per_rack: int) -> GeneratedWorkload:
    """Return the workload with nodes.csv.

    A pool gets nodes of `gpus_per_node` GPUs, the last one with what is left, and each rack has
    `nodes_per_rack` of them. Pools whose GPUs come and go by capacity.csv get none.
    """
    pools = made.tables["pools.csv"]
    changing = set(made.tables.get("capacity.csv", {}).get("pool", ()))
    sizes = pools.get("gpus_per_node", [NODE] * len(pools["pool"]))
    rows = [
        (f"{name}-{first // size}", name, min(size, gpus - first), f"{name}-r{rack}")
        for name, gpus, size in zip(pools["pool"], pools["gpus"], sizes, strict=True)
        if name not in changing
        for first in range(0, int(gpus), int(size))
        for rack in [first // size // nodes_per_rack]
    ]
    if not rows:
        return made
    columns = zip(("node", "pool", "gpus", "rack"), zip(*rows, strict=True), strict=True)
    nodes: Columns = {name: list(cells) for name, cells in columns}
    return replace(made, tables={**made.tables, "nodes.csv": nodes})
