"""What open allocations leave free on each node.

The nodes of an allocation are stored as the JSON list that a job of plan.json has in `nodes`,
sorted by node, so that equal places are equal texts. The text is empty where the pool has no nodes,
and where the nodes of a running job are not known.
"""

import json
import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from sqlalchemy import Connection

from allocator.domain.problem import Floats, Placements, Problem
from allocator.loop.executor import NodePart
from allocator.objects import Json, Record
from allocator.queue.database.rows import query
from allocator.queue.database.schema import OPEN

TOLERANCE = 1e-6  # CPUs, GB and shares of a GPU that sums may miss by
_UP = "SELECT node, gpus, cpus, host_memory_gb FROM nodes WHERE state = 'up'"
_TAKEN = (
    "SELECT a.nodes, j.cpus_per_gpu, j.host_memory_gb_per_gpu FROM allocations a JOIN jobs j"
    f" ON j.job_id = a.job_id WHERE a.phase IN {OPEN} AND a.host = '' AND a.nodes <> ''"
)


def format_parts(parts: Iterable[Record]) -> str:
    """Return the nodes of a job, as in plan.json, as the text that is stored; "" without nodes."""
    ordered = sorted(parts, key=lambda part: (part["node"], part.get("gpu", -1)))
    return json.dumps(ordered) if ordered else ""


def format_places(problem: Problem, places: Placements) -> list[str]:
    """Return the nodes of each job as the text that is stored, (J,)."""
    parts: list[list[Json]] = [[] for _ in problem.jobs.job_id]
    columns = (places.job, places.node, places.gpus, places.gpu)
    for j, n, gpus, gpu in zip(*(column.tolist() for column in columns), strict=True):
        share = {"gpu": gpu, "fraction": float(problem.jobs.gpu_fraction[j])} if gpu >= 0 else {}
        parts[j].append({"node": problem.nodes.node[n], "gpus": gpus, **share})
    return [format_parts(part) if part else "" for part in parts]


@lru_cache(maxsize=1 << 15)
def parse_parts(text: str) -> tuple[NodePart, ...]:
    """Return the parts of a stored text; the texts of running jobs are read again and again."""
    return tuple(NodePart(**part) for part in json.loads(text)) if text else ()


def count_gpus(texts: Iterable[str]) -> dict[str, int]:
    """Count the GPUs that allocations hold on each node; a GPU of which they have shares is one."""
    parts = [part for text in texts for part in parse_parts(text)]
    shared = {(part.node, part.gpu) for part in parts if part.gpu is not None}
    used: dict[str, int] = {}
    for node, gpus in [
        *((part.node, part.gpus) for part in parts if part.gpu is None),
        *((node, 1) for node, _ in shared),
    ]:
        used[node] = used.get(node, 0) + gpus
    return used


class NodeSpace:
    """Free GPUs, CPUs and GB of memory of the up nodes next to all open allocations."""

    def __init__(self, connection: Connection) -> None:
        self._free = {
            node: np.array([math.inf if amount is None else float(amount) for amount in amounts])
            for node, *amounts in query(connection, _UP)
        }
        # free share of each GPU that is given in shares, by node and number
        self._shares: dict[tuple[str, int | None], float] = {}
        for text, cpus, memory_gb in query(connection, _TAKEN):
            self._take(parse_parts(text), cpus, memory_gb)

    def count_new_gpus(self, nodes: str) -> int:
        """Count the GPUs that a job would take here of which no other job has a share."""
        return sum(map(self._count_new, parse_parts(nodes)))

    def take(self, nodes: str, cpus: float | None, memory_gb: float | None) -> bool:
        """Take these nodes for a job that needs so much for each of its GPUs, if they are free.

        Returns whether they were free. Nodes that are not up, or not there, never are.
        """
        parts = parse_parts(nodes)
        fits = all(
            part.node in self._free
            and (self._needs(part, cpus, memory_gb) <= self._free[part.node] + TOLERANCE).all()
            and (part.fraction or 0.0) <= self._share(part) + TOLERANCE
            for part in parts
        )
        if fits:
            self._take(parts, cpus, memory_gb)
        return fits

    def _share(self, part: NodePart) -> float:
        return self._shares.get((part.node, part.gpu), 1.0)

    def _count_new(self, part: NodePart) -> int:
        return 0 if (part.node, part.gpu) in self._shares else part.gpus

    def _needs(self, part: NodePart, cpus: float | None, memory_gb: float | None) -> Floats:
        each = part.gpus * np.array([cpus or 0.0, memory_gb or 0.0])
        return np.array([self._count_new(part), *each])

    def _take(self, parts: Iterable[NodePart], cpus: float | None, memory_gb: float | None) -> None:
        for part in parts:
            if part.node in self._free:
                self._free[part.node] -= self._needs(part, cpus, memory_gb)
                if part.gpu is not None:
                    left = self._share(part) - (part.fraction or 0.0)
                    self._shares[part.node, part.gpu] = left
