"""Place tasks on nodes by a rule, one after the other, and take them away again."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from formulations.compilation import compile_functions, has_numba
from formulations.model.linear import Floats, Ints
from formulations.placement import kernels
from formulations.placement.rules import PlacementRule
from formulations.placement.state import Demand, NodeState


class Placer:
    """Places tasks of known classes on nodes.

    Only nodes that changed since the last task of its class are scored again for a task.

    Parameters
    ----------
    nodes : NodeState
        What is free. The placer changes it in place; nobody else may while it is in use.
    classes : Demand
        The classes of tasks that may come.
    rule : PlacementRule
    seed : int, optional
        Nodes of equal score are chosen at random; without a seed the first of them is taken.
    compiled : bool, optional
        Whether numba compiles the loops; by default it does if it is installed.

    Examples
    --------
    >>> from formulations.placement.rules import RULES
    >>> nodes = NodeState.of_sizes(np.array([8, 4, 4]))
    >>> classes = Demand.of_gpus(np.array([3, 8]))
    >>> placer = Placer(nodes, classes, RULES["best_fit"](nodes, classes, np.ones(2)))
    >>> node, gpus = placer.place(np.array([0, 1, 0, 0]))
    >>> node.tolist(), [f"{g:b}" for g in gpus]
    ([1, 0, 2, -1], ['111', '11111111', '111', '0'])
    >>> placer.release(1, 0, gpus[1])
    >>> placer.place(np.array([0]))[0].tolist()
    [0]
    """

    def __init__(
        self,
        nodes: NodeState,
        classes: Demand,
        rule: PlacementRule,
        seed: int | None = None,
        compiled: bool | None = None,
    ) -> None:
        self.nodes, self.classes, self.rule = nodes, classes, rule
        self._random = None if seed is None else np.random.default_rng(seed)
        self._kernel = kernel(has_numba() if compiled is None else compiled)
        N, C = len(nodes), len(classes)
        self._nodes = (nodes.gpus, nodes.cpus, nodes.memory_gb, nodes.sizes, nodes.kind)
        self._tasks = _arrays(classes)
        self._rule = (
            rule.number,
            rule.scale,
            rule.levels,
            _arrays(rule.typical),
            rule.weight,
            rule.value,
        )
        self._first = 1 << max(1, N - 1).bit_length()  # where a tournament has the score of node 0
        self._score = np.full((C, 2 * self._first), np.inf)
        self._gpu = np.full((C, N), -1, dtype=np.int64)
        self._scored_to, self._last = np.full(C, -1, dtype=np.int64), np.full(N, -1, dtype=np.int64)
        self._changed, self._changes = np.zeros(64, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def place(self, order: Ints) -> tuple[Ints, Ints]:
        """Place one task of each of these classes, in order.

        Returns
        -------
        node : ints
            The node of each task, or -1 if it fits nowhere.
        gpus : ints
            Its GPUs on the node: bit g is set for GPU g.
        """
        order = np.ascontiguousarray(order, dtype=np.int64)
        T = len(order)
        draws: Floats = np.zeros((T, 2)) if self._random is None else self._random.random((T, 2))
        node, gpus = np.empty(T, dtype=np.int64), np.empty(T, dtype=np.int64)
        self._kernel["place_tasks"](
            order, draws, self._nodes, self._tasks, self._rule, self._scores(T), node, gpus
        )
        return node, gpus

    def scores(self, task: int) -> Floats:
        """Return the score of every node for a task of this class; inf where it does not fit."""
        self._kernel["update_scores"](
            self._nodes, self._tasks, self._rule, self._scores(0), int(task)
        )
        return self._score[task, self._first : self._first + len(self.nodes)].copy()

    def place_at(self, task: int, node: int) -> int:
        """Place a task of a class on this node, where it fits, and return its GPUs as bits."""
        self.scores(task)
        gpus = int(
            self._kernel["take_gpus"](
                self._nodes, self._tasks, int(task), int(node), int(self._gpu[task, node])
            )
        )
        self._kernel["mark_changed"](self._scores(1), int(node))
        return gpus

    def take(self, task: int, node: int, gpus: int) -> None:
        """Put a task of a class on these GPUs of a node, whatever the rule says."""
        self._kernel["put_on_gpus"](self._nodes, self._tasks, int(task), int(node), int(gpus))
        self._kernel["mark_changed"](self._scores(1), int(node))

    def opening(self, wanted: int, order: Ints, node: Ints, gpus: Ints) -> int:
        """Return the placed task whose move to another node opens a place for a wanted task, or -1.

        Parameters
        ----------
        wanted : int
            The class of a task that fits nowhere.
        order, node, gpus : (T,) ints
            Class, node and GPUs of each placed task, as `place` returned them.
        """
        return int(
            self._kernel["find_opening"](
                int(wanted),
                order,
                node,
                gpus,
                self._nodes,
                self._tasks,
                self._rule,
                self._scores(0),
            )
        )

    def release(self, task: int, node: int, gpus: int) -> None:
        """Take a task of a class off these GPUs of a node."""
        self._kernel["give_back_gpus"](self._nodes, self._tasks, int(task), int(node), int(gpus))
        self._kernel["mark_changed"](self._scores(1), int(node))

    def _scores(self, more: int) -> tuple[Any, ...]:
        """Return the arrays of the scores, long enough for so many more changes."""
        need = int(self._changes[0]) + more
        if need > len(self._changed):
            self._changed = np.concatenate([self._changed, np.zeros(need, dtype=np.int64)])
        return (
            self._score,
            self._gpu,
            self._scored_to,
            self._changed,
            self._last,
            self._changes,
        )


@functools.cache
def kernel(compiled: bool) -> dict[str, Any]:
    """Return the loops of the engine, compiled by numba or as they are."""
    if compiled:
        return compile_functions(kernels, kernels.NAMES)
    return {name: getattr(kernels, name) for name in kernels.NAMES}


def _arrays(demand: Demand) -> tuple[Any, ...]:
    return demand.gpus, demand.share, demand.cpus, demand.memory_gb, demand.allowed
