"""What a round may do beyond placing tasks as they come: order them, and move some."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from formulations.model.linear import Bools, Ints
from formulations.placement.engine import Placer
from formulations.placement.state import TOLERANCE, Demand

GAIN = 1.001  # least GPUs for a GPU at the price of the rule
TRIES = 16  # nodes that are looked at for one waiting task


def no_tasks() -> Ints:
    """Return an empty list of tasks."""
    return np.zeros(0, dtype=np.int64)


def largest_first(classes: Demand, order: Ints) -> Ints:
    """Return the order in which the tasks of a round are placed, as indices into `order`.

    Many GPUs come before few, large shares before small ones, and many CPUs before few: what is
    small fits into the holes that large tasks leave.

    Examples
    --------
    >>> classes = Demand.of_gpus(np.array([1, 1, 8]), share=np.array([0.5, 1.0, 1.0]))
    >>> largest_first(classes, np.array([0, 1, 2])).tolist()
    [2, 1, 0]
    """
    keys = (-classes.cpus[order], -classes.share[order], -classes.gpus[order])
    return np.lexsort(keys).astype(np.int64)


def has_gain(placer: Placer) -> Bools:
    """Find the classes that bring more GPUs than the value of the share that they take, (C,).

    The share is taken where it has the lowest price of all nodes on which the class may run.
    """
    classes = placer.classes
    value = placer.rule.value
    grid = value.shape[1] - 1
    price = value[:, np.round(classes.share * grid).astype(np.int64)].T  # (C, N)
    lowest = np.where(classes.allowed[:, placer.nodes.kind], price, np.inf).min(axis=1)
    return np.asarray((classes.gpus == 0) | (classes.share > GAIN * lowest))


@dataclass
class Placed:
    """The tasks that are on nodes, and those that wait.

    Attributes
    ----------
    order, node, gpus : (T,) ints
        Class, node and GPUs of each placed task, as `Placer.place` returns them.
    waiting : (W,) ints
        The class of each task that fits nowhere.
    moved : int
        Moves so far.
    """

    order: Ints = field(default_factory=no_tasks)
    node: Ints = field(default_factory=no_tasks)
    gpus: Ints = field(default_factory=no_tasks)
    waiting: Ints = field(default_factory=no_tasks)
    moved: int = 0

    def add_round(self, placer: Placer, arrived: Ints, next_gpus: float = 0.0) -> None:
        """Place what waits and what arrived.

        Parameters
        ----------
        placer : Placer
        arrived : (A,) ints
            The class of each task that arrived.
        next_gpus : float
            The GPUs that the next round will ask for. Where fewer will be free, tasks that gain
            nothing at the prices of the rule wait. By default nothing waits that fits.
        """
        tasks = np.concatenate([self.waiting, arrived])
        if not next_gpus:
            self._place(placer, tasks)
            return
        gains = has_gain(placer)[tasks]
        self._place(placer, tasks[gains])
        waiting = self.waiting
        last = tasks[~gains]
        wanted = next_gpus + placer.classes.total_gpus[last].sum()
        self.waiting = last
        if placer.nodes.gpus.sum() > wanted:
            self._place(placer, last)
        self.waiting = np.concatenate([waiting, self.waiting])

    def _place(self, placer: Placer, tasks: Ints) -> None:
        """Place tasks as they came, or largest first if that places more; the others wait."""
        sizes = placer.classes.total_gpus
        node, gpus = placer.place(tasks)
        if (node < 0).any():
            by_size = tasks[largest_first(placer.classes, tasks)]
            _release_all(placer, tasks, node, gpus)
            other, other_gpus = placer.place(by_size)
            if sizes[by_size[other >= 0]].sum() > sizes[tasks[node >= 0]].sum() + TOLERANCE:
                tasks = by_size
                node = other
                gpus = other_gpus
            else:
                _release_all(placer, by_size, other, other_gpus)
                for i in np.flatnonzero(node >= 0):
                    placer.take(tasks[i], node[i], gpus[i])
        fits = node >= 0
        self.order = np.concatenate([self.order, tasks[fits]])
        self.node = np.concatenate([self.node, node[fits]])
        self.gpus = np.concatenate([self.gpus, gpus[fits]])
        self.waiting = tasks[~fits]

    def move_for_waiting(self, placer: Placer, most: int) -> None:
        """Move tasks to other nodes so that waiting tasks fit; at most so many moves in all.

        One move that opens a place is looked for first, then several on one node.
        """
        left = []
        hopeless = set()
        for t in self.waiting.tolist():
            home = -1
            if self.moved < most and t not in hopeless:
                home = self._open_by_one_move(placer, t)
            if home < 0 and self.moved < most and t not in hopeless:
                home = self._clear_a_node(placer, t, most - self.moved)
            if home < 0:
                hopeless.add(t)
                left.append(t)
                continue
            gpus = placer.place_at(t, home)
            self.order = np.append(self.order, t)
            self.node = np.append(self.node, home)
            self.gpus = np.append(self.gpus, gpus)
        self.waiting = np.array(left, dtype=np.int64)

    def _open_by_one_move(self, placer: Placer, wanted: int) -> int:
        """Move the one task that makes way at the least loss; return its node, or -1."""
        i = placer.opening(wanted, self.order, self.node, self.gpus)
        if i < 0:
            return -1
        home = int(self.node[i])
        self._move(placer, i)
        return home

    def _clear_a_node(self, placer: Placer, wanted: int, most: int) -> int:
        """Move small tasks off one of the emptiest nodes until a task fits; return it, or -1."""
        need = int(placer.classes.gpus[wanted])
        classes = placer.classes
        nodes = placer.nodes
        whole = nodes.whole_gpus
        could = classes.allowed[wanted, nodes.kind] & (nodes.sizes >= need) & (whole < need)
        able = np.flatnonzero(could)
        for home in able[np.argsort(-whole[able], kind="stable")][:TRIES].tolist():
            there = np.flatnonzero(self.node == home)
            undo: list[tuple[int, int]] = []
            for i in there[np.argsort(classes.total_gpus[self.order[there]], kind="stable")]:
                before = int(self.gpus[i])
                if len(undo) < most and self._move(placer, int(i)):
                    undo.append((int(i), before))
                if np.isfinite(placer.scores(wanted)[home]):
                    return int(home)
            for i, before in reversed(undo):
                placer.release(int(self.order[i]), int(self.node[i]), int(self.gpus[i]))
                placer.take(int(self.order[i]), home, before)
                self.node[i], self.gpus[i] = home, before
            self.moved -= len(undo)
        return -1

    def _move(self, placer: Placer, i: int) -> bool:
        """Move a task to the best other node, if it fits on one."""
        t = int(self.order[i])
        home = int(self.node[i])
        scores = placer.scores(t)
        scores[home] = np.inf
        best = int(np.argmin(scores))
        if not np.isfinite(scores[best]):
            return False
        placer.release(t, home, int(self.gpus[i]))
        self.node[i], self.gpus[i] = best, placer.place_at(t, best)
        self.moved += 1
        return True


def _release_all(placer: Placer, order: Ints, node: Ints, gpus: Ints) -> None:
    for i in np.flatnonzero(node >= 0):
        placer.release(order[i], node[i], gpus[i])
