"""What nodes have free and what tasks need, as arrays.

A node has up to G GPUs, of which each is free in part: 1 is a whole GPU. A task needs a number of
whole GPUs, or a share of one GPU, or no GPU at all; and CPUs and memory. All of it is on one node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import Bools, Floats, Ints

TOLERANCE = 1e-9  # GPUs, CPUs or GB that do not count


@dataclass(frozen=True)
class NodeState:
    """What is free on each of N nodes. Engines change the arrays in place.

    Attributes
    ----------
    gpus : (N, G) floats
        The free share of each GPU, in [0, 1]. A GPU that a node does not have is 0.
    cpus, memory_gb : (N,) floats
        Free CPUs and CPU memory; inf where there is no limit.
    sizes : (N,) ints
        The number of GPUs that a node has, free or not.
    kind : (N,) ints
        The kind of a node: a number for the pool or the GPU type that it belongs to.
    topology : (N, L) ints
        The number of the rack, block, ... of a node, one column per level.
    """

    gpus: Floats
    cpus: Floats
    memory_gb: Floats
    sizes: Ints
    kind: Ints
    topology: Ints

    @classmethod
    def of_sizes(
        cls,
        sizes: Ints,
        cpus: Floats | None = None,
        memory_gb: Floats | None = None,
        kind: Ints | None = None,
        topology: Ints | None = None,
    ) -> NodeState:
        """Return empty nodes of these numbers of GPUs.

        Examples
        --------
        >>> NodeState.of_sizes(np.array([2, 1])).gpus.tolist()
        [[1.0, 1.0], [1.0, 0.0]]
        """
        N = len(sizes)
        G = int(max(sizes, default=0))
        return cls(
            (np.arange(G) < np.asarray(sizes)[:, None]).astype(np.float64),
            np.full(N, np.inf) if cpus is None else np.array(cpus, dtype=np.float64),
            np.full(N, np.inf) if memory_gb is None else np.array(memory_gb, dtype=np.float64),
            np.array(sizes, dtype=np.int64),
            np.zeros(N, dtype=np.int64) if kind is None else np.array(kind, dtype=np.int64),
            np.zeros((N, 0), dtype=np.int64)
            if topology is None
            else np.array(topology, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.gpus)

    def copy(self) -> NodeState:
        """Return the same state with arrays of its own."""
        return replace(
            self,
            gpus=self.gpus.copy(),
            cpus=self.cpus.copy(),
            memory_gb=self.memory_gb.copy(),
        )

    @property
    def whole_gpus(self) -> Ints:
        """The number of entirely free GPUs of each node, shape (N,)."""
        return np.asarray((self.gpus > 1.0 - TOLERANCE).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Demand:
    """What each of T tasks needs, or each of T classes of equal tasks.

    Attributes
    ----------
    gpus : (T,) ints
        Number of GPUs; 0 for a task that needs CPUs only.
    share : (T,) floats
        The share of each GPU: 1, or less for a task of one GPU.
    cpus, memory_gb : (T,) floats
        CPUs and CPU memory of the whole task.
    allowed : (T, K) bools
        The kinds of nodes on which it may run.
    """

    gpus: Ints
    share: Floats
    cpus: Floats
    memory_gb: Floats
    allowed: Bools

    @classmethod
    def of_gpus(
        cls,
        gpus: Ints,
        share: Floats | None = None,
        cpus: Floats | None = None,
        memory_gb: Floats | None = None,
        allowed: Bools | None = None,
    ) -> Demand:
        """Return the demand of tasks of these numbers of GPUs, on nodes of kind 0 by default.

        Examples
        --------
        >>> Demand.of_gpus(np.array([4, 1]), share=np.array([1.0, 0.5])).total_gpus.tolist()
        [4.0, 0.5]
        """
        T = len(gpus)
        return cls(
            np.array(gpus, dtype=np.int64),
            np.ones(T) if share is None else np.array(share, dtype=np.float64),
            np.zeros(T) if cpus is None else np.array(cpus, dtype=np.float64),
            np.zeros(T) if memory_gb is None else np.array(memory_gb, dtype=np.float64),
            np.ones((T, 1), dtype=np.bool_)
            if allowed is None
            else np.array(allowed, dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def total_gpus(self) -> Floats:
        """GPUs that each task takes in all, shape (T,)."""
        return np.asarray(self.gpus * self.share, dtype=np.float64)

    def take(self, rows: Ints) -> Demand:
        """Return the demand of some of the tasks."""
        return Demand(
            self.gpus[rows],
            self.share[rows],
            self.cpus[rows],
            self.memory_gb[rows],
            self.allowed[rows],
        )

    def classes(self) -> tuple[Demand, Ints, Ints]:
        """Return the classes of equal tasks, the class of each task, and the size of each class.

        Examples
        --------
        >>> classes, of_task, size = Demand.of_gpus(np.array([2, 1, 2])).classes()
        >>> classes.gpus.tolist(), of_task.tolist(), size.tolist()
        ([1, 2], [1, 0, 1], [1, 2])
        """
        rows = np.column_stack([self.gpus, self.share, self.cpus, self.memory_gb, self.allowed])
        _, first, of_task, size = np.unique(
            rows, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return self.take(first), of_task.reshape(-1).astype(np.int64), size.astype(np.int64)
