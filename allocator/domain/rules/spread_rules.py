"""Which rows of rates.csv are spread shapes, and the rules of their column `spread`.

A row with `spread` = k is the speed on k nodes. Where a pool of its GPU type has nodes, the fewest
nodes that hold so many GPUs are the packed shape, and every larger k is a shape of its own. Where
no such pool has nodes, nobody knows on how many nodes a job is: there the row is an alternative to
the other rows of its size.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Bools, Ints
from allocator.domain.rules.rule import Round

ALTERNATIVES = ("batch_size", "accumulation", "memory_gb", "variant", "observed")
"""Columns that distinguish rows of one model, GPU type, size and number of nodes."""


def find_largest_nodes(
    pools: Iterable[tuple[str, str, int]], with_nodes: Container[str]
) -> dict[str, int]:
    """Return the most GPUs of a node by GPU type, for the types of pools that have nodes.

    `pools` has the name, the GPU type and gpus_per_node of each pool.
    """
    largest: dict[str, int] = {}
    for name, gpu_type, gpus in pools:
        if name in with_nodes:
            largest[gpu_type] = max(gpus, largest.get(gpu_type, 0))
    return largest


def count_fewest_nodes(
    gpu_types: Sequence[str], gpus: Ints | Sequence[int], largest: Mapping[str, int]
) -> Ints:
    """Return the fewest nodes that hold so many GPUs of a type, (n,), 0 where none are known."""
    if not largest:
        return np.zeros(len(gpu_types), dtype=np.int64)
    of_node = np.fromiter((largest.get(t, 0) for t in gpu_types), np.int64, len(gpu_types))
    return np.where(of_node > 0, -(-np.asarray(gpus) // np.maximum(of_node, 1)), 0)


def find_shapes(tables: Mapping[str, ParsedTable]) -> Ints:
    """Return the number of nodes of each row of rates.csv that is a spread shape, else 0, (R,)."""
    fewest, spread = _count_fewest(tables), tables["rates.csv"]["spread"]
    return np.where((fewest > 0) & (spread > fewest), spread, 0)


def check(x: Round) -> None:
    """Check the column `spread` where pools of the GPU type have nodes."""
    rates = x["rates.csv"]
    if not len(x["nodes.csv"]) or not len(rates):
        return
    given = rates.given("spread") & rates.ok("spread", "gpus", "gpu_type")
    fewest, kind = _count_fewest(x.tables), rates["gpu_type"]
    known = given & (fewest > 0)
    over = known & (rates["spread"] > rates["gpus"])
    words = "spread {spread} is above gpus {gpus}: each node has at least one GPU of a job"
    rates.faults(over, words)
    rates.warnings(
        known & ~over & (rates["spread"] < fewest),
        "spread {spread} is below the {fewest} nodes that {gpus} x {kind} need by gpus_per_node of"
        " pools.csv: the row counts as the packed shape",
        "spread below what sizes need",
        fewest=fewest,
        kind=kind,
    )
    first = _find_duplicates(rates, known)
    words = "model {model} has this spread at {gpus} x {kind} already in line {line}"
    line = np.asarray(rates.lines)[first]
    rates.faults(first >= 0, words, kind=kind, line=line)
    rates.warnings(
        given & (fewest == 0) & np.isin(kind, x["pools.csv"]["gpu_type"]),
        "spread {spread} is no shape of its own: no pool of {gpu_type} has nodes in nodes.csv, so"
        " the row counts as packed",
        "spread of GPU types without nodes",
    )


def _count_fewest(tables: Mapping[str, ParsedTable]) -> Ints:
    pools, rates = tables["pools.csv"], tables["rates.csv"]
    rows = zip(pools["pool"], pools["gpu_type"], pools["gpus_per_node"].tolist(), strict=True)
    largest = find_largest_nodes(rows, set(tables["nodes.csv"]["pool"]))
    return count_fewest_nodes(rates["gpu_type"], rates["gpus"], largest)


def _find_duplicates(rates: ParsedTable, which: Bools) -> Ints:
    """Return the earlier row of the same model, type, size and shape, (R,), -1 = none."""
    out = np.full(len(rates), -1)
    seen: dict[tuple[object, ...], int] = {}
    names = ("model", "gpu_type", "gpus", "spread", *ALTERNATIVES)
    for i in np.flatnonzero(which).tolist():
        first = seen.setdefault(tuple(str(rates[name][i]) for name in names), i)
        out[i] = first if first < i else -1
    return out
