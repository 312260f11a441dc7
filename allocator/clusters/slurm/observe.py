"""A Slurm as a snapshot: which jobs a plan may decide about, on which GPUs.

What a plan could not carry out is not in its hands. A running job that Slurm must keep where it is
counts as occupied GPUs, or is in the snapshot as one that is not preemptible. A waiting job that
the snapshot cannot represent is held in it, and left to Slurm.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from allocator.clusters.adapter import ClusterView
from allocator.clusters.slurm.answers import Answers
from allocator.clusters.slurm.constraints import (
    LIMIT,
    NEVER,
    asked_features,
    find_predecessors,
    has_features,
    index_tasks,
)
from allocator.clusters.slurm.gres import GpuRequest
from allocator.clusters.slurm.jobs import SlurmJob, read_jobs
from allocator.clusters.slurm.limits import Quotas, list_tenants
from allocator.clusters.slurm.nodes import (
    SlurmNode,
    SlurmPool,
    form_pools,
    read_nodes,
    reserved_nodes,
)
from allocator.clusters.slurm.settings import MARK, SlurmSettings, read_statement
from allocator.clusters.statements import merge, split_progress, sum_usable

INTERVAL_S = 300.0
ELASTIC = frozenset({"min_gpus", "max_gpus", "sizes"})
NAMED = 3  # jobs that a note names
LEAST_WEIGHT = 0.01
CONTROL = re.compile(r"[\x00-\x1f\x7f]+")

Row = dict[str, Any]


def observe_slurm(answers: Answers, settings: SlurmSettings) -> ClusterView:
    """Return a Slurm as the tables of a snapshot, with notes and details."""
    return _Look(answers, settings).view()


@dataclass(frozen=True)
class _Job:
    """A job of the snapshot: what Slurm says, what it says of itself, and where it may run."""

    slurm: SlurmJob
    said: Mapping[str, Any]
    progress: Mapping[str, str]  # variables that name the source of its progress
    is_marked: bool
    may_change: bool  # its owner, or its partition, says that it may be stopped and resized
    pools: tuple[SlurmPool, ...]
    held_because: str | None = None

    @property
    def ident(self) -> str:
        return self.slurm.name_of_id


class _Look:
    """One look at a cluster, as it is turned into tables."""

    def __init__(self, answers: Answers, settings: SlurmSettings) -> None:
        self.answers = answers
        self.settings = settings
        self.left: dict[str, list[str]] = {}  # reason -> jobs that it concerns
        jobs, self.notes = read_jobs(answers.jobs)
        self.free_tasks = _count_free_tasks(jobs)
        self.interval_s = float(settings.config.get("interval_s", INTERVAL_S))
        nodes = read_nodes(answers.nodes, answers.partitions)
        self.reserved = reserved_nodes(answers.reservations, answers.now_s)
        self.next_s = answers.now_s + self.interval_s
        self.away = {n for n, one in self.reserved.items() if one.start_s <= self.next_s}
        self.pools = form_pools(nodes, asked_features(jobs))
        self.pool_of = {node.row: pool for pool in self.pools for node in pool.nodes}
        self.rows_of: dict[str, dict[str, SlurmNode]] = {}
        for pool in self.pools:
            for node in pool.nodes:
                self.rows_of.setdefault(node.node, {})[node.gpu_type] = node
        considered = [job for job in map(self._consider, jobs) if job is not None]
        self.tasks = index_tasks(job.slurm for job in considered)
        self.jobs = [self._hold_back(job) for job in considered]

    @cached_property
    def gpu_types(self) -> dict[str, str]:
        """The name of the GPU type of each pool, which tells apart what jobs tell apart."""
        allowed = [{pool.name for pool in job.pools} for job in self.jobs if job.pools]
        names = {}
        for pool in self.pools:
            alike = {other.name for other in self.pools if other.gpu_type == pool.gpu_type}
            is_one = all(pools.isdisjoint(alike) or alike <= pools for pools in allowed)
            names[pool.name] = pool.gpu_type if is_one else f"{pool.gpu_type}@{pool.name}"
        return names

    def view(self) -> ClusterView:
        """Return the tables, notes and details."""
        running = [job for job in self.jobs if job.slurm.is_running]
        placements = [
            {"job_id": job.ident, "node": row, "gpus": gpus}
            for job in running
            for row, gpus in self._places(job.slurm).items()
        ]
        nodes = self._node_rows(placements)
        rows = [self._job_row(job) for job in self.jobs]
        quotas = list_tenants(
            (row["tenant"] for row in rows),
            self.settings.tenant,
            self.answers,
            set(self.gpu_types.values()),
        )
        self.notes += quotas.notes
        self._note_gpu_types()
        self._hold_for_unknown_limits(rows, quotas)
        tables = {
            "jobs.csv": rows,
            "pools.csv": self._pool_rows(nodes),
            "nodes.csv": nodes,
            "placements.csv": placements,
            "tenants.csv": quotas.tenants,
            "quotas.csv": quotas.quotas,
        }
        config = {
            "now_s": self.answers.now_s,
            "interval_s": self.interval_s,
            "unknown_models": "assume",
            **self.settings.config,
        }
        return ClusterView(tables, config, (*self.notes, *self._left_notes()), self._details())

    # which jobs

    def _consider(self, job: SlurmJob) -> _Job | None:
        """Return a job as one of the snapshot, or None for one that is left out."""
        is_marked = job.admin_comment.startswith(MARK)
        if self.settings.jobs == "marked" and not is_marked:
            return None
        reason = self._why_left_out(job)
        if reason is not None:
            self._leave(job, reason)
            return None
        said, faults = read_statement(job.comment, job.extra)
        if faults:
            self._leave(job, f"what it says of itself does not count: {faults[0]}")
        defaults: Mapping[str, Any] = {}
        for partition in job.partitions:
            defaults = defaults or self.settings.partitions.get(partition, {})
        may_change = bool(split_progress(said)[0]) or not ELASTIC.isdisjoint(defaults)
        columns, progress = split_progress(merge(defaults, said))
        return _Job(job, columns, progress, is_marked, may_change, self._allowed_pools(job))

    def _leave(self, job: SlurmJob, reason: str) -> None:
        """Note what becomes of a job."""
        self.left.setdefault(reason, []).append(job.name_of_id)

    def _why_left_out(self, job: SlurmJob) -> str | None:
        """Return why a job cannot be in the snapshot; None if it can."""
        if job.het_id:
            return "it is part of a heterogeneous job, which is refused; its GPUs count as occupied"
        if CONTROL.search(job.name):
            return "its name has control characters; it is left to Slurm"
        if job.is_waiting:
            return None
        if not job.is_running:
            return f"it is {'+'.join(job.states)}; its GPUs count as occupied"
        if job.reservation:
            return "it runs in a reservation; its GPUs count as occupied"
        places = self._places(job)
        if not places or sum(places.values()) != job.gpus:
            return "its GPUs are not known by node; they count as occupied"
        names = {row.partition("+")[0] for row in places}
        if any(node.state != "up" for name in names for node in self.rows_of[name].values()):
            return (
                "its node is drained or down, where Slurm lets it end; its GPUs count as occupied"
            )
        if names & self.away:
            return "its node is reserved; its GPUs count as occupied"
        if len({self.pool_of[row].name for row in places}) > 1:
            return "it runs in several pools; its GPUs count as occupied"
        return None

    def _places(self, job: SlurmJob) -> dict[str, int]:
        """Return the GPUs that a job holds by row of nodes.csv."""
        found: dict[str, int] = {}
        for name, types in job.gpus_on.items():
            rows = self.rows_of.get(name, {})
            for gpu_type, gpus in types.items():
                # a node of one type may say what a job holds without the type
                node = rows.get(gpu_type) or (next(iter(rows.values())) if len(rows) == 1 else None)
                if node is not None and gpus:
                    found[node.row] = found.get(node.row, 0) + gpus
        return found

    def _allowed_pools(self, job: SlurmJob) -> tuple[SlurmPool, ...]:
        """Return the pools in which Slurm would let a job run at the size it asked for."""
        return tuple(
            pool
            for pool in self.pools
            if pool.partitions.intersection(job.partitions)
            and (job.request is None or _holds(pool, job.request))
            and has_features(job.features, pool.features)
        )

    def _hold_back(self, job: _Job) -> _Job:
        """Return the job, with what holds it back if no plan may start it."""
        if not job.slurm.is_waiting:
            return job
        because = self._why_held(job) or find_predecessors(job.slurm, self.tasks)[1]
        if because is None and job.slurm.throttle:
            self.free_tasks[job.slurm.array_id] -= 1
            if self.free_tasks[job.slurm.array_id] < 0:
                because = "its array lets no more tasks run at a time"
        if because is not None:
            self._leave(job.slurm, f"{because}; it is held in the snapshot and left to Slurm")
        return replace(job, held_because=because)

    def _why_held(self, job: _Job) -> str | None:
        """Return why no plan may start a waiting job; None if one may."""
        slurm = job.slurm
        if slurm.held and not job.is_marked:
            return "its owner or an administrator holds it"
        if slurm.reservation:
            return "it waits for a reservation"
        if slurm.eligible_s > self.answers.now_s and not slurm.held:
            return "it begins later"
        if slurm.request is None or slurm.request.per in ("", "socket"):
            return "it asks for GPUs in a way that has no size"
        if slurm.required and not job.is_marked:
            return "it asks for nodes by name"
        if slurm.excluded:
            return "it excludes nodes by name"
        if slurm.reason in NEVER:
            return f"Slurm says {slurm.reason}"
        if not job.pools:
            return "no pool of its partition offers what it asks for"
        return None

    def _hold_for_unknown_limits(self, rows: list[Row], quotas: Quotas) -> None:
        """Hold the jobs that a limit keeps waiting of which nothing is known."""
        known = {row["tenant"] for row in quotas.tenants if row["max_gpus"] is not None}
        known |= {row["tenant"] for row in quotas.quotas}
        for job, row in zip(self.jobs, rows, strict=True):
            limited = row["state"] == "queued" and job.slurm.reason.startswith(LIMIT)
            if limited and row["tenant"] not in known:
                row["state"] = "held"
                self._leave(
                    job.slurm,
                    f"a limit of accounting that is not known here ({job.slurm.reason}) keeps it"
                    " waiting; it is held in the snapshot and left to Slurm",
                )

    # tables

    def _job_row(self, job: _Job) -> Row:
        """Return the row of jobs.csv of a job."""
        slurm = job.slurm
        said = dict(job.said)
        row = {
            "job_id": job.ident,
            "model": CONTROL.sub(" ", said.pop("model", slurm.name)).strip() or "unnamed",
            "submitted_s": min(slurm.submitted_s, self.answers.now_s),
            "tenant": self._tenant(slurm),
            "state": self._state(job),
            "weight": said.pop("weight", self._weight(slurm)),
            "deadline_s": said.pop("deadline_s", slurm.deadline_s),
            "restarts": slurm.restarts,
            **self._work(job, said),
            **self._sizes(job, said),
            **said,
        }
        allowed = {self.gpu_types[pool.name] for pool in job.pools}
        if allowed and allowed != set(self.gpu_types.values()):
            row["gpu_types"] = sorted(allowed)
        if slurm.is_waiting and job.held_because is None:
            row["after"] = find_predecessors(slurm, self.tasks)[0]
        if slurm.is_running:
            held_s = max(0.0, self.answers.now_s - slurm.started_s)
            row["pool"] = self.pool_of[next(iter(self._places(slurm)))].name
            row["gpus"] = slurm.gpus
            row["attained_gpu_s"] = slurm.gpus * held_s
            if not (job.may_change and slurm.is_batch and slurm.can_requeue):
                row["preemptible"] = False
        return row

    def _state(self, job: _Job) -> str:
        if job.slurm.is_running:
            return "running"
        if job.held_because is not None:
            return "held"
        return "paused" if job.slurm.restarts and job.is_marked else "queued"

    def _tenant(self, job: SlurmJob) -> str:
        partition = ",".join(job.partitions)
        named = {"account": job.account, "qos": job.qos, "partition": partition}
        return CONTROL.sub(" ", named.get(self.settings.tenant) or job.user).strip() or "unnamed"

    def _weight(self, job: SlurmJob) -> float | None:
        """Return the weight of a job by its priority; jobs whose priority is 0 count as 1."""
        if self.settings.weight == "equal" or not job.priority:
            return None
        return max(LEAST_WEIGHT, job.priority / self._mean_priority)

    @cached_property
    def _mean_priority(self) -> float:
        found = [job.slurm.priority for job in self.jobs if job.slurm.priority]
        return sum(found) / len(found)

    def _work(self, job: _Job, said: dict[str, Any]) -> Row:
        """Return the work of a job: as it says, or the seconds that its time limit leaves."""
        slurm = job.slurm
        total = said.pop("total_work", None)
        left = said.pop("remaining_work", None)
        if left is None and total is None:
            left = self.settings.unlimited_s if slurm.limit_s is None else slurm.limit_s
            if slurm.is_running and slurm.limit_s is not None and slurm.end_s is not None:
                left = slurm.end_s - self.answers.now_s
            left = max(1.0, left)
        elif left is None:
            left = total
        return {
            "remaining_work": left,
            "total_work": None if total is None else max(total, left),
            "time_limit_s": slurm.limit_s,
        }

    def _sizes(self, job: _Job, said: dict[str, Any]) -> Row:
        """Return the sizes of a job: elastic only where it says so and Slurm can change it."""
        most = max((pool.gpus_per_node for pool in job.pools), default=0)
        row, note = split_sizes(said, job.slurm.request, job.slurm.gpus, most)
        if note:
            self._leave(job.slurm, note)
        return row

    def _node_rows(self, placements: Sequence[Row]) -> list[Row]:
        """Return nodes.csv: the GPUs of a node are those that jobs left out do not hold."""
        ours: Counter[str] = Counter()
        for place in placements:
            ours[place["node"]] += place["gpus"]
        rows = []
        for pool in self.pools:
            for node in pool.nodes:
                others = node.gpus if node.is_shared else max(0, node.used - ours[node.row])
                reserved = self.reserved.get(node.node)
                if reserved is not None:
                    words = f"reservation {reserved.name} has the nodes"
                    if node.node not in self.away:
                        words += f" in {reserved.start_s - self.answers.now_s:.0f} s"
                    self.left.setdefault(words, []).append(node.row)
                if node.is_shared:
                    self.left.setdefault(
                        "shares of its GPUs are in use; they count as occupied", []
                    ).append(node.row)
                gpus = max(ours[node.row], node.gpus - others)
                row = {"node": node.row, "pool": pool.name, "gpus": gpus, "state": node.state}
                if reserved is not None:
                    row["leaves_s"] = reserved.start_s
                    row["returns_s"] = reserved.end_s if reserved.end_s < math.inf else None
                rows.append(row)
        return rows

    def _pool_rows(self, nodes: Sequence[Row]) -> list[Row]:
        there = [row for row in nodes if row.get("leaves_s", math.inf) > self.next_s]
        return [
            {
                "pool": pool.name,
                "gpu_type": self.gpu_types[pool.name],
                "gpus": sum_usable(there, pool.name),
                "gpus_per_node": pool.gpus_per_node,
                **self.settings.pools.get(pool.name, {}),
            }
            for pool in self.pools
        ]

    # notes and details

    def _note_gpu_types(self) -> None:
        split = sorted({name for name in self.gpu_types.values() if "@" in name})
        if split:
            self.notes.append(
                "pools of one GPU type have names of their own, since jobs may use only some of"
                f" them; rates are looked up by {', '.join(split)}"
            )

    def _left_notes(self) -> list[str]:
        notes = []
        for reason, names in self.left.items():
            some = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
            what = "job" if len(names) == 1 else f"{len(names)} jobs"
            if names[0] in self.pool_of:
                what = "node" if len(names) == 1 else f"{len(names)} nodes"
            notes.append(f"{what} {some}: {reason}")
        return notes

    def _details(self) -> dict[str, Any]:
        """Return what the script of a plan needs to know."""
        texts = [job.get("tres_per_node") or "" for job in self.answers.jobs]
        return {
            "version": list(self.answers.version),
            "cluster": self.answers.cluster,
            "now_s": self.answers.now_s,
            "gres_prefix": find_gres_prefix(self.answers.version, texts),
            "jobs": {job.ident: self._describe(job) for job in self.jobs},
            "nodes": {row: row.partition("+")[0] for row in self.pool_of},
            "pools": {pool.name: sorted(pool.partitions) for pool in self.pools},
        }

    def _describe(self, job: _Job) -> dict[str, Any]:
        slurm = job.slurm
        request = job.slurm.request
        return {
            "name": slurm.name,
            "user": slurm.user,
            "user_id": slurm.user_id,
            "submitted_s": slurm.submitted_s,
            "state": slurm.states[0],
            "partitions": list(slurm.partitions),
            "gpus": slurm.gpus,
            "per": request.per if request else "",
            "gpu_type": request.gpu_type if request else None,
            "nodes": request.nodes if request else 1,
            "places": self._places(slurm) if slurm.is_running else {},
            "is_marked": job.is_marked,
            "may_change": job.may_change and slurm.is_batch and slurm.can_requeue,
            "gpus_per_node": sorted({pool.gpus_per_node for pool in job.pools}),
            "is_held": slurm.held,
            "left_to_slurm": job.held_because is not None,
            "progress": dict(job.progress),
        }


def split_sizes(
    said: dict[str, Any], request: GpuRequest | None, gpus: int, most: int
) -> tuple[Row, str]:
    """Take the sizes of a job out of what it says; return them as columns, and a note or "".

    Parameters
    ----------
    said : dict of str to object
        Columns that the job states; those of its sizes are removed.
    request : GpuRequest, optional
        What it asks for.
    gpus : int
        GPUs that it holds, or asks for.
    most : int
        Most GPUs of a node that it may use; 0: not known.
    """
    low, high, sizes = (said.pop(name, None) for name in ("min_gpus", "max_gpus", "sizes"))
    is_rigid = (low, high, sizes) == (None, None, None)
    if is_rigid or request is None or request.per != "node":
        note = (
            "it asks for its GPUs in a way that scontrol cannot change (not by --gres or"
            " --gpus-per-node); it keeps its size"
        )
        row = {"min_gpus": gpus, "max_gpus": gpus, "requested_gpus": gpus, "sizes": [gpus]}
        return row, "" if is_rigid else note
    low = low or (min(sizes) if sizes else min(request.gpus, high or request.gpus))
    high = high or max([*(sizes or ()), request.gpus, low])
    most = most or high
    listed = None
    if sizes:
        listed = [k for k in sizes if low <= k <= high and (k <= most or k % most == 0)]
        listed = listed or [gpus]
    return {
        "min_gpus": min(low, gpus),
        "max_gpus": max(high, gpus),
        "requested_gpus": min(max(request.gpus, min(low, gpus)), max(high, gpus)),
        "sizes": listed,
    }, ""


def _count_free_tasks(jobs: Sequence[SlurmJob]) -> Counter[int]:
    """Return how many tasks of each array with a limit of its own may start."""
    limited = [job for job in jobs if job.throttle]
    free = Counter({job.array_id: job.throttle for job in limited})
    free.subtract(job.array_id for job in limited if not job.is_waiting)
    return free


def _holds(pool: SlurmPool, request: GpuRequest) -> bool:
    """Return whether the nodes of a pool have what a job asks for, on as few nodes as it asks."""
    if request.gpu_type not in (None, pool.gpu_type):
        return False
    if request.nodes == 1:
        return request.gpus <= pool.gpus_per_node or (
            request.per != "node" and request.gpus % pool.gpus_per_node == 0
        )
    on_node = request.gpus_on_node
    if on_node is None:
        return request.gpus % pool.gpus_per_node == 0
    return on_node == pool.gpus_per_node


def find_gres_prefix(version: tuple[int, ...], texts: Sequence[str]) -> str:
    """Return how this Slurm spells a request for GPUs by node: "gres:gpu" or "gres/gpu".

    The spelling that it shows for its own jobs counts. A wrong one is accepted, shown, and ignored
    when the job starts.
    """
    for text in texts:
        for prefix in ("gres:gpu", "gres/gpu"):
            if prefix in text:
                return prefix
    return "gres:gpu" if version < (23, 11) else "gres/gpu"
