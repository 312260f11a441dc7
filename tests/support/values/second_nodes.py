"""A second account of the rules about nodes (R57 to R60), from the tables and plan.json alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from allocator.domain.snapshot import Snapshot

EPS = 1e-6


def node_faults(snapshot: Snapshot, plan: dict[str, Any]) -> Iterator[str]:
    """Yield every rule about nodes that a plan breaks."""
    job = {row["job_id"]: row for row in rows(snapshot, "jobs.csv")}
    node = {row["node"]: row for row in rows(snapshot, "nodes.csv")}
    pools = {row["pool"]: row for row in rows(snapshot, "pools.csv")}
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows(snapshot, "placements.csv"):
        held[row["job_id"]][row["node"]] = int(float(row["gpus"]))
    listed = {row["pool"] for row in node.values()}
    placed = [entry for entry in plan["jobs"] if entry["pool"] in listed]
    for entry in placed:
        mine, spot = job[entry["job_id"]], _spot(entry)
        # a firm job of unknown place keeps its GPUs wherever they may be
        unknown = entry["job_id"] not in held and mine.get("preemptible", "").lower() == "false"
        stays = spot == held.get(entry["job_id"]) or (unknown and entry["action"] == "keep")
        per_node = number(pools[entry["pool"]], "gpus_per_node", 8.0)
        for words in (
            *_shape_faults(snapshot, mine, entry, pools[entry["pool"]], len(spot), stays),
            *_amount_faults(mine, entry, spot),
            *_state_faults(mine, entry, [node[n] for n in spot], stays),
            *_wish_faults(mine, entry, [node[n] for n in spot], stays, per_node),
        ):
            yield f"{entry['job_id']}: {words}"
        if entry["action"] == "keep" and entry["job_id"] in held and not stays:
            yield f"{entry['job_id']}: keeps, but on other nodes"
    yield from _total_faults(job, node, placed)


def _spot(entry: dict[str, Any]) -> dict[str, int]:
    return {place["node"]: place["gpus"] for place in entry["nodes"] or ()}


def _amount_faults(
    job: dict[str, str], entry: dict[str, Any], spot: dict[str, int]
) -> Iterator[str]:
    if sum(spot.values()) != entry["gpus"]:
        yield f"nodes give {sum(spot.values())} of {entry['gpus']} GPUs"
    share = number(job, "gpu_fraction", math.nan)
    for place in entry["nodes"] or ():
        if math.isnan(share) != ("gpu" not in place):
            yield "a share of a GPU, or none"
        elif "gpu" in place and (abs(place["fraction"] - share) > EPS or len(spot) != 1):
            yield "not its share of one GPU"


def _state_faults(
    job: dict[str, str], entry: dict[str, Any], nodes: list[dict[str, str]], stays: bool
) -> Iterator[str]:
    if any(row["pool"] != entry["pool"] for row in nodes):
        yield "a node of another pool"
    firm = job.get("preemptible", "").lower() == "false"
    if any((row.get("state") or "up") != "up" for row in nodes) and not (firm and stays):
        yield "on a node that is not up"


def _wish_faults(
    job: dict[str, str],
    entry: dict[str, Any],
    nodes: list[dict[str, str]],
    stays: bool,
    per_node: float,
) -> Iterator[str]:
    wish = job.get("placement") or "packed"
    if wish == "packed" and not stays and len(nodes) > math.ceil(entry["gpus"] / per_node):
        yield f"packed on {len(nodes)} nodes"
    level = wish.removeprefix("same_")
    if level != wish and len({row.get(level) for row in nodes}) > 1:
        yield f"not in one {level}"


def _shape_faults(
    snapshot: Snapshot,
    job: dict[str, str],
    entry: dict[str, Any],
    pool: dict[str, str],
    nodes: int,
    stays: bool,
) -> Iterator[str]:
    """Where rates.csv has speeds on several numbers of nodes, that of the plan's nodes counts."""
    if entry["shared_with"]:
        return
    speed: dict[int, list[float]] = defaultdict(list)
    for row in rows(snapshot, "rates.csv"):
        key = (row["model"], row["gpu_type"], float(row["gpus"]))
        if key == (job["model"], pool["gpu_type"], entry["gpus"]):
            efficiency = number(row, "efficiency", 1.0)
            speed[int(number(row, "spread", 0))].append(float(row["work_per_s"]) * efficiency)
    sizes = [
        number(one, "gpus_per_node", 8.0)
        for one in rows(snapshot, "pools.csv")
        if one["gpu_type"] == pool["gpu_type"]
    ]
    shapes = {k: v for k, v in speed.items() if k > math.ceil(entry["gpus"] / max(sizes))}
    if not shapes:
        return
    packed = math.ceil(entry["gpus"] / number(pool, "gpus_per_node", 8.0))
    if nodes > packed and nodes not in shapes and not stays:
        yield f"on {nodes} nodes, for which no speed is known"
    usual = [s for k, v in speed.items() if k not in shapes for s in v]
    right = shapes.get(nodes) or usual
    if right and abs(entry["work_per_s"] - max(right)) > EPS:
        yield f"on {nodes} nodes at {entry['work_per_s']}, not at {max(right)}"


def _total_faults(
    job: dict[str, dict[str, str]], node: dict[str, dict[str, str]], placed: list[dict[str, Any]]
) -> Iterator[str]:
    whole, shares = defaultdict[str, int](int), defaultdict[tuple[str, int], float](float)
    needs = {name: defaultdict[str, float](float) for name in ("cpus", "host_memory_gb")}
    for entry in placed:
        for place in entry["nodes"] or ():
            for limit, used in needs.items():
                each = number(job[entry["job_id"]], f"{limit}_per_gpu", 0.0)
                used[place["node"]] += place["gpus"] * each
            if "gpu" in place:
                shares[place["node"], place["gpu"]] += place["fraction"]
            else:
                whole[place["node"]] += place["gpus"]
    for (n, gpu), share in shares.items():
        whole[n] += 1
        if share > 1 + EPS or gpu >= float(node[n]["gpus"]):
            yield f"{n}: GPU {gpu} is given {share} times"
    for n, row in node.items():
        if whole[n] > float(row["gpus"]):
            yield f"{n}: {whole[n]} GPUs of {row['gpus']}"
        for limit, used in needs.items():
            if used[n] > number(row, limit, math.inf) + EPS:
                yield f"{n}: {limit} {used[n]} of {row[limit]}"


def rows(snapshot: Snapshot, file: str) -> list[dict[str, str]]:
    """Return the rows of a table."""
    table = snapshot.tables.get(file)
    if table is None:
        return []
    columns = {name: list(table.texts(name)) for name in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def number(row: dict[str, str], name: str, default: float) -> float:
    """Return a number of a row, or the default where its cell is empty."""
    return float(row[name]) if row.get(name) else default
