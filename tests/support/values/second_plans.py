"""A second account of counts, money and numbers of a plan on nodes, from the tables and plan.json.

It covers objective `progress` without colocation, curves and quotas.csv. Rules about nodes are in
second_nodes.py.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from second_nodes import number, rows

from allocator.domain.snapshot import Snapshot

EPS = 1e-6
Row = dict[str, str]
Entry = dict[str, Any]


class PlanReader:
    """A round as docs/reference/rules.md defines it.

    Attributes
    ----------
    short : dict
        Set by `faults`: tenants that get less than their guarantee could be by counts, and the
        GPUs that they get. Nodes may hold no more; `best_on_nodes.most_gpus` knows.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.config = snapshot.config
        self.jobs = {row["job_id"]: row for row in rows(snapshot, "jobs.csv")}
        self.pools = {row["pool"]: row for row in rows(snapshot, "pools.csv")}
        self.tenants = rows(snapshot, "tenants.csv")
        self.nodes = rows(snapshot, "nodes.csv")
        self.places: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for row in rows(snapshot, "placements.csv"):
            self.places[row["job_id"]].add((row["node"], row.get("gpu", "")))
        self.speeds: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for row in rows(snapshot, "rates.csv"):
            self.speeds[row["model"], row["gpu_type"]][int(row["gpus"])] = float(row["work_per_s"])
        self.short: dict[str, int] = {}

    def faults(self, plan: dict[str, Any]) -> Iterator[str]:
        """Yield every rule that the plan breaks, and every number that is wrong."""
        self.short = {}
        if sorted(entry["job_id"] for entry in plan["jobs"]) != sorted(self.jobs):
            yield "not every job once"
            return
        for entry in plan["jobs"]:
            job = self.jobs[entry["job_id"]]
            for words in (*self._option_faults(job, entry), *self._number_faults(job, entry)):
                yield f"{entry['job_id']}: {words}"
        yield from self._pool_faults(plan)
        yield from self._tenant_faults(plan)
        yield from self._total_faults(plan)

    def _held(self, job: Row) -> tuple[str, int] | None:
        return (job["pool"], int(job["gpus"])) if job.get("state") == "running" else None

    def _is_moved(self, job: Row, entry: Entry) -> bool:
        """Return whether a job keeps pool and size, but not its nodes and GPUs."""
        now = {(place["node"], str(place.get("gpu", ""))) for place in entry["nodes"] or ()}
        before = self.places.get(job["job_id"])
        same = self._held(job) == (entry["pool"], entry["gpus"])
        return same and before is not None and bool(entry["nodes"]) and now != before

    def _is_kept(self, job: Row, entry: Entry) -> bool:
        held = self._held(job) == (entry["pool"], entry["gpus"])
        return held and not self._is_moved(job, entry)

    def _speed(self, job: Row, pool: str, gpus: int) -> float:
        measured = self.speeds[job["model"], self.pools[pool]["gpu_type"]]
        if gpus in measured or not min(measured) < gpus < max(measured):
            return measured.get(gpus, 0.0)
        low, high = max(k for k in measured if k < gpus), min(k for k in measured if k > gpus)
        line = (gpus - low) / (high - low)
        return min(measured[low] * (1 - line) + measured[high] * line, measured[low] * gpus / low)

    def _option_faults(self, job: Row, entry: Entry) -> Iterator[str]:
        held, kept = self._held(job), self._is_kept(job, entry)
        firm = job.get("preemptible", "").lower() == "false"
        if held and firm and not kept and not self._has_lost(job):
            yield "is not preemptible, and changes"
        if not entry["gpus"]:
            return
        if held and job.get("resizes_left") == "0" and not kept:
            yield "has no resizes left, and changes"
        sizes = {int(k) for k in job["sizes"].split("|")}
        fits = int(number(job, "min_gpus", 1)) <= entry["gpus"] <= int(job["max_gpus"])
        if held != (entry["pool"], entry["gpus"]) and not (fits and entry["gpus"] in sizes):
            yield f"{entry['gpus']} GPUs are not one of its sizes"

    def _has_lost(self, job: Row) -> bool:
        """Return whether nodes of a job have lost GPUs or are smaller than what is on them."""
        mine = {node for node, _ in self.places[job["job_id"]]}
        crowd = [j for j, spot in self.places.items() if mine & {node for node, _ in spot}]
        used = sum(int(self.jobs[j]["gpus"]) for j in crowd)
        return used > sum(int(float(row["gpus"])) for row in self.nodes if row["node"] in mine)

    def _number_faults(self, job: Row, entry: Entry) -> Iterator[str]:
        held, pool, gpus = self._held(job), entry["pool"], entry["gpus"]
        action = "start" if gpus else "wait"
        if held:
            larger = "keep" if gpus == held[1] else "grow" if gpus > held[1] else "shrink"
            action = "pause" if not gpus else "move" if pool != held[0] else larger
            action = "move" if self._is_moved(job, entry) else action
        if entry["action"] != action:
            yield f"action {entry['action']}, not {action}"
        if not gpus:
            if not entry["reason"]:
                yield "no reason"
            return
        rate = self._speed(job, pool, gpus)
        pause = number(self.pools[pool], "startup_s", 0.0)
        if held:
            pause += number(job, "restart_s", float(self.config.get("restart_s", 30.0)))
        pause = 0.0 if action == "keep" else pause
        done = rate * max(0.0, float(self.config.get("interval_s", 300.0)) - pause)
        value = number(job, "weight", 1.0) * min(1.0, done / float(job["remaining_work"]))
        for name, right in (
            ("work_per_s", rate),
            ("value", value),
            ("cost_per_hour", self._cost(entry)),
        ):
            if abs(entry[name] - right) > EPS * max(1.0, right):
                yield f"{name} {entry[name]}, not {right}"

    def _cost(self, entry: Entry) -> float:
        price = number(self.pools[entry["pool"]], "price_per_gpu_hour", 0.0) if entry["pool"] else 0
        return float(entry["gpus"] * price)

    def _pool_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        """Yield where a pool gives more GPUs than it has, or counts them wrongly."""
        up = {row["node"] for row in self.nodes if (row.get("state") or "up") == "up"}
        for pool in plan["pools"]:
            mine = [row for row in self.nodes if row["pool"] == pool["pool"]]
            whole, shares = defaultdict[bool, int](int), set[tuple[str, int]]()
            for entry in plan["jobs"]:
                for place in (entry["nodes"] or ()) if entry["pool"] == pool["pool"] else ():
                    if "gpu" in place:
                        shares.add((place["node"], place["gpu"]))
                    else:
                        whole[place["node"] in up] += place["gpus"]
            for node, _ in shares:
                whole[node in up] += 1
            if pool["used"] != whole[True] + whole[False]:
                yield f"{pool['pool']}: used {pool['used']}, not {dict(whole)}"
            if whole[True] > sum(int(float(row["gpus"])) for row in mine if row["node"] in up):
                yield f"{pool['pool']}: more than its up nodes have"

    def _tenant_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        owed = {
            name: int(gpus)
            for text in plan["warnings"]
            for name, gpus in re.findall(r'guaranteed to tenant "(\w+)": it is owed (\d+)', text)
        }
        for row in self.tenants:
            name = row["tenant"]
            mine = [e for e in plan["jobs"] if self.jobs[e["job_id"]]["tenant"] == name]
            gpus = sum(entry["gpus"] for entry in mine)
            if gpus > number(row, "max_gpus", math.inf):
                yield f"{name}: {gpus} GPUs, max_gpus {row['max_gpus']}"
            wanted = int(number(row, "guaranteed_gpus", 0))
            if gpus < min(wanted, owed.get(name, wanted)):
                self.short[name] = gpus

    def _total_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        cost = sum(self._cost(entry) for entry in plan["jobs"])
        if cost > float(self.config.get("budget_per_hour", math.inf)) + EPS:
            yield f"{cost} $/h are above the budget"
        changed = sum(
            self._held(job) is not None and not self._is_kept(job, entry)
            for entry in plan["jobs"]
            for job in [self.jobs[entry["job_id"]]]
        )
        limit = int(self.config.get("max_changes", len(self.jobs)))
        lifted = [int(n) for w in plan["warnings"] for n in re.findall(r"is lifted to (\d+)", w)]
        if changed > max([limit, *lifted]):
            yield f"{changed} running jobs change, max_changes {limit}"
        value, bound = plan["objective_value"], plan["bound"]
        if abs(value - sum(e["value"] or 0.0 for e in plan["jobs"])) > EPS * max(1.0, value):
            yield f"objective_value {value} is not the sum of its jobs"
        if bound < value - EPS or abs(plan["gap"] - (bound - value) / max(abs(value), 1e-9)) > EPS:
            yield f"bound {bound} and gap {plan['gap']} of {value}"
