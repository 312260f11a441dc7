"""A second account of plans on nodes, from the tables and plan.json alone: the rules about nodes
(R57 to R60), actions, speeds, values and money. Rounds have no colocation, curves or quotas.csv.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from second_reading import Row
from second_values import Reading
from second_ways import Way

from allocator.domain.snapshot import Snapshot

EPS = 1e-6


def node_faults(snapshot: Snapshot, plan: dict[str, Any]) -> Iterator[str]:
    """Yield every rule about nodes that a plan breaks, and every number that is wrong."""
    r = Reading.of_snapshot(snapshot)
    held: dict[str, dict[Any, int]] = defaultdict(dict)
    for row in r.table("placements"):
        held[row["job_id"]][row["node"], row.get("gpu")] = row["gpus"]
    for entry in plan["jobs"]:
        job = r.by[entry["job_id"]]
        for words in _job_faults(r, job, entry, held.get(job["job_id"])):
            yield f"{job['job_id']}: {words}"
    yield from _node_faults(r, plan)
    changed = sum(e["action"] not in ("keep", "wait", "start") for e in plan["jobs"])
    lifted = [int(n) for w in plan["warnings"] for n in re.findall(r"is lifted to (\d+)", w)]
    if changed > max([r.config["max_changes"], *lifted]):
        yield f"{changed} running jobs change"
    if abs(plan["objective_value"] - sum(e["value"] or 0.0 for e in plan["jobs"])) > EPS:
        yield f"objective_value {plan['objective_value']} is not the sum of its jobs"


def _job_faults(r: Reading, job: Row, entry: Row, before: Any) -> Iterator[str]:
    now = {(p["node"], p.get("gpu")): p["gpus"] for p in entry["nodes"] or ()}
    held, got = r.held(job), (entry["pool"], entry["gpus"])
    kept = held == got and before in (None, now)
    # a firm job of unknown place keeps its GPUs wherever they may be
    stays = kept and (before is not None or not job["preemptible"])
    if not held or not got[1]:
        action = "pause" if held else "start" if got[1] else "wait"
    else:
        larger = "grow" if got[1] > held[1] else "shrink"
        action = "keep" if kept else "move" if got[0] != held[0] or got[1] == held[1] else larger
    if entry["action"] != action:
        yield f"action {entry['action']}, not {action}"
    if held and not kept and not job["preemptible"]:
        yield "is not preemptible, and changes"
    if not got[1]:
        if not entry["reason"]:
            yield "no reason"
        return
    if held and not kept and job["resizes_left"] == 0:
        yield "has no resizes left, and changes"
    yield from _wish_faults(r, job, entry, stays)
    rate = _right_rate(r, job, entry, len({node for node, _ in now}), stays)
    if rate is None:
        yield "on so many nodes no speed is known"
        return
    way = Way(got, rate, 0.0 if kept else r.lost(job, got), kept)
    for name, right in (
        ("work_per_s", rate),
        ("value", r.valued(job, way) if rate else 0.0),
        ("cost_per_hour", got[1] * r.price(job, got)),
    ):
        if abs(entry[name] - right) > EPS * max(1.0, right):
            yield f"{name} {entry[name]}, not {right}"


def _wish_faults(r: Reading, job: Row, entry: Row, stays: bool) -> Iterator[str]:
    places, share = entry["nodes"] or (), job.get("gpu_fraction")
    nodes = [row for row in r.table("nodes") if row["node"] in {p["node"] for p in places}]
    if sum(place["gpus"] for place in places) != entry["gpus"]:
        yield "nodes do not give its GPUs"
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
    packed = math.ceil(entry["gpus"] / r.at[entry["pool"]]["gpus_per_node"])
    if wish == "packed" and not stays and len(nodes) > packed:
        yield f"packed on {len(nodes)} nodes"
    level = wish.removeprefix("same_")
    if level != wish and len({row.get(level) for row in nodes}) > 1:
        yield f"not in one {level}"


def _right_rate(r: Reading, job: Row, entry: Row, nodes: int, stays: bool) -> float | None:
    """Where rates.csv has speeds on several numbers of nodes, that of the plan's nodes counts."""
    pool, gpus = r.at[entry["pool"]], entry["gpus"]
    speed: dict[int, list[float]] = defaultdict(list)
    for row in r.rates:
        if (row["model"], row["gpu_type"], row["gpus"]) == (job["model"], pool["gpu_type"], gpus):
            speed[row.get("spread", 0)].append(row["work_per_s"] * row["efficiency"])
    largest = max(p["gpus_per_node"] for p in r.pools if p["gpu_type"] == pool["gpu_type"])
    shapes = {k: v for k, v in speed.items() if k > math.ceil(gpus / largest)}
    if not shapes:
        return r.rate_in(pool, job["model"], gpus) or 0.0
    if nodes > math.ceil(gpus / pool["gpus_per_node"]) and nodes not in shapes and not stays:
        return None
    return max(shapes.get(nodes) or [s for k, v in speed.items() if k not in shapes for s in v])


def _node_faults(r: Reading, plan: dict[str, Any]) -> Iterator[str]:
    """Yield where a node gives more GPUs, CPUs or memory than it has, or a pool counts wrongly."""
    used = dict.fromkeys(r.at, 0)
    for row in r.table("nodes"):
        places = (
            (r.by[entry["job_id"]], place)
            for entry in plan["jobs"]
            for place in entry["nodes"] or ()
        )
        here = [(job, place) for job, place in places if place["node"] == row["node"]]
        shares = defaultdict[int, float](float)
        for _, place in here:
            if "gpu" in place:
                shares[place["gpu"]] += place["fraction"]
        if any(share > 1 + EPS or gpu >= row["gpus"] for gpu, share in shares.items()):
            yield f"{row['node']}: shares {shares}"
        whole = len(shares) + sum(place["gpus"] for _, place in here if "gpu" not in place)
        used[row["pool"]] += whole
        if whole > row["gpus"]:
            yield f"{row['node']}: {whole} GPUs of {row['gpus']}"
        for limit in ("cpus", "host_memory_gb"):
            needed = sum(place["gpus"] * job.get(f"{limit}_per_gpu", 0.0) for job, place in here)
            if needed > row.get(limit, math.inf) + EPS:
                yield f"{row['node']}: {limit} {needed} of {row[limit]}"
    for pool in plan["pools"]:
        if pool["used"] != used[pool["pool"]]:
            yield f"{pool['pool']}: used {pool['used']}"
