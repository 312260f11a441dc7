"""Objects of a cluster as the tables of a snapshot."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from allocator.clusters.adapter import ClusterView
from allocator.clusters.kubernetes.api import Reader
from allocator.clusters.kubernetes.kueue import Kueue
from allocator.clusters.kubernetes.nodes import (
    GIGABYTE,
    LEVELS,
    PLACES,
    GpuNode,
    gpus_of_pod,
    is_over,
    node_of_pod,
    read_nodes,
)
from allocator.clusters.kubernetes.objects import (
    PREFIX,
    Object,
    Objects,
    annotation,
    conditions,
    field,
    name_of,
    namespace_of,
    quantity,
    unix_seconds,
)
from allocator.clusters.kubernetes.pools import Pools, group_nodes
from allocator.clusters.kubernetes.progress import ask_jobs
from allocator.clusters.kubernetes.suggestions.documents import describe_job
from allocator.clusters.kubernetes.tenants import fit_guarantees, read_limits
from allocator.clusters.kubernetes.workloads.jobs import FoundJob, find_jobs
from allocator.clusters.kubernetes.workloads.owners import read_annotations, sizes_of
from allocator.clusters.statements import count_remaining
from allocator.io.progress_sources import Progress
from allocator.objects import Json

CONTROLLER = PREFIX + "gpu-allocator"  # controllerName of the admission checks of the allocator
ASSUMED_SECONDS = 3600.0  # length of a job of which nobody says anything
LEAST_SECONDS = 60.0  # that a running job is taken to have left


class _Use:
    """GPUs, CPUs and memory that every pod which is bound to a node holds there.

    gpus : by job ("" = pods that belong to none) and name of nodes.csv
    cpus, memory : by node, of pods that hold no GPUs of a job
    unschedulable : jobs with a pod for which the scheduler found no node
    """

    def __init__(
        self, objects: Objects, nodes: Sequence[GpuNode], jobs: Sequence[FoundJob]
    ) -> None:
        self.gpus: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.cpus: defaultdict[str, float] = defaultdict(float)
        self.memory: defaultdict[str, float] = defaultdict(float)
        self.unschedulable: set[str] = set()
        self.notes: list[str] = []
        by_uid = {job.uid: job.job_id for job in jobs if job.uid}
        rows = {(node.node, node.resource): node.name for node in nodes}
        for pod in objects.of_kind("Pod"):
            if is_over(pod):
                continue
            job = next((by_uid[uid] for uid in objects.owner_uids(pod) if uid in by_uid), "")
            node = node_of_pod(pod)
            if node is None:
                if conditions(pod).get("PodScheduled", {}).get("reason") == "Unschedulable":
                    self.unschedulable.add(job)
                continue
            wanted = gpus_of_pod(pod["spec"])
            for resource, n in wanted.items():
                if (node, resource) in rows:
                    self.gpus[job][rows[node, resource]] += n
                else:
                    name = f"{namespace_of(pod)}/{name_of(pod)}"
                    self.notes.append(f"pod {name}: node {node} has no {resource}, which it holds")
            if not (job and wanted):
                cpus, gigabytes = _requests(pod["spec"])
                self.cpus[node] += cpus
                self.memory[node] += gigabytes


def observe_cluster(reader: Reader, now_s: float) -> ClusterView:
    """Look at a cluster, and return it as a snapshot. Raises ClusterUnreachable and Refused."""
    objects = Objects(reader.read_everything())
    progress, notes = ask_jobs(reader.api, objects)
    view = observe(objects, now_s, progress)
    return replace(view, notes=(*view.notes, *notes))


def observe(
    objects: Objects, now_s: float, progress: Mapping[str, Progress] | None = None
) -> ClusterView:
    """Return what the objects of a cluster are as a snapshot.

    Jobs, JobSets and PyTorchJobs that ask for GPUs are its jobs. GPUs of all other pods are taken
    from their nodes, so that no plan uses them.

    Parameters
    ----------
    objects : Objects
        Nodes, pods, jobs, quotas, and what Kueue has.
    now_s : float
        Time of the look, in unix seconds.
    progress : mapping of str to Progress, optional
        How far running jobs are, by job, in the unit of their work.
    """
    nodes = read_nodes(objects.of_kind("Node"))
    kueue = Kueue(objects)
    jobs = [kueue.constrain(job) for job in find_jobs(objects)]
    flavors = kueue.flavors_of_nodes(nodes)
    pools = group_nodes(nodes, jobs, flavors)
    use = _Use(objects, nodes, jobs)
    notes = [*pools.notes, *use.notes]
    rows = []
    placements = []
    details = {}
    others = use.gpus[""]
    for job in jobs:
        held = dict(sorted(use.gpus[job.job_id].items()))
        held_in = {pools.of_node[name] for name in held}
        if held and (job.is_suspended or len(held_in) > 1):
            others.update(held)
            if not job.is_suspended:
                notes.append(f"{job.job_id}: holds GPUs of several pools, and is left alone")
                continue
            held = {}
        done = (progress or {}).get(job.job_id, (0.0, 0.0))
        row, job_notes = _job_row(job, kueue, pools, held, now_s, done)
        notes += job_notes
        rows.append(row | ({"pool": held_in.pop(), "gpus": sum(held.values())} if held else {}))
        placements += [{"job_id": job.job_id, "node": name, "gpus": n} for name, n in held.items()]
        is_stuck = job.job_id in use.unschedulable
        details[job.job_id] = describe_job(job, kueue) | {"unschedulable": is_stuck}
    free = {node.name: max(0, node.gpus - others[node.name]) for node in nodes}
    room = Counter(dict.fromkeys(pools.nodes, 0))
    for node in nodes:
        room[pools.of_node[node.name]] += free[node.name] if node.state == "up" else 0
    for row in rows:
        if row.get("pool") and not row["preemptible"]:
            room[row["pool"]] -= row["gpus"]
    tenants, quotas, remarks = read_limits(objects, kueue, pools, flavors)
    notes += [*remarks, *fit_guarantees(quotas, pools, +room)]
    levels = [level for level in LEVELS if any(level in node.levels for node in nodes)]
    tables = {
        "jobs.csv": rows,
        "pools.csv": pools.rows(free),
        "nodes.csv": [
            {
                "node": node.name,
                "pool": pools.of_node[node.name],
                "gpus": free[node.name],
                "state": node.state,
                **{level: node.levels.get(level) for level in levels},
                "cpus": _rounded_up(node.cpus - use.cpus[node.node]),
                "host_memory_gb": _rounded_up(node.host_memory_gb - use.memory[node.node]),
            }
            for node in nodes
        ],
        "placements.csv": placements,
        "tenants.csv": tenants,
        "quotas.csv": quotas,
    }
    config = {"now_s": now_s, **({"topology": {"levels": levels}} if levels else {})}
    known = {
        "now_s": now_s,
        "jobs": details,
        "hostnames": {node.name: node.hostname for node in nodes},
        "pools": {pool: [node.name for node in members] for pool, members in pools.nodes.items()},
        "places": {
            node.name: {label: node.labels[label] for label in PLACES if label in node.labels}
            for node in nodes
        },
        "checks": kueue.checks(CONTROLLER),
    }
    return ClusterView(tables, config, tuple(notes), known)


def _rounded_up(amount: float) -> float:
    return max(0.0, math.ceil(amount * 1e3) / 1e3)


def _requests(spec: Object) -> tuple[float, float]:
    """Return the CPUs and the memory in GB that the containers of a pod ask for."""
    asked = [
        (field(container, "resources", "limits") or {})
        | (field(container, "resources", "requests") or {})
        for container in field(spec, "containers") or ()
    ]
    return (
        sum(quantity(amounts.get("cpu")) for amounts in asked),
        sum(quantity(amounts.get("memory")) for amounts in asked) / GIGABYTE,
    )


def _judge(job: FoundJob, kueue: Kueue, said: Object) -> tuple[str, str]:
    """Return the state of a job that holds nothing, and why it is held.

    A job that somebody suspended is held, unless Kueue or the allocator starts it again.
    """
    workload = kueue.workload(job)
    paused = said.get("paused", False) or annotation(workload or {}, "paused") == "true"
    if kueue.is_stopped(job):
        return "held", "its queue is stopped"
    if not paused and field(workload, "spec", "active") is False:
        return "held", "its workload is not active"
    if job.is_suspended and not (paused or said.get("managed", False) or job.queue):
        return "held", "it is suspended and neither in a queue nor managed"
    return "paused" if paused else "queued", ""


def _job_row(
    job: FoundJob, kueue: Kueue, pools: Pools, held: Mapping[str, int], now_s: float, done: Progress
) -> tuple[Json, list[str]]:
    """Return the row of a job, and notes about it."""
    said, notes = read_annotations(job)
    allowed = pools.admitted[job.job_id]
    if "gpu-types" in said:
        allowed = allowed & set(said["gpu-types"])
    state, why = ("running", "") if held else _judge(job, kueue, said)
    if not allowed and not held:
        state, why = "held", "no node with GPUs admits it"
    if why:
        notes.append(f"{job.job_id}: {why}, so it is held")
    queue = kueue.cluster_queue(job)
    created = unix_seconds(field(job.source, "metadata", "creationTimestamp"))
    return {
        **stated_columns(job, said, now_s, done),
        "submitted_s": now_s if created is None else min(created, now_s),
        "tenant": queue.name if queue is not None else job.namespace,
        "state": state,
        "gpu_types": sorted(allowed) if allowed and allowed != set(pools.types.values()) else None,
    }, notes


def stated_columns(job: FoundJob, said: Object, now_s: float, done: Progress = (0.0, 0.0)) -> Json:
    """Return the columns of jobs.csv that a job and its owner state, whatever cluster it is in."""
    sizes = sizes_of(job, said)
    needs = [(pod_set.gpus, *_requests(pod_set.pod)) for pod_set in job.pod_sets if pod_set.gpus]
    pods = {pod_set.gpus for pod_set in job.pod_sets if pod_set.gpus}
    total, left = _work(job, said, now_s, done)
    return {
        "job_id": job.job_id,
        "model": said.get("model", job.name),
        "remaining_work": left,
        "total_work": total,
        "min_gpus": sizes[0],
        "max_gpus": sizes[-1],
        "requested_gpus": job.gpus,
        "sizes": sizes,
        "gpus_per_pod": pods.pop() if len(pods) == 1 else None,
        "weight": said.get("weight"),
        "deadline_s": said.get("deadline"),
        "preemptible": said.get("preemptible", job.queue is not None),
        "restart_s": said.get("restart-seconds"),
        "cpus_per_gpu": max(math.floor(cpu / n * 1e6) / 1e6 for n, cpu, _ in needs),
        "host_memory_gb_per_gpu": max(math.floor(gb / n * 1e6) / 1e6 for n, _, gb in needs),
    }


def _work(job: FoundJob, said: Object, now_s: float, progress: Progress) -> tuple[float, float]:
    """Return the whole work and what is left.

    Without total-work it is seconds, which are right if the job has no rates either.
    """
    if progress[1]:
        return said["total-work"], count_remaining(said["total-work"], progress)
    left = said.get("remaining-work", said.get("total-work"))
    if left is not None:
        return max(said.get("total-work", left), left), left
    total = said.get("expected-seconds", ASSUMED_SECONDS)
    started = None if job.is_suspended else unix_seconds(field(job.source, "status", "startTime"))
    done = 0.0 if started is None else max(0.0, now_s - started)
    left = max(total - done, LEAST_SECONDS)
    return max(total, left), left
