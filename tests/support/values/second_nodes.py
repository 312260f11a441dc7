"""A second account of the rules about nodes (R57 to R60), from the tables and plan.json alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from second_reading import Row
from second_values import Reading

from allocator.domain.snapshot import Snapshot

EPS = 1e-6


def node_faults(snapshot: Snapshot, plan: dict[str, Any]) -> Iterator[str]:
    """Yield every rule about nodes that a plan breaks."""
    r = Reading.of_snapshot(snapshot)
    node = {row["node"]: row for row in r.table("nodes")}
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for row in r.table("placements"):
        held[row["job_id"]][row["node"]] = row["gpus"]
    listed = {row["pool"] for row in node.values()}
    placed = [entry for entry in plan["jobs"] if entry["pool"] in listed]
    for entry in placed:
        name, job = entry["job_id"], r.by[entry["job_id"]]
        spot = {place["node"]: place["gpus"] for place in entry["nodes"] or ()}
        # a firm job of unknown place keeps its GPUs wherever they may be
        unknown = name not in held and not job["preemptible"]
        stays = spot == held.get(name) or (unknown and entry["action"] == "keep")
        nodes = [node[n] for n in spot]
        for words in (
            *_wish_faults(job, entry, nodes, stays, r.at[entry["pool"]]),
            *_shape_faults(r, job, entry, len(nodes), stays),
        ):
            yield f"{name}: {words}"
        if entry["action"] == "keep" and name in held and not stays:
            yield f"{name}: keeps, but on other nodes"
    yield from _total_faults(r, node, placed)


def _wish_faults(job: Row, entry: Row, nodes: list[Row], stays: bool, pool: Row) -> Iterator[str]:
    places, share = entry["nodes"] or (), job.get("gpu_fraction")
    given = sum(place["gpus"] for place in places)
    if given != entry["gpus"]:
        yield f"nodes give {given} of {entry['gpus']} GPUs"
    for place in places:
        if (share is None) != ("gpu" not in place):
            yield "a share of a GPU, or none"
        elif share and (abs(place["fraction"] - share) > EPS or len(places) != 1):
            yield "not its share of one GPU"
    if any(row["pool"] != entry["pool"] for row in nodes):
        yield "a node of another pool"
    is_firm = stays and not job["preemptible"]
    if any(row.get("state", "up") != "up" for row in nodes) and not is_firm:
        yield "on a node that is not up"
    wish = job.get("placement", "packed")
    packed = math.ceil(entry["gpus"] / pool["gpus_per_node"])
    if wish == "packed" and not stays and len(nodes) > packed:
        yield f"packed on {len(nodes)} nodes"
    level = wish.removeprefix("same_")
    if level != wish and len({row.get(level) for row in nodes}) > 1:
        yield f"not in one {level}"


def _shape_faults(r: Reading, job: Row, entry: Row, nodes: int, stays: bool) -> Iterator[str]:
    """Where rates.csv has speeds on several numbers of nodes, that of the plan's nodes counts."""
    pool, gpus = r.at[entry["pool"]], entry["gpus"]
    if entry["shared_with"]:
        return
    speed: dict[int, list[float]] = defaultdict(list)
    for row in r.rates:
        if (row["model"], row["gpu_type"], row["gpus"]) == (job["model"], pool["gpu_type"], gpus):
            speed[row.get("spread", 0)].append(row["work_per_s"] * row["efficiency"])
    largest = max(p["gpus_per_node"] for p in r.pools if p["gpu_type"] == pool["gpu_type"])
    shapes = {k: v for k, v in speed.items() if k > math.ceil(gpus / largest)}
    if not shapes:
        return
    if nodes > math.ceil(gpus / pool["gpus_per_node"]) and nodes not in shapes and not stays:
        yield f"on {nodes} nodes, for which no speed is known"
    usual = [s for k, v in speed.items() if k not in shapes for s in v]
    right = shapes.get(nodes) or usual
    if right and abs(entry["work_per_s"] - max(right)) > EPS:
        yield f"on {nodes} nodes at {entry['work_per_s']}, not at {max(right)}"


def _total_faults(r: Reading, node: dict[str, Row], placed: list[Row]) -> Iterator[str]:
    whole, shares = defaultdict[str, int](int), defaultdict[tuple[str, int], float](float)
    needs = {name: defaultdict[str, float](float) for name in ("cpus", "host_memory_gb")}
    for entry in placed:
        for place in entry["nodes"] or ():
            for limit, used in needs.items():
                each = r.by[entry["job_id"]].get(f"{limit}_per_gpu", 0.0)
                used[place["node"]] += place["gpus"] * each
            if "gpu" in place:
                shares[place["node"], place["gpu"]] += place["fraction"]
            else:
                whole[place["node"]] += place["gpus"]
    for (n, gpu), share in shares.items():
        whole[n] += 1
        if share > 1 + EPS or gpu >= node[n]["gpus"]:
            yield f"{n}: GPU {gpu} is given {share} times"
    for n, row in node.items():
        if whole[n] > row["gpus"]:
            yield f"{n}: {whole[n]} GPUs of {row['gpus']}"
        for limit, used in needs.items():
            if used[n] > row.get(limit, math.inf) + EPS:
                yield f"{n}: {limit} {used[n]} of {row[limit]}"
