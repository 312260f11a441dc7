"""A second account of plans on nodes, from the tables and plan.json alone: actions, speeds on
so many nodes, values, money, and GPUs of pools.

Rounds have no colocation, curves or quotas.csv. Who may change and where jobs may be is what the
audit says (allocator/audit), which shares no code with what decides and judges every decision.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from second_reading import Row
from second_values import Reading
from second_ways import Way

from allocator.domain.snapshot import Snapshot

EPS = 1e-6


def node_faults(snapshot: Snapshot, plan: dict[str, Any]) -> Iterator[str]:
    """Yield every action and number that is wrong."""
    r = Reading.of_snapshot(snapshot)
    held: dict[str, dict[Any, int]] = defaultdict(dict)
    for row in r.table("placements"):
        held[row["job_id"]][row["node"], row.get("gpu")] = row["gpus"]
    for entry in plan["jobs"]:
        job = r.by[entry["job_id"]]
        for words in _job_faults(r, job, entry, held.get(job["job_id"])):
            yield f"{job['job_id']}: {words}"
    yield from _pool_faults(r, plan)
    if abs(plan["objective_value"] - sum(e["value"] or 0.0 for e in plan["jobs"])) > EPS:
        yield f"objective_value {plan['objective_value']} is not the sum of its jobs"


def _job_faults(r: Reading, job: Row, entry: Row, before: Any) -> Iterator[str]:
    now = {(p["node"], p.get("gpu")): p["gpus"] for p in entry["nodes"] or ()}
    held, got = r.held(job), (entry["pool"], entry["gpus"])
    kept = held == got and before in (None, now)
    # a job that may not be stopped stays on its GPUs, even if its nodes are not known
    stays = kept and (before is not None or not job["preemptible"])
    if not held or not got[1]:
        action = "pause" if held else "start" if got[1] else "wait"
    else:
        larger = "grow" if got[1] > held[1] else "shrink"
        action = "keep" if kept else "move" if got[0] != held[0] or got[1] == held[1] else larger
    if entry["action"] != action:
        yield f"action {entry['action']}, not {action}"
    if not got[1]:
        if not entry["reason"]:
            yield "no reason"
        return
    for node in () if stays else {node for node, _ in now}:
        if _is_stopped(r, job, entry, kept, node):
            yield f"{node} leaves too early"
    if sum(now.values()) != got[1]:
        yield "nodes do not give its GPUs"
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


def _is_stopped(r: Reading, job: Row, entry: Row, kept: bool, node: str) -> bool:
    """Whether a node leaves before a job is done there, or had a round and time to move on."""
    row = next(row for row in r.table("nodes") if row["node"] == node)
    left_s, got = row.get("leaves_s", math.inf) - r.now, (entry["pool"], entry["gpus"])
    if r.now >= row.get("returns_s", math.inf):
        return False
    if left_s <= r.config["interval_s"]:
        return True
    pause_s, startup_s = r.lost(job, got), r.at[got[0]]["startup_s"]
    need_s = pause_s + job["remaining_work"] / entry["work_per_s"]
    if job["preemptible"]:
        need_s = min(need_s, pause_s + r.config["interval_s"] + job["restart_s"] + startup_s)
    return not kept and bool(need_s > left_s * (1 + EPS))


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
    pods = math.ceil(gpus / pool["gpus_per_node"])
    if gpus % job["gpus_per_pod"] == 0:  # else it keeps a size of torn pods
        each = max(1, pool["gpus_per_node"] // job["gpus_per_pod"])
        pods = math.ceil(gpus // job["gpus_per_pod"] / each)
    if nodes > pods and nodes not in shapes and not stays:
        return None
    return max(shapes.get(nodes) or [s for k, v in speed.items() if k not in shapes for s in v])


def _pool_faults(r: Reading, plan: dict[str, Any]) -> Iterator[str]:
    """Yield the pools whose GPUs are counted wrongly: several shares are in one GPU."""
    pool = {row["node"]: row["pool"] for row in r.table("nodes")}
    places = [place for entry in plan["jobs"] for place in entry["nodes"] or ()]
    split = {(place["node"], place["gpu"]) for place in places if "gpu" in place}
    used = Counter(pool[node] for node, _ in split)
    for place in places:
        used[pool[place["node"]]] += 0 if "gpu" in place else place["gpus"]
    for told in plan["pools"]:
        if told["used"] != used[told["pool"]]:
            yield f"{told['pool']}: used {told['used']}, not {used[told['pool']]}"
