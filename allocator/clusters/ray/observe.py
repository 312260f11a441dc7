"""A Ray cluster as a snapshot: which jobs a plan may decide about, on which GPUs.

Submitted jobs whose entrypoint has GPUs are jobs. One that states what it can do may be stopped and
submitted again with another size; its placement groups and actors then count as its GPUs, too.
Everything else that holds GPUs is counted out of its nodes. A job that waits is Ray's to start: it
cannot be stopped, so it keeps its size.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocator.clusters.adapter import ClusterView, Json, Record
from allocator.clusters.ray.resources import (
    ACTOR,
    NODE_ID,
    OWNED,
    Holding,
    RayNode,
    find_refused_nodes,
    read_holdings,
    read_nodes,
)
from allocator.clusters.ray.settings import RaySettings
from allocator.clusters.statements import (
    KEY,
    accept_fields,
    count_remaining,
    split_progress,
    sum_usable,
)
from allocator.io.progress_sources import Progress

CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
LEAST_S = 60.0  # that a running job is taken to have left


@dataclass(frozen=True)
class _Job:
    """A submitted job: what Ray says of it, what it says of itself, and its GPUs by node."""

    record: Record
    said: Record
    held: Mapping[str, int]
    asked: int  # GPUs of its entrypoint
    pool: str
    held_because: str = ""

    @property
    def ident(self) -> str:
        return str(self.record["submission_id"])

    @property
    def is_running(self) -> bool:
        return bool(self.record["status"] == "RUNNING")

    @property
    def gpus(self) -> int:
        return sum(self.held.values()) or self.asked


def observe_ray(
    answers: Mapping[str, Sequence[Record]],
    settings: RaySettings,
    now_s: float,
    progress: Mapping[str, Progress] | None = None,
) -> ClusterView:
    """Return a Ray cluster as the tables of a snapshot, with notes and details.

    Parameters
    ----------
    answers : mapping of str to sequence of mapping
        Jobs, nodes, actors, placement groups and running tasks, as Ray lists them.
    settings : RaySettings
        How jobs are taken.
    now_s : float
        Time of the look, in unix seconds.
    progress : mapping of str to Progress, optional
        How far running jobs are, by job, in the unit of their work.
    """
    return _Look(answers, settings, now_s, progress or {}).view()


class _Look:
    """One look at a cluster, as it is turned into tables."""

    def __init__(
        self,
        answers: Mapping[str, Sequence[Record]],
        settings: RaySettings,
        now_s: float,
        progress: Mapping[str, Progress],
    ) -> None:
        self.settings = settings
        self.now_s = now_s
        self.progress = progress
        self.notes: list[str] = []
        self.nodes = read_nodes(answers["nodes"], find_refused_nodes(answers["jobs"]))
        self.node_of = {node.node_id: node for node in self.nodes}
        lists = (answers[kind] for kind in ("actors", "placement_groups", "tasks"))
        self.holdings = list(read_holdings(*lists))
        self.requests = {
            str(actor["name"]).removeprefix(ACTOR): actor
            for actor in answers["actors"]
            if str(actor.get("name") or "").startswith(ACTOR)
        }
        records = [one for one in answers["jobs"] if one.get("submission_id")]
        found = (self._consider(one) for one in records)
        self.jobs = [job for job in found if job is not None]

    def view(self) -> ClusterView:
        """Return the tables, notes and details."""
        tables = {
            "jobs.csv": [self._job_row(job) for job in self.jobs],
            "pools.csv": self._pool_rows(),
            "nodes.csv": self._node_rows(),
            "placements.csv": [
                {"job_id": job.ident, "node": node, "gpus": gpus}
                for job in self.jobs
                for node, gpus in job.held.items()
            ],
            "tenants.csv": [
                {"tenant": name} for name in sorted({self._tenant(job) for job in self.jobs})
            ],
        }
        config = {"now_s": self.now_s, "unknown_models": "assume", **self.settings.config}
        return ClusterView(tables, config, tuple(self.notes), self._details())

    def _consider(self, record: Record) -> _Job | None:
        """Return a submitted job as one of the snapshot, or None for one that is left out."""
        ident = str(record["submission_id"])
        status = record.get("status")
        if status not in ("RUNNING", "PENDING") or CONTROL.search(ident):
            return None
        if OWNED in (record.get("metadata") or {}):
            self.notes.append(f"{ident}: a queue of the allocator runs it; its GPUs are occupied")
            return None
        statement, fault = read_statement(record)
        said, _ = split_progress(statement)
        if fault:
            self.notes.append(f"{ident}: what it says of itself does not count: {fault}")
        request = self.requests.get(ident, {})
        asked = float((request.get("required_resources") or {}).get("GPU") or 0.0)
        if status == "PENDING":
            return self._consider_waiting(record, said, asked, request) if asked else None
        mine = [one for one in self.holdings if self._is_of(one, record, bool(said))]
        held: Counter[str] = Counter()
        for one in mine:
            if one.node_id in self.node_of:
                held[self.node_of[one.node_id].name] += one.gpus  # type: ignore[assignment]
        nodes = [node for node in self.nodes if node.name in held]
        reason = ""
        if any(gpus != int(gpus) for gpus in held.values()):
            reason = "it holds shares of GPUs"
        elif len({node.pool for node in nodes}) > 1:
            reason = "it holds GPUs of several pools"
        elif any(node.state != "up" for node in nodes):
            reason = "its node is drained"
        if reason:
            self.notes.append(f"{ident}: {reason}; they count as occupied")
        if reason or not held:
            return None
        whole = {name: int(gpus) for name, gpus in held.items()}
        return _Job(record, said, whole, int(asked), nodes[0].pool)

    def _consider_waiting(
        self, record: Record, said: Record, asked: float, request: Record
    ) -> _Job:
        because = ""
        others = sorted(request["required_resources"].keys() - {"GPU", "CPU", "memory"})
        if asked != int(asked):
            because = "it asks for shares of GPUs"
        elif others or request.get("label_selector"):
            because = f"it asks for {', '.join(others) or 'labels of nodes'}"
        elif all(asked > node.gpus for node in self.nodes):
            because = "no node has so many GPUs"
        if because:
            self.notes.append(
                f"{record['submission_id']}: {because}; it is held in the snapshot and left to Ray"
            )
        return _Job(record, said, {}, max(1, math.ceil(asked)), "", because)

    def _is_of(self, one: Holding, record: Record, is_declared: bool) -> bool:
        """Return whether GPUs are those of a job: of its entrypoint, or what its driver made."""
        if one.submission_id:
            return one.submission_id == str(record["submission_id"])
        return is_declared and one.ray_job_id == str(record.get("job_id") or "nobody")

    def _tenant(self, job: _Job) -> str:
        named = (job.record.get("metadata") or {}).get(self.settings.tenant)
        return CONTROL.sub(" ", str(named or "ray")).strip() or "ray"

    def _job_row(self, job: _Job) -> Json:
        said = dict(job.said)
        gpus = job.gpus
        submitted_s = min(float(job.record.get("start_time") or 0.0) / 1000.0, self.now_s)
        total = said.pop("total_work", None)
        left = said.pop("remaining_work", None)
        if total is None and left is None:
            passed = self.now_s - submitted_s if job.is_running else 0.0
            left = max(LEAST_S, self.settings.assumed_s - passed)
        left = total if left is None else left
        if total is not None and job.ident in self.progress:
            left = count_remaining(total, self.progress[job.ident])
        state = "running" if job.is_running else "held" if job.held_because else "queued"
        row = {
            "job_id": job.ident,
            "model": CONTROL.sub(" ", said.pop("model", job.ident)),
            "submitted_s": submitted_s,
            "tenant": self._tenant(job),
            "state": state,
            "remaining_work": left,
            "total_work": None if total is None else max(total, left),
            **self._sizes(job, said),
            **said,
        }
        if job.is_running:
            row |= {"pool": job.pool, "gpus": gpus}
            row["attained_gpu_s"] = gpus * max(0.0, self.now_s - submitted_s)
            if not job.said:
                row["preemptible"] = False
        return row

    def _sizes(self, job: _Job, said: Json) -> Json:
        """Return the sizes of a job: elastic only where it says so and can be stopped."""
        low, high, sizes = (said.pop(name, None) for name in ("min_gpus", "max_gpus", "sizes"))
        gpus = job.gpus
        if not job.is_running or (low, high, sizes) == (None, None, None):
            return {"min_gpus": gpus, "max_gpus": gpus, "requested_gpus": gpus, "sizes": [gpus]}
        low = low or (min(sizes) if sizes else min(gpus, high or gpus))
        high = high or max([*(sizes or ()), gpus, low])
        if job.asked:  # an entrypoint is on one node
            most = max(node.gpus for node in self.nodes)
            sizes = [size for size in sizes or range(low, high + 1) if low <= size <= most]
        return {
            "min_gpus": min(low, gpus),
            "max_gpus": max(high, gpus),
            "requested_gpus": gpus,
            "sizes": sorted({*sizes, gpus}) if sizes else None,
        }

    def _node_rows(self) -> list[Json]:
        """Return nodes.csv: the GPUs of a node are those that nothing left out holds."""
        ours = Counter[str]()
        for job in self.jobs:
            ours.update(job.held)
        held: Counter[str] = Counter()
        for one in self.holdings:
            held[one.node_id] += one.gpus  # type: ignore[assignment]
        return [
            {
                "node": node.name,
                "pool": node.pool,
                "gpus": max(
                    ours[node.name],
                    node.gpus - math.ceil(held[node.node_id] - ours[node.name]),
                ),
                "state": node.state,
                "cpus": node.cpus,
                "host_memory_gb": node.memory_gb,
            }
            for node in self.nodes
        ]

    def _pool_rows(self) -> list[Json]:
        nodes = self._node_rows()
        first: dict[str, RayNode] = {}
        for node in self.nodes:
            first.setdefault(node.pool, node)
        return [
            {
                "pool": pool,
                "gpu_type": node.gpu_type,
                "gpus": sum_usable(nodes, pool),
                **self.settings.pools.get(pool, {}),
            }
            for pool, node in first.items()
        ]

    def _details(self) -> Json:
        """Return what the commands of a plan need to know."""
        return {
            "now_s": self.now_s,
            "address": self.settings.address,
            "nodes": {node.name: node.node_id for node in self.nodes},
            "jobs": {
                job.ident: {
                    "status": job.record["status"],
                    "entrypoint": job.record.get("entrypoint"),
                    "metadata": job.record.get("metadata") or {},
                    "runtime_env": job.record.get("runtime_env") or {},
                    "has_gpus": bool(job.asked),
                    "gpus": job.gpus,
                    "node": self._entry_node(job),
                }
                for job in self.jobs
            },
        }

    def _entry_node(self, job: _Job) -> str:
        selector = self.requests.get(job.ident, {}).get("label_selector") or {}
        return str(job.record.get("driver_node_id") or selector.get(NODE_ID) or "")


def read_statement(record: Record) -> tuple[Json, str]:
    """Return what a job says of itself in its metadata, and what is wrong with it.

    Examples
    --------
    >>> read_statement({"metadata": {"allocator": '{"min_gpus": 1, "max_gpus": 4}'}})
    ({'min_gpus': 1, 'max_gpus': 4}, '')
    """
    text = (record.get("metadata") or {}).get(KEY)
    if text is None:
        return {}, ""
    try:
        fields = json.loads(text)
    except (TypeError, ValueError):
        return {}, "it is no JSON"
    said, faults = accept_fields(fields)
    return said, (faults or [""])[0]
