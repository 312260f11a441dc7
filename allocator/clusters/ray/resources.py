"""Nodes of a Ray cluster, and who holds their GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from allocator.objects import Record

PREFIX = "allocator.example/"  # of the labels of a node that the allocator reads
NODE_ID = "ray.io/node-id"  # label that every node has
ACCELERATOR = "ray.io/accelerator-type"
ACTOR = "_ray_internal_job_actor_"  # beginning of the name of the actor that runs a job
POOL = "gpu"  # of nodes that say nothing
UNSCHEDULABLE = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
OWNED = "allocator_generation"  # metadata of a job that a queue of the allocator runs
PINNED_TO = "allocator_node"  # metadata of a job: id of the node that it was pinned to


@dataclass(frozen=True)
class RayNode:
    """A node that is alive and has GPUs.

    Parameters
    ----------
    node_id : str
        Its id; a node that comes back has another one.
    name, pool, gpu_type : str
        As plans call them.
    gpus : int
        GPUs of the node.
    state : str
        "up", or "drain" if Ray puts nothing more on it.
    cpus, memory_gb : float
        CPUs and memory that Ray has to give there.
    """

    node_id: str
    name: str
    pool: str
    gpu_type: str
    gpus: int
    state: str = "up"
    cpus: float = 0.0
    memory_gb: float = 0.0


@dataclass(frozen=True)
class Holding:
    """GPUs of one node that something in Ray holds.

    Parameters
    ----------
    node_id : str
        The node.
    gpus : float
        GPUs that it holds there.
    submission_id : str
        Job of which it is the entrypoint; "" for anything else.
    ray_job_id : str
        Ray's number of the driver that made it.
    group : str
        Name of the placement group; "" for anything else.
    """

    node_id: str
    gpus: float
    submission_id: str = ""
    ray_job_id: str = ""
    group: str = ""


def read_nodes(records: Iterable[Record], refused: Collection[str] = ()) -> list[RayNode]:
    """Return the nodes that are alive and have GPUs, in the order of their names.

    Those of a common name have a part of their ids behind it.

    Parameters
    ----------
    records : iterable of mapping
        Nodes of the state API.
    refused : collection of str
        Ids of nodes on which Ray puts nothing more.
    """
    nodes = []
    for record in records:
        total = record.get("resources_total") or {}
        gpus = int(total.get("GPU") or 0)
        if record.get("state") != "ALIVE" or gpus < 1:
            continue
        labels = record.get("labels") or {}
        kinds = [name.partition(":")[2] for name in total if name.startswith("accelerator_type:")]
        gpu_type = labels.get(ACCELERATOR) or min(kinds, default="")
        node_id = str(record["node_id"])
        name = labels.get(PREFIX + "name") or record.get("node_name") or record.get("node_ip")
        pool = labels.get(PREFIX + "pool") or gpu_type or POOL
        nodes.append(
            RayNode(
                node_id,
                str(name or node_id),
                pool,
                gpu_type or pool,
                gpus,
                "drain" if node_id in refused else "up",
                float(total.get("CPU") or 0.0),
                float(total.get("memory") or 0.0) / 1e9,
            )
        )
    names = Counter(node.name for node in nodes)
    return [
        replace(node, name=f"{node.name}-{node.node_id[:8]}") if names[node.name] > 1 else node
        for node in sorted(nodes, key=lambda node: (node.name, node.node_id))
    ]


def read_gpus(record: Record) -> float:
    """Return the GPUs that an actor or a task asks for, or holds."""
    return float((record.get("required_resources") or {}).get("GPU") or 0.0)


def find_refused_nodes(jobs: Iterable[Record]) -> frozenset[str]:
    """Return the nodes on which Ray would put no job of the allocator, though they are alive.

    Ray does not say over HTTP which nodes it drains. It refuses a job that is pinned to such a
    node, and a drained node never takes jobs again under the same id.
    """
    return frozenset(
        str(job["metadata"][PINNED_TO])
        for job in jobs
        if job.get("error_type") == UNSCHEDULABLE and PINNED_TO in (job.get("metadata") or {})
    )


def read_holdings(
    actors: Iterable[Record], groups: Iterable[Record], tasks: Iterable[Record]
) -> Iterator[Holding]:
    """Yield what holds GPUs: actors, bundles of placement groups, and running tasks.

    What runs inside a placement group is counted with the group.
    """
    for group in groups:
        if group.get("state") == "REMOVED":
            continue
        for bundle in group.get("bundles") or ():
            gpus = float((bundle.get("unit_resources") or {}).get("GPU") or 0.0)
            if gpus and (node_id := _hex(bundle.get("node_id"))):
                owner = str(group.get("creator_job_id") or "")
                yield Holding(node_id, gpus, "", owner, str(group.get("name") or ""))
    for entry in (*actors, *(task for task in tasks if task.get("type") == "NORMAL_TASK")):
        gpus = read_gpus(entry)
        is_alive = entry.get("state") in ("ALIVE", "RUNNING")
        if gpus and is_alive and entry.get("node_id") and not _hex(entry.get("placement_group_id")):
            name = str(entry.get("name") or "")
            submission = name.removeprefix(ACTOR) if name.startswith(ACTOR) else ""
            yield Holding(str(entry["node_id"]), gpus, submission, str(entry.get("job_id") or ""))


def read_waiting(actors: Iterable[Record]) -> Iterator[Holding]:
    """Yield the GPUs of nodes that jobs wait for which are pinned to them: Ray gives them next."""
    for actor in actors:
        gpus, name = read_gpus(actor), str(actor.get("name") or "")
        node_id = str((actor.get("label_selector") or {}).get(NODE_ID) or "")
        is_waiting = actor.get("state") in ("PENDING_CREATION", "DEPENDENCIES_UNREADY")
        if gpus and is_waiting and node_id and name.startswith(ACTOR):
            yield Holding(node_id, gpus, name.removeprefix(ACTOR))


def _hex(ident: object) -> str:
    """Return an id, "" for none; Ray writes none as null, nothing or a row of f."""
    text = str(ident or "")
    return "" if re.fullmatch("f*", text) else text
