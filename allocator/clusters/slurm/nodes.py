"""Nodes of Slurm with GPUs, and the pools that they form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allocator.clusters.slurm.gres import count_gpus, shares_in_use
from allocator.clusters.slurm.name_lists import expand_names
from allocator.clusters.slurm.shapes import Record, read_text, read_words

DOWN = frozenset(
    {
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
    }
)
DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
OPEN = frozenset({"UP", "DRAIN"})  # states of partitions in which waiting jobs may start


@dataclass(frozen=True)
class SlurmNode:
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


def read_nodes(
    records: Iterable[Record], partitions: Sequence[Mapping[str, str]]
) -> list[SlurmNode]:
    """Return the nodes with GPUs, one for each type that they have."""
    open_partitions = frozenset(
        p["PartitionName"] for p in partitions if p.get("State", "UP") in OPEN
    )
    found = []
    for record in records:
        has = count_gpus(read_text(record, "gres"))
        uses = read_text(record, "gres_used")
        name = read_text(record, "name")
        for gpu_type, gpus in has.items():
            found.append(
                SlurmNode(
                    row=name if len(has) == 1 else f"{name}+{gpu_type}",
                    node=name,
                    gpu_type=gpu_type,
                    gpus=gpus,
                    used=count_gpus(uses)[gpu_type],
                    state=_read_state(record),
                    partitions=open_partitions.intersection(_texts(record, "partitions")),
                    features=frozenset(_texts(record, "active_features")),
                    is_shared=shares_in_use(uses),
                )
            )
    return found


def _read_state(record: Record) -> str:
    """Return the state of nodes.csv for the state and the flags of a node."""
    words = {word.rstrip("*~#!%$@^-+") for word in read_words(record, "state", "state_flags")}
    if words & DOWN:
        return "down"
    return "drain" if words & DRAIN else "up"


def _texts(record: Record, field: str) -> list[str]:
    """Return a field that is a list, or a text with commas."""
    value = record.get(field)
    parts = value.split(",") if isinstance(value, str) else value or []
    return [str(part).strip() for part in parts if str(part).strip()]


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
    for one in reservations:
        start_s, end_s = _time(one, "StartTime", now_s), _time(one, "EndTime", math.inf)
        found = Reservation(one.get("ReservationName", ""), start_s, end_s)
        for node in expand_names(one.get("Nodes", "").replace("(null)", "")):
            if end_s > now_s and (node not in taken or start_s < taken[node].start_s):
                taken[node] = found
    return taken


def _time(record: Mapping[str, str], field: str, default: float) -> float:
    text = record.get(field, "")
    return float(text) if text.isdecimal() else default


def form_pools(nodes: Sequence[SlurmNode], asked_features: frozenset[str]) -> list[SlurmPool]:
    """Group nodes by what jobs can tell apart: type, GPUs, partitions, and features asked for."""
    groups: dict[tuple[object, ...], list[SlurmNode]] = {}
    for node in nodes:
        if node.partitions:
            key = (
                node.gpu_type,
                node.gpus,
                tuple(sorted(node.partitions)),
                tuple(sorted(node.features & asked_features)),
            )
            groups.setdefault(key, []).append(node)
    members: dict[str, set[str]] = {}
    for node in nodes:
        for partition in node.partitions:
            members.setdefault(partition, set()).add(node.row)
    names: Counter[str] = Counter()
    pools = []
    for group in groups.values():
        first = group[0]
        name = _name_pool(group, members)
        names[name] += 1
        if names[name] > 1:
            name = f"{name}-{names[name]}"
        pools.append(
            SlurmPool(
                name,
                first.gpu_type,
                first.gpus,
                first.partitions,
                first.features & asked_features,
                tuple(group),
            )
        )
    return pools


def _name_pool(group: Sequence[SlurmNode], members: Mapping[str, set[str]]) -> str:
    """Return the partition that has just these nodes, or its partitions and type."""
    rows = {node.row for node in group}
    exact = [name for name in group[0].partitions if members[name] == rows]
    if exact:
        return min(exact, key=lambda name: (len(name), name))
    return f"{'+'.join(sorted(group[0].partitions))}-{group[0].gpu_type}"
