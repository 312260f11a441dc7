"""Nodes of Slurm with GPUs, and the pools that they form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allocator.clusters.slurm.values import (
    NOTE,
    GpuRequest,
    count_gpus,
    expand_names,
    read_text,
    read_words,
)
from allocator.objects import Record

DOWN = frozenset(
    (
        "DOWN",
        "ERROR",
        "UNKNOWN",
        "FUTURE",
        "NOT_RESPONDING",
        "NO_RESPOND",
        "MAINT",
        "MAINTENANCE",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "INVALID_REG",
    )
)
DRAIN = frozenset(("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"))
OPEN = frozenset(("UP", "DRAIN"))  # states of partitions in which waiting jobs may start
SHARED = ("shard", "mps")


class SlurmNode(NamedTuple):
    """Hold the GPUs of one type of a node.

    Parameters
    ----------
    row : str
        Its name in nodes.csv: that of the node, with the type if the node has several.
    node, gpu_type : str
        The node, and the type.
    gpus, used : int
        GPUs of that type, and those that jobs hold.
    state : str
        "up", "drain" or "down".
    partitions : frozenset of str
        Its partitions in which jobs may start.
    features : frozenset of str
        Its active features.
    is_shared : bool
        Whether shares of its GPUs are in use.
    """

    row: str
    node: str
    gpu_type: str
    gpus: int
    used: int
    state: str
    partitions: frozenset[str]
    features: frozenset[str]
    is_shared: bool


@dataclass(frozen=True)
class SlurmPool:
    """Hold equal nodes: one GPU type, one size, the same partitions and features that matter."""

    name: str
    gpu_type: str
    gpus_per_node: int
    partitions: frozenset[str]
    features: frozenset[str]
    nodes: tuple[SlurmNode, ...]

    def holds(self, request: GpuRequest) -> bool:
        """Return whether nodes have what a job asks for, on as few nodes as it asks."""
        gpus, full = request.gpus, self.gpus_per_node
        if request.gpu_type not in (None, self.gpu_type):
            return False
        if request.per != "node":
            return (request.nodes == 1 and gpus <= full) or gpus % full == 0
        return gpus <= full if request.nodes == 1 else gpus // request.nodes == full


def read_nodes(
    records: Iterable[Record], partitions: Sequence[Mapping[str, str]]
) -> list[SlurmNode]:
    """Return the nodes with GPUs, one for each type that they have."""
    opened = frozenset(p["PartitionName"] for p in partitions if p.get("State", "UP") in OPEN)
    nodes = []
    for record in records:
        has = count_gpus(read_text(record, "gres"))
        uses = read_text(record, "gres_used")
        used = count_gpus(uses)
        name = read_text(record, "name")
        words = {
            word.upper().rstrip("*~#!%$@^-+") for word in read_words(record, "state", "state_flags")
        }
        nodes += [
            SlurmNode(
                name if len(has) == 1 else f"{name}+{gpu_type}",
                name,
                gpu_type,
                gpus,
                used[gpu_type],
                "down" if words & DOWN else "drain" if words & DRAIN else "up",
                opened.intersection(read_words(record, "partitions")),
                frozenset(read_words(record, "active_features")),
                any(  # "shard:a100:2(...)" or "mps:50"
                    part.strip().startswith(SHARED) and not part.strip().endswith(":0")
                    for part in NOTE.sub("", uses).split(",")
                ),
            )
            for gpu_type, gpus in has.items()
        ]
    return nodes


class Reservation(NamedTuple):
    """A reservation of nodes: its name, and its times in unix seconds."""

    name: str
    start_s: float
    end_s: float


def reserved_nodes(
    reservations: Iterable[Mapping[str, str]], now_s: float
) -> dict[str, Reservation]:
    """Return the first reservation of each node that is not over at now_s.

    `reservations` are records of `scontrol show reservation`, with times in unix seconds.
    """
    taken: dict[str, Reservation] = {}
    for record in reservations:
        start, end = record.get("StartTime", ""), record.get("EndTime", "")
        reserved = Reservation(
            record.get("ReservationName", ""),
            float(start) if start.isdecimal() else now_s,
            float(end) if end.isdecimal() else math.inf,
        )
        for node in expand_names(record.get("Nodes", "").replace("(null)", "")):
            if reserved.end_s > now_s and reserved.start_s < taken.get(node, (0, math.inf))[1]:
                taken[node] = reserved
    return taken


def form_pools(nodes: Sequence[SlurmNode], asked_features: frozenset[str]) -> list[SlurmPool]:
    """Group nodes by what jobs can tell apart: type, GPUs, partitions, and features asked for.

    A pool has the name of the partition that has just its nodes, or of its partitions and its type.
    """
    groups: dict[tuple[str, int, frozenset[str], frozenset[str]], list[SlurmNode]] = {}
    for node in nodes:
        if node.partitions:
            key = (node.gpu_type, node.gpus, node.partitions, node.features & asked_features)
            groups.setdefault(key, []).append(node)
    names: Counter[str] = Counter()
    pools = []
    for key, group in groups.items():
        gpu_type, _, partitions, _ = key
        exact = [name for name in partitions if [n for n in nodes if name in n.partitions] == group]
        whole = f"{'+'.join(sorted(partitions))}-{gpu_type}"
        name = min(exact, key=lambda name: (len(name), name), default=whole)
        names[name] += 1
        numbered = f"{name}-{names[name]}" if names[name] > 1 else name
        pools.append(SlurmPool(numbered, *key, tuple(group)))
    return pools
