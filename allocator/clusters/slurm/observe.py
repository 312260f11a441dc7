"""A Slurm as a snapshot: which jobs a plan may decide about, on which GPUs.

What a plan could not carry out is not in its hands. A running job that Slurm must keep where it is
counts as occupied GPUs, or is in the snapshot as one that is not preemptible. A waiting job that
the snapshot cannot represent is held in it, and left to Slurm.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from allocator.clusters.adapter import ClusterView
from allocator.clusters.slurm.answers import Answers
from allocator.clusters.slurm.jobs import (
    SlurmJob,
    asked_features,
    find_predecessors,
    has_features,
    index_tasks,
    read_jobs,
)
from allocator.clusters.slurm.limits import list_tenants
from allocator.clusters.slurm.nodes import (
    SlurmNode,
    SlurmPool,
    form_pools,
    read_nodes,
    reserved_nodes,
)
from allocator.clusters.slurm.settings import MARK, SlurmSettings, read_statement
from allocator.clusters.slurm.values import GpuRequest
from allocator.clusters.statements import (
    CONTROL,
    clean,
    keep_size,
    merge,
    split_progress,
    sum_usable,
    take_sizes,
    take_work,
)
from allocator.objects import Json

INTERVAL_S = 300.0
ELASTIC = frozenset(("min_gpus", "max_gpus", "sizes"))
NAMED = 3  # jobs that a note names
LEAST_WEIGHT = 0.01
NEVER = frozenset(
    (
        "DEPENDENCYNEVERSATISFIED",
        "BADCONSTRAINTS",
        "LICENSES",
        "INVALIDACCOUNT",
        "INVALIDQOS",
        "PARTITIONTIMELIMIT",
        "PARTITIONNODELIMIT",
        "PARTITIONDOWN",
        "PARTITIONINACTIVE",
    )
)
LIMIT = ("ASSOC", "QOS")  # beginnings of reasons that name a limit of accounting


def observe_slurm(answers: Answers, settings: SlurmSettings) -> ClusterView:
    """Return a Slurm as the tables of a snapshot, with notes and details."""
    return _Look(answers, settings).view()


@dataclass(frozen=True)
class _Job:
    """A job of the snapshot: what Slurm says, what it says of itself, and where it may run."""

    slurm: SlurmJob
    said: Json
    progress: Mapping[str, str]  # variables that name the source of its progress
    is_marked: bool
    may_change: bool  # Slurm can, and its owner or partition says that it may be stopped
    pools: tuple[SlurmPool, ...]
    held_because: str | None = None


class _Look:
    """One look at a cluster, as it is turned into tables."""

    def __init__(self, answers: Answers, settings: SlurmSettings) -> None:
        self.answers = answers
        self.settings = settings
        self.now_s = answers.now_s
        self.left: defaultdict[str, list[str]] = defaultdict(list)  # jobs by what becomes of them
        jobs, self.notes = read_jobs(answers.jobs)
        limited = [job for job in jobs if job.throttle]
        # how many tasks of each array with a limit of its own may start
        self.free_tasks = Counter({job.array_id: job.throttle for job in limited})
        self.free_tasks.subtract(job.array_id for job in limited if not job.is_waiting)
        self.interval_s = float(settings.config.get("interval_s", INTERVAL_S))
        self.reserved = reserved_nodes(answers.reservations, self.now_s)
        self.next_s = self.now_s + self.interval_s
        self.away = {
            n for n, reservation in self.reserved.items() if reservation.start_s <= self.next_s
        }
        nodes = read_nodes(answers.nodes, answers.partitions)
        self.pools = form_pools(nodes, asked_features(jobs))
        self.pool_of = {node.row: pool for pool in self.pools for node in pool.nodes}
        self.rows_of: defaultdict[str, dict[str, SlurmNode]] = defaultdict(dict)
        for pool in self.pools:
            for node in pool.nodes:
                self.rows_of[node.node][node.gpu_type] = node
        considered = [job for job in map(self._consider, jobs) if job is not None]
        self.tasks = index_tasks(job.slurm for job in considered)
        self.jobs = {job.slurm.name_of_id: self._hold_back(job) for job in considered}
        priorities = [job.slurm.priority for job in self.jobs.values() if job.slurm.priority]
        self.mean_priority = sum(priorities) / max(1, len(priorities))
        # the GPU type of each pool, which tells apart what jobs tell apart
        allowed = [{pool.name for pool in job.pools} for job in self.jobs.values() if job.pools]
        self.gpu_types = {}
        for pool in self.pools:
            alike = {other.name for other in self.pools if other.gpu_type == pool.gpu_type}
            is_one = all(pools.isdisjoint(alike) or alike <= pools for pools in allowed)
            self.gpu_types[pool.name] = pool.gpu_type + ("" if is_one else f"@{pool.name}")

    def view(self) -> ClusterView:
        """Return the tables, notes and details."""
        placements = [
            {"job_id": ident, "node": row, "gpus": gpus}
            for ident, job in self.jobs.items()
            if job.slurm.is_running
            for row, gpus in self._places(job.slurm).items()
        ]
        nodes = self._node_rows(placements)
        rows = [self._job_row(job) for job in self.jobs.values()]
        types = sorted(set(self.gpu_types.values()))
        tenants, quotas, notes = list_tenants(
            (row["tenant"] for row in rows), self.settings.tenant, self.answers, types
        )
        limited = {row["tenant"] for row in (*tenants, *quotas) if row["max_gpus"] is not None}
        for row in rows:  # held by a limit of which nothing is known
            reason = self.jobs[row["job_id"]].slurm.reason
            is_held_back = row["state"] == "queued" and reason.startswith(LIMIT)
            if is_held_back and row["tenant"] not in limited:
                row["state"] = "held"
                self.left[
                    f"a limit of accounting that is not known here ({reason}) keeps it"
                    " waiting; it is held in the snapshot and left to Slurm"
                ].append(row["job_id"])
        tables = {
            "jobs.csv": rows,
            "pools.csv": self._pool_rows(nodes),
            "nodes.csv": nodes,
            "placements.csv": placements,
            "tenants.csv": tenants,
            "quotas.csv": quotas,
        }
        config = {
            "now_s": self.now_s,
            "interval_s": self.interval_s,
            "unknown_models": "assume",
            **self.settings.config,
        }
        if split := [name for name in types if "@" in name]:
            notes.append(
                "pools of one GPU type have names of their own, since jobs may use only some of"
                f" them; rates are looked up by {', '.join(split)}"
            )
        for reason, names in self.left.items():
            kind = "node" if names[0] in self.pool_of else "job"
            what = kind if len(names) == 1 else f"{len(names)} {kind}s"
            some = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
            notes.append(f"{what} {some}: {reason}")
        return ClusterView(tables, config, (*self.notes, *notes), self._details())

    # which jobs

    def _consider(self, job: SlurmJob) -> _Job | None:
        """Return a job as one of the snapshot, or None for one that is left out."""
        is_marked = job.admin_comment.startswith(MARK)
        if self.settings.jobs == "marked" and not is_marked:
            return None
        reason = self._why_left_out(job)
        if reason is not None:
            self.left[reason].append(job.name_of_id)
            return None
        said, faults = read_statement(job.comment, job.extra)
        for fault in faults[:1]:
            self.left[f"what it says of itself does not count: {fault}"].append(job.name_of_id)
        named = (self.settings.partitions.get(partition, {}) for partition in job.partitions)
        defaults = next(filter(None, named), {})
        is_declared = bool(split_progress(said)[0]) or not ELASTIC.isdisjoint(defaults)
        columns, progress = split_progress(merge(defaults, said))
        pools = tuple(  # in which Slurm would let it run at the size it asked for
            pool
            for pool in self.pools
            if pool.partitions.intersection(job.partitions)
            and (job.request is None or pool.holds(job.request))
            and has_features(job.features, pool.features)
        )
        return _Job(job, columns, progress, is_marked, is_declared and job.can_restart, pools)

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
        if job.resv_name:
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

    def _places(self, job: SlurmJob) -> Counter[str]:
        """Return the GPUs that a job holds by row of nodes.csv."""
        places = Counter[str]()
        for name, types in job.gpus_on.items():
            rows = self.rows_of.get(name, {})
            # a node of one type may say what a job holds without the type
            only = next(iter(rows.values())) if len(rows) == 1 else None
            for gpu_type, gpus in types.items():
                node = rows.get(gpu_type, only)
                if node is not None and gpus:
                    places[node.row] += gpus
        return places

    def _hold_back(self, job: _Job) -> _Job:
        """Return the job, with what holds it back if no plan may start it."""
        slurm = job.slurm
        if not slurm.is_waiting:
            return job
        because = self._why_held(job) or find_predecessors(slurm, self.tasks)[1]
        if because is None and slurm.throttle:
            self.free_tasks[slurm.array_id] -= 1
            if self.free_tasks[slurm.array_id] < 0:
                because = "its array lets no more tasks run at a time"
        if because is not None:
            words = f"{because}; it is held in the snapshot and left to Slurm"
            self.left[words].append(slurm.name_of_id)
        return replace(job, held_because=because)

    def _why_held(self, job: _Job) -> str | None:
        """Return why no plan may start a waiting job; None if one may."""
        slurm = job.slurm
        if slurm.held and not job.is_marked:
            return "its owner or an administrator holds it"
        if slurm.resv_name:
            return "it waits for a reservation"
        if slurm.eligible_s > self.now_s and not slurm.held:
            return "it begins later"
        if slurm.request is None or slurm.request.per in ("", "socket"):
            return "it asks for GPUs in a way that has no size"
        if slurm.required_nodes and not job.is_marked:
            return "it asks for nodes by name"
        if slurm.excluded_nodes:
            return "it excludes nodes by name"
        if slurm.reason in NEVER:
            return f"Slurm says {slurm.reason}"
        return None if job.pools else "no pool of its partition offers what it asks for"

    # tables

    def _job_row(self, job: _Job) -> Json:
        """Return the row of jobs.csv of a job."""
        slurm = job.slurm
        said = dict(job.said)
        weight = None  # jobs whose priority is 0 count as 1
        if self.settings.weight == "priority" and slurm.priority:
            weight = max(LEAST_WEIGHT, slurm.priority / self.mean_priority)
        row = {
            "job_id": slurm.name_of_id,
            "model": clean(said.pop("model", slurm.name)),
            "submitted_s": min(slurm.submitted_s, self.now_s),
            "tenant": self._tenant(slurm),
            "state": self._state(job),
            "weight": said.pop("weight", weight),
            "deadline_s": said.pop("deadline_s", slurm.deadline_s),
            "restarts": slurm.restarts,
        }
        # without a word of its work, the seconds that its time limit leaves
        left_s = self.settings.unlimited_s if slurm.limit_s is None else slurm.limit_s
        if slurm.is_running and slurm.limit_s is not None and slurm.end_s is not None:
            left_s = slurm.end_s - self.now_s
        most = max((pool.gpus_per_node for pool in job.pools), default=0)
        row |= {**take_work(said, max(1.0, left_s)), "time_limit_s": slurm.limit_s}
        sizes, note = split_sizes(said, slurm.request, slurm.gpus, most)
        row |= sizes | said
        if note:
            self.left[note].append(slurm.name_of_id)
        allowed = {self.gpu_types[pool.name] for pool in job.pools}
        if allowed and allowed != set(self.gpu_types.values()):
            row["gpu_types"] = sorted(allowed)
        if slurm.is_waiting and job.held_because is None:
            row["after"] = find_predecessors(slurm, self.tasks)[0]
        if slurm.is_running:
            held_s = max(0.0, self.now_s - slurm.started_s)
            row["pool"] = self.pool_of[next(iter(self._places(slurm)))].name
            row["gpus"] = slurm.gpus
            row["attained_gpu_s"] = slurm.gpus * held_s
            if not job.may_change:
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
        return clean(named.get(self.settings.tenant) or job.user)

    def _node_rows(self, placements: Sequence[Json]) -> list[Json]:
        """Return nodes.csv: the GPUs of a node are those that jobs left out do not hold."""
        ours: Counter[str] = Counter()
        for place in placements:
            ours[place["node"]] += place["gpus"]
        rows = []
        for pool in self.pools:
            for node in pool.nodes:
                others = node.gpus if node.is_shared else max(0, node.used - ours[node.row])
                gpus = max(ours[node.row], node.gpus - others)
                row: Json = {"node": node.row, "pool": pool.name, "gpus": gpus, "state": node.state}
                if (reserved := self.reserved.get(node.node)) is not None:
                    name, row["leaves_s"], end_s = reserved
                    row["returns_s"] = end_s if end_s < math.inf else None
                    words = f"reservation {name} has the nodes"
                    if node.node not in self.away:
                        words += f" in {reserved.start_s - self.now_s:.0f} s"
                    self.left[words].append(node.row)
                if node.is_shared:
                    words = "shares of its GPUs are in use; they count as occupied"
                    self.left[words].append(node.row)
                rows.append(row)
        return rows

    def _pool_rows(self, nodes: Sequence[Json]) -> list[Json]:
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

    def _details(self) -> Json:
        """Return what the script of a plan needs to know."""
        texts = [job.get("tres_per_node") or "" for job in self.answers.jobs]
        return {
            "version": list(self.answers.version),
            "cluster": self.answers.cluster,
            "now_s": self.now_s,
            "gres_prefix": find_gres_prefix(self.answers.version, texts),
            "jobs": {ident: self._describe(job) for ident, job in self.jobs.items()},
            "nodes": {row: row.partition("+")[0] for row in self.pool_of},
            "pools": {pool.name: sorted(pool.partitions) for pool in self.pools},
        }

    def _describe(self, job: _Job) -> Json:
        slurm = job.slurm
        request = slurm.request or GpuRequest("", None, 0, 1)
        return {
            "name": slurm.name,
            "user": slurm.user,
            "user_id": slurm.user_id,
            "submitted_s": slurm.submitted_s,
            "state": slurm.states[0],
            "partitions": list(slurm.partitions),
            "gpus": slurm.gpus,
            "per": request.per,
            "gpu_type": request.gpu_type,
            "nodes": request.nodes,
            "places": dict(self._places(slurm)) if slurm.is_running else {},
            "is_marked": job.is_marked,
            "may_change": job.may_change,
            "gpus_per_node": sorted({pool.gpus_per_node for pool in job.pools}),
            "is_held": slurm.held,
            "left_to_slurm": job.held_because is not None,
            "progress": dict(job.progress),
        }


def split_sizes(said: Json, request: GpuRequest | None, gpus: int, most: int) -> tuple[Json, str]:
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
    stated = take_sizes(said, request.gpus if request else gpus)
    if stated is None:
        return keep_size(gpus), ""
    if request is None or request.per != "node":
        return keep_size(gpus), (
            "it asks for its GPUs in a way that scontrol cannot change (not by --gres or"
            " --gpus-per-node); it keeps its size"
        )
    low, high, sizes = stated
    most = most or high
    listed = [k for k in sizes if low <= k <= high and (k <= most or k % most == 0)]
    low, high = min(low, gpus), max(high, gpus)
    return {
        "min_gpus": low,
        "max_gpus": high,
        "requested_gpus": min(max(request.gpus, low), high),
        "sizes": (listed or [gpus]) if sizes else None,
    }, ""


def find_gres_prefix(version: tuple[int, ...], texts: Sequence[str]) -> str:
    """Return how this Slurm spells a request for GPUs by node: "gres:gpu" or "gres/gpu".

    The spelling that it shows for its own jobs counts. A wrong one is accepted, shown, and ignored
    when the job starts.
    """
    shown = (prefix for text in texts for prefix in ("gres:gpu", "gres/gpu") if prefix in text)
    return next(shown, "gres:gpu" if version < (23, 11) else "gres/gpu")
