"""A second account of counts, money and numbers of a plan on nodes, from the tables and plan.json.

It covers rounds without colocation, curves and quotas.csv. Rules about nodes are in
second_nodes.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from second_reading import Row, typed_rows
from second_values import Reading
from second_ways import Way

from allocator.domain.snapshot import Snapshot

EPS = 1e-6


class PlanReader(Reading):
    """A round as docs/reference/rules.md defines it.

    Attributes
    ----------
    short : dict
        Set by `faults`: tenants that get less than their guarantee could be by counts, and the
        GPUs that they get. Nodes may hold no more; `best_on_nodes.most_gpus` knows.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(*typed_rows(snapshot))
        self.places: dict[str, set[tuple[str, Any]]] = defaultdict(set)
        for row in self.table("placements"):
            self.places[row["job_id"]].add((row["node"], row.get("gpu")))
        self.short: dict[str, int] = {}

    def faults(self, plan: dict[str, Any]) -> Iterator[str]:
        """Yield every rule that the plan breaks, and every number that is wrong."""
        self.short = {}
        if sorted(entry["job_id"] for entry in plan["jobs"]) != sorted(self.by):
            yield "not every job once"
            return
        for entry in plan["jobs"]:
            job = self.by[entry["job_id"]]
            for words in (*self._option_faults(job, entry), *self._number_faults(job, entry)):
                yield f"{entry['job_id']}: {words}"
        yield from self._pool_faults(plan)
        yield from self._tenant_faults(plan)
        yield from self._total_faults(plan)

    def _is_moved(self, job: Row, entry: Row) -> bool:
        """Return whether a job keeps pool and size, but not its nodes and GPUs."""
        now = {(place["node"], place.get("gpu")) for place in entry["nodes"] or ()}
        before = self.places.get(job["job_id"])
        same = self.held(job) == (entry["pool"], entry["gpus"])
        return same and before is not None and bool(entry["nodes"]) and now != before

    def _is_kept(self, job: Row, entry: Row) -> bool:
        is_held = self.held(job) == (entry["pool"], entry["gpus"])
        return is_held and not self._is_moved(job, entry)

    def _option_faults(self, job: Row, entry: Row) -> Iterator[str]:
        held, kept = self.held(job), self._is_kept(job, entry)
        if held and not job["preemptible"] and not kept and not self._has_lost(job):
            yield "is not preemptible, and changes"
        if not entry["gpus"]:
            return
        if held and job["resizes_left"] == 0 and not kept:
            yield "has no resizes left, and changes"
        got = (entry["pool"], entry["gpus"])
        if held != got and not self.may_have(job, self.at[got[0]], got[1]):
            yield f"{entry['gpus']} GPUs are not one of its sizes"

    def _has_lost(self, job: Row) -> bool:
        """Return whether nodes of a job have lost GPUs or are smaller than what is on them."""
        mine = {node for node, _ in self.places[job["job_id"]]}
        crowd = [j for j, spot in self.places.items() if mine & {node for node, _ in spot}]
        used = sum(self.by[j]["gpus"] for j in crowd)
        return used > sum(row["gpus"] for row in self.table("nodes") if row["node"] in mine)

    def _number_faults(self, job: Row, entry: Row) -> Iterator[str]:
        held, got = self.held(job), (entry["pool"], entry["gpus"])
        action = "start" if got[1] else "wait"
        if held:
            larger = "keep" if got[1] == held[1] else "grow" if got[1] > held[1] else "shrink"
            action = "pause" if not got[1] else "move" if got[0] != held[0] else larger
            action = "move" if self._is_moved(job, entry) else action
        if entry["action"] != action:
            yield f"action {entry['action']}, not {action}"
        if not got[1]:
            if not entry["reason"]:
                yield "no reason"
            return
        rate = self.rate_in(self.at[got[0]], job["model"], got[1]) or 0.0
        kept = action == "keep"
        way = Way(got, rate, 0.0 if kept else self.lost(job, got), kept)
        for name, right in (
            ("work_per_s", rate),
            ("value", self.valued(job, way) if rate else 0.0),
            ("cost_per_hour", self._cost(entry)),
        ):
            if abs(entry[name] - right) > EPS * max(1.0, right):
                yield f"{name} {entry[name]}, not {right}"

    def _cost(self, entry: Row) -> float:
        pool, gpus = entry["pool"], entry["gpus"]
        return gpus * self.price(self.by[entry["job_id"]], (pool, gpus)) if pool else 0.0

    def _pool_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        """Yield where a pool gives more GPUs than it has, or counts them wrongly."""
        nodes = self.table("nodes")
        up = {row["node"] for row in nodes if row.get("state", "up") == "up"}
        for pool in plan["pools"]:
            jobs = [entry for entry in plan["jobs"] if entry["pool"] == pool["pool"]]
            places = [place for entry in jobs for place in entry["nodes"] or ()]
            split = {(place["node"], place["gpu"]) for place in places if "gpu" in place}
            gpus = [(place["node"], place["gpus"]) for place in places if "gpu" not in place]
            gpus += [(node, 1) for node, _ in split]
            used = sum(k for _, k in gpus)
            if pool["used"] != used:
                yield f"{pool['pool']}: used {pool['used']}, not {used}"
            if sum(k for node, k in gpus if node in up) > self.at[pool["pool"]]["gpus"]:
                yield f"{pool['pool']}: more than its up nodes have"

    def _tenant_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        owed = {
            name: int(gpus)
            for text in plan["warnings"]
            for name, gpus in re.findall(r'guaranteed to tenant "(\w+)": it is owed (\d+)', text)
        }
        for row in self.tenants:
            name, wanted = row["tenant"], row["guaranteed_gpus"]
            gpus = sum(e["gpus"] for e in plan["jobs"] if self.by[e["job_id"]]["tenant"] == name)
            if gpus > row["max_gpus"]:
                yield f"{name}: {gpus} GPUs, max_gpus {row['max_gpus']}"
            if gpus < min(wanted, owed.get(name, wanted)):
                self.short[name] = gpus

    def _total_faults(self, plan: dict[str, Any]) -> Iterator[str]:
        cost = sum(self._cost(entry) for entry in plan["jobs"])
        if cost > self.config["budget_per_hour"] + EPS:
            yield f"{cost} $/h are above the budget"
        changed = sum(
            self.held(job) is not None and not self._is_kept(job, entry)
            for entry in plan["jobs"]
            for job in [self.by[entry["job_id"]]]
        )
        limit = self.config["max_changes"]
        lifted = [int(n) for w in plan["warnings"] for n in re.findall(r"is lifted to (\d+)", w)]
        if changed > max([limit, *lifted]):
            yield f"{changed} running jobs change, max_changes {limit}"
        value, bound = plan["objective_value"], plan["bound"]
        if abs(value - sum(e["value"] or 0.0 for e in plan["jobs"])) > EPS * max(1.0, value):
            yield f"objective_value {value} is not the sum of its jobs"
        if bound < value - EPS or abs(plan["gap"] - (bound - value) / max(abs(value), 1e-9)) > EPS:
            yield f"bound {bound} and gap {plan['gap']} of {value}"
