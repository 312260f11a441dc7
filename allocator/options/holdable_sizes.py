"""Which sizes of a job the nodes of a pool could hold if they were empty.

This counts the largest nodes, their CPUs and memory, and the domain of a level in which the job has
to stay. An option that no plan can place is not offered.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.staying import TOLERANCE, UP


class HoldableSizes:
    """Answers for one problem; jobs that need the same of a GPU are treated together."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        jobs = problem.jobs
        if not len(problem.nodes):
            return
        wishes = {name: code for code, name in enumerate(dict.fromkeys(jobs.placement))}
        self._wishes = list(wishes)
        wish = [wishes[name] for name in jobs.placement]
        needs = np.stack([jobs.cpus_per_gpu, jobs.host_memory_gb_per_gpu, wish], axis=1)
        self._needs, index = np.unique(needs, axis=0, return_inverse=True)
        self._class = index.reshape(-1)

    def find(self, pool: int, job: Ints, gpus: Ints) -> Bools:
        """Find the sizes (n,) of jobs (n,) that empty nodes of the pool hold, (n,)."""
        nodes = self._problem.nodes
        if not len(nodes) or not self._problem.has_nodes[pool]:
            return np.ones(len(job), dtype=np.bool_)
        mine = np.flatnonzero((nodes.pool == pool) & (nodes.state == UP))
        per_node = int(self._problem.pools.gpus_per_node[pool])
        most: Ints = np.zeros(len(job), dtype=np.int64)
        kind = self._class[job]
        for code in np.unique(kind).tolist():
            cpus, memory_gb, wish = self._needs[code]
            fitting = np.minimum(
                nodes.gpus[mine],
                np.minimum(
                    _count(nodes.cpus[mine], cpus), _count(nodes.host_memory_gb[mine], memory_gb)
                ),
            ).astype(np.int64)
            at = np.flatnonzero(kind == code)
            most[at] = self._most(mine, fitting, self._wishes[int(wish)], gpus[at], per_node)
        return gpus <= most

    def _most(self, mine: Ints, fitting: Ints, wish: str, gpus: Ints, per_node: int) -> Ints:
        """Return the most GPUs of the nodes `mine` that a job of a size may have, (n,)."""
        if wish == "packed":
            total = np.append(0, np.cumsum(np.sort(fitting)[::-1]))
            return total[np.minimum(-(-gpus // per_node), len(fitting))]
        for level in self._problem.levels:
            if wish == f"same_{level.name}" and len(mine):
                domain = level.domain[mine]
                best = np.bincount(domain, fitting).max()
                return np.full(len(gpus), int(best))
        return np.full(len(gpus), int(fitting.sum()))


def _count(available: Floats, each: float) -> Floats:
    """Return how often `each` fits into what is available, (N,)."""
    return np.floor((available + TOLERANCE) / each) if each > 0 else np.full(len(available), np.inf)
