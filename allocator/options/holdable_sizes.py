"""Which sizes of a job the nodes of a pool could hold if they were empty.

This counts the largest nodes, their CPUs and memory, and the domain of a level in which the job has
to stay. An option that no plan can place is not offered.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Ints, Problem
from allocator.options.staying import TOLERANCE, UP


class HoldableSizes:
    """Answers for one problem; jobs that need the same of a GPU are treated together."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        jobs = problem.jobs
        self._wishes, wish = np.unique(np.array(jobs.placement, str), return_inverse=True)
        pod = jobs.gpus_per_pod
        needs = np.stack([jobs.cpus_per_gpu, jobs.host_memory_gb_per_gpu, wish, pod], axis=1)
        self._needs, index = np.unique(needs, axis=0, return_inverse=True)
        self._class = index.reshape(-1)

    def find(self, pool: int, job: Ints, gpus: Ints, shape: Ints, shaped: Bools) -> Bools:
        """Find the sizes (n,) of jobs (n,) that empty nodes of the pool hold, (n,).

        Parameters
        ----------
        shape : (n,)
            Nodes of a spread shape, else 0.
        shaped : (n,)
            Whether the size has spread shapes.
        """
        nodes = self._problem.nodes
        up_nodes = np.flatnonzero((nodes.pool == pool) & (nodes.state == UP))
        most: Ints = np.zeros(len(job), np.int64)
        fewest = self._problem.fewest_nodes(job, np.full(len(job), pool), gpus)
        packed = np.where(shape > 0, shape, fewest)
        kind = self._class[job]
        for code in np.unique(kind).tolist():
            cpus, memory_gb, wish, pod = self._needs[code]
            fitting = nodes.gpus[up_nodes]
            for each, there in ((cpus, nodes.cpus), (memory_gb, nodes.host_memory_gb)):
                if each > 0:
                    fitting = np.minimum(fitting, np.floor((there[up_nodes] + TOLERANCE) / each))
            fitting = (fitting - fitting % pod).astype(np.int64)
            at = np.flatnonzero(kind == code)
            name = self._wishes[int(wish)]
            count = np.where(shaped[at] | (name == "packed"), packed[at], len(up_nodes))
            most[at] = self._most(up_nodes, fitting, name, count, shape[at])
        return (gpus <= most) & (shape * self._problem.jobs.gpus_per_pod[job] <= gpus)

    def _most(self, up_nodes: Ints, fitting: Ints, wish: str, most: Ints, least: Ints) -> Ints:
        """Return the most GPUs of at most `most` and at least `least` of the `up_nodes`, (n,)."""
        out = np.zeros(len(most), np.int64)
        for here in self._split_by_domain(up_nodes, wish):
            total = np.append(0, np.cumsum(np.sort(fitting[here])[::-1]))
            enough = np.count_nonzero(fitting[here]) >= least
            out = np.maximum(out, np.where(enough, total[np.minimum(most, len(total) - 1)], 0))
        return out

    def _split_by_domain(self, up_nodes: Ints, wish: str) -> list[Ints]:
        """Return the places in `up_nodes` of the nodes on which one job may be together."""
        for level in self._problem.levels:
            if wish == f"same_{level.name}" and len(up_nodes):
                domain = level.domain[up_nodes]
                order = np.argsort(domain, kind="stable")
                return np.split(order, np.flatnonzero(np.diff(domain[order])) + 1)
        return [np.arange(len(up_nodes))]
