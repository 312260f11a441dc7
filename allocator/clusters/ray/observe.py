"""A Ray cluster as a snapshot: which jobs a plan may decide about, on which GPUs.

Submitted jobs whose entrypoint has GPUs are jobs. One that states what it can do may be stopped and
submitted again with another size; its placement groups and actors then count as its GPUs, too.
Everything else that holds GPUs is counted out of its nodes. A job that waits is Ray's to start: it
cannot be stopped, so it keeps its size.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allocator.clusters.adapter import ClusterView
from allocator.clusters.ray.resources import (
    ACTOR,
    NODE_ID,
    OWNED,
    find_refused_nodes,
    read_gpus,
    read_holdings,
    read_nodes,
)
from allocator.clusters.statements import (
    CONTROL,
    KEY,
    accept_fields,
    clean,
    count_remaining,
    keep_size,
    split_progress,
    sum_usable,
    take_sizes,
    take_work,
)
from allocator.io.progress_sources import Progress
from allocator.objects import Json, Record

LEAST_S = 60.0  # that a running job is taken to have left
HOUR_S = 3600.0


@dataclass(frozen=True)
class RaySettings:
    """State where a Ray cluster is, and how its jobs are taken.

    Parameters
    ----------
    address : str, optional
        Address of the dashboard; default: $RAY_API_SERVER_ADDRESS, or port 8265 of this machine.
    tenant : str
        Key of the metadata of a job that names its tenant.
    assumed_s : float
        Seconds that a job takes which does not state its work.
    config : mapping of str to object
        Settings for config.toml.
    pools : mapping of str to mapping
        By pool, further columns of pools.csv, such as price_per_gpu_hour.
    """

    address: str | None = None
    tenant: str = "tenant"
    assumed_s: float = HOUR_S
    config: Record = field(default_factory=dict)
    pools: Mapping[str, Record] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    """A submitted job: what Ray says of it, what it says of itself, and its GPUs by node."""

    record: Record
    said: Record
    held: Mapping[str, int]
    asked: int  # GPUs of its entrypoint
    pool: str = ""
    held_because: str = ""

    @property
    def ident(self) -> str:
        return str(self.record["submission_id"])

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
        names = [(str(actor.get("name") or ""), actor) for actor in answers["actors"]]
        self.requests = {n.removeprefix(ACTOR): actor for n, actor in names if n.startswith(ACTOR)}
        considered = [
            self._consider(record) for record in answers["jobs"] if record.get("submission_id")
        ]
        self.jobs = [job for job in considered if job is not None]

    def view(self) -> ClusterView:
        """Return the tables, notes and details."""
        rows = [self._job_row(job) for job in self.jobs]
        nodes = self._node_rows()
        first = {node.pool: node for node in reversed(self.nodes)}
        tables = {
            "jobs.csv": rows,
            "pools.csv": [
                {
                    "pool": pool,
                    "gpu_type": first[pool].gpu_type,
                    "gpus": sum_usable(nodes, pool),
                    **self.settings.pools.get(pool, {}),
                }
                for pool in dict.fromkeys(node.pool for node in self.nodes)
            ],
            "nodes.csv": nodes,
            "placements.csv": [
                {"job_id": job.ident, "node": node, "gpus": gpus}
                for job in self.jobs
                for node, gpus in job.held.items()
            ],
            "tenants.csv": [{"tenant": name} for name in sorted({row["tenant"] for row in rows})],
        }
        config = {"now_s": self.now_s, "unknown_models": "assume", **self.settings.config}
        details = {  # what the commands of a plan need to know
            "now_s": self.now_s,
            "address": self.settings.address,
            "nodes": {node.name: node.node_id for node in self.nodes},
            "jobs": {job.ident: self._describe(job) for job in self.jobs},
        }
        return ClusterView(tables, config, tuple(self.notes), details)

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
        asked = read_gpus(request)
        if status == "PENDING":
            return self._consider_waiting(record, said, asked, request) if asked else None
        held: Counter[str] = Counter()
        for holding in self.holdings:
            # GPUs of its entrypoint, or what the driver of a job made that says what it can do
            is_drivers = bool(said) and holding.ray_job_id == str(record.get("job_id") or "nobody")
            is_mine = holding.submission_id == ident if holding.submission_id else is_drivers
            if is_mine and holding.node_id in self.node_of:
                held[self.node_of[holding.node_id].name] += holding.gpus  # type: ignore[assignment]
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
        return _Job(record, said, {}, max(1, math.ceil(asked)), held_because=because)

    def _job_row(self, job: _Job) -> Json:
        said = dict(job.said)
        is_running = bool(job.held)
        submitted_s = min(float(job.record.get("start_time") or 0.0) / 1000.0, self.now_s)
        passed = self.now_s - submitted_s if is_running else 0.0
        work = take_work(said, max(LEAST_S, self.settings.assumed_s - passed))
        if job.said.get("total_work") is not None and job.ident in self.progress:
            left = count_remaining(job.said["total_work"], self.progress[job.ident])
            work = take_work({**job.said, "remaining_work": left}, 0.0)
        row = {
            "job_id": job.ident,
            "model": CONTROL.sub(" ", said.pop("model", job.ident)),
            "submitted_s": submitted_s,
            "tenant": clean(
                str((job.record.get("metadata") or {}).get(self.settings.tenant) or "ray"), "ray"
            ),
            "state": "running" if is_running else "held" if job.held_because else "queued",
            **work,
            **self._sizes(job, said),
            **said,
        }
        if is_running:
            row |= {"pool": job.pool, "gpus": job.gpus}
            row["attained_gpu_s"] = job.gpus * max(0.0, passed)
            if not job.said:
                row["preemptible"] = False
        return row

    def _sizes(self, job: _Job, said: Json) -> Json:
        """Return the sizes of a job: elastic only where it says so and can be stopped."""
        gpus = job.gpus
        stated = take_sizes(said, gpus)
        if not job.held or stated is None:
            return keep_size(gpus)
        low, high, sizes = stated
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
        ours, held = Counter[str](), Counter[str]()
        for job in self.jobs:
            ours.update(job.held)
        for holding in self.holdings:
            held[holding.node_id] += holding.gpus  # type: ignore[assignment]
        rows = []
        for node in self.nodes:
            own = ours[node.name]
            gpus = max(own, node.gpus - math.ceil(held[node.node_id] - own))
            row = {"node": node.name, "pool": node.pool, "gpus": gpus, "state": node.state}
            rows.append({**row, "cpus": node.cpus, "host_memory_gb": node.memory_gb})
        return rows

    def _describe(self, job: _Job) -> Json:
        selector = self.requests.get(job.ident, {}).get("label_selector") or {}
        return {
            "status": job.record["status"],
            "entrypoint": job.record.get("entrypoint"),
            "metadata": job.record.get("metadata") or {},
            "runtime_env": job.record.get("runtime_env") or {},
            "has_gpus": bool(job.asked),
            "gpus": job.gpus,
            "node": str(job.record.get("driver_node_id") or selector.get(NODE_ID) or ""),
        }


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
        said, faults = accept_fields(json.loads(text))
    except (TypeError, ValueError):
        return {}, "it is no JSON"
    return said, (faults or [""])[0]
