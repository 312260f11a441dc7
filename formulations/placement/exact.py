"""The model of a round that places its jobs on nodes at once: exact, and for small rounds only.

To the columns x_o of the round it adds y_on, the GPUs of option o on node n, and w_ng = 1 if GPU g
of node n is given out in shares. With k_o GPUs of option o, each to the share f_o,

    sum_n y_on = k_o x_o                             whole GPUs; y_on <= k_o
    sum_ng y_ong = x_o                               a share of one GPU; y_ong is 0 or 1
    sum_o y_on + sum_g w_ng <= G_n                   GPUs of node n
    sum_o f_o y_ong <= w_ng                          shares of GPU g
    sum_o cpus_o y_on <= C_n, and memory alike       y_ong counts as a GPU
    y_on <= k_o z_on,  sum_n z_on <= m_o x_o         a packed job is on at most m_o nodes
    z_on <= y_on,      sum_n z_on  = m_o x_o         a spread shape is on exactly m_o nodes
    sum_{n of d} y_on <= k_o u_od,  sum_d u_od = x_o one domain d of the level
    sum_o y_on <= G_n - l                            options that leave l GPUs of node n, or more

A job of pods of g GPUs has y in pods: k_o and y count k_o / g of them, and each takes g GPUs.

A job that stays is on its nodes: there y_on is k_on x_o.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import Floats, Ints, LinearModel, RowFamily
from formulations.placement.holes import Holes, Need, Place, Wish

PLACEMENT = "placement"


@dataclass(frozen=True)
class PlacedModel:
    """A round's model with the places of its options.

    Attributes
    ----------
    model : LinearModel
        Its first columns are those of the round.
    spots : tuple
        (column, option, node, GPUs for each unit, number of the GPU or -1) of every y.
    """

    model: LinearModel
    spots: tuple[tuple[int, int, int, int, int], ...]

    def places(self, x: Floats) -> dict[int, tuple[Place, ...]]:
        """Return the places of each option that a plan x has and that does not stay."""
        places_of: dict[int, list[Place]] = defaultdict(list)
        for column, option, node, gpus, gpu in self.spots:
            k = gpus * round(float(x[column]))
            if k > 0:
                places_of[option].append((node, k, gpu))
        return {option: tuple(places) for option, places in places_of.items()}


def place_options(
    model: LinearModel,
    needs: Mapping[int, Need],
    stays: Mapping[int, tuple[Place, ...]],
    nodes: Holes,
) -> PlacedModel:
    """Return the model of a round with places for its options.

    Parameters
    ----------
    model : LinearModel
        The round; its columns are the options.
    needs : mapping
        What each option needs that takes GPUs of nodes.
    stays : mapping
        The places of those of them that can have these places only.
    nodes : Holes
        The nodes as if no job held any of them.
    """
    build = _Builder(model, nodes)
    for option, need in needs.items():
        if option in stays:
            for n, k, g in stays[option]:
                if nodes.pool[n] >= 0:
                    build.use(option, n, k, g, need)
        elif need.share < 1:
            build.place_share(option, need)
        else:
            build.place_whole(option, need)
    return PlacedModel(build.finish(), tuple(build.spots))


class _Builder:
    """Rows and columns that are added to a model."""

    def __init__(self, model: LinearModel, nodes: Holes) -> None:
        self._model = model
        self._nodes = nodes
        self._entries: dict[tuple[int, int], float] = defaultdict(float)  # by column and row
        self._limits = list[tuple[float, float]]()  # of the rows
        self._most = list[float]()  # of the columns
        self._row_of: dict[tuple[str, int, int], int] = {}
        self.spots = list[tuple[int, int, int, int, int]]()

    def _add_column(self, most: float) -> int:
        self._most.append(most)
        return self._model.n + len(self._most) - 1

    def _add_row(self, entries: Mapping[int, float], lower: float, upper: float) -> int:
        self._limits.append((lower, upper))
        row = self._model.m + len(self._limits) - 1
        for column, number in entries.items():
            self._entries[column, row] += number
        return row

    def _limit(self, what: str, node: int, number: int, upper: float) -> int:
        """Return the row of a limit of a node, which is added when it is first asked for."""
        key = (what, node, number)
        if key not in self._row_of:
            self._row_of[key] = self._add_row({}, -np.inf, upper)
        return self._row_of[key]

    def use(self, column: int, node: int, gpus: int, gpu: int, need: Need) -> None:
        """Let each unit of a column take GPUs of a node, and CPUs and memory for them."""
        nodes = self._nodes
        free = self._limit("gpus", node, -1, float(nodes.size[node]))
        if gpu < 0:
            self._entries[column, free] += gpus
        else:
            if ("shares", node, gpu) not in self._row_of:
                split = self._add_column(1.0)
                self._entries[split, free] += 1.0
                self._entries[split, self._limit("shares", node, gpu, 0.0)] = -1.0
            self._entries[column, self._limit("shares", node, gpu, 0.0)] += need.share
        for what, each, limit in (
            ("cpus", need.cpus, nodes.cpus[node]),
            ("memory_gb", need.memory_gb, nodes.memory_gb[node]),
        ):
            if each > 0 and np.isfinite(limit):
                self._entries[column, self._limit(what, node, -1, limit)] += gpus * each
        for n, k, moment in need.leaves:
            if n == node:
                row = self._limit("leaves", node, moment, float(nodes.size[node] - k))
                self._entries[column, row] += gpus * need.share

    def _open_nodes(self, need: Need) -> Iterator[int]:
        """Yield the nodes of the pool of a need without those that it avoids."""
        return (n for n in self._nodes.nodes_of(need.pool) if n not in need.avoids)

    def place_share(self, option: int, need: Need) -> None:
        """Let an option have a share of any GPU."""
        chosen = self._add_row({option: -1.0}, 0.0, 0.0)
        for n in self._open_nodes(need):
            for g in range(self._nodes.size[n]):
                self._add_spot(option, n, 1, g, 1.0, need, chosen)

    def place_whole(self, option: int, need: Need) -> None:
        """Let an option have whole GPUs of its pool."""
        nodes = self._nodes
        fit = {n: need.whole(min(need.gpus, nodes.usable(n, need))) for n in self._open_nodes(need)}
        if need.wish is Wish.PACKED and need.most_nodes == 1:
            chosen = self._add_row({option: -1.0}, 0.0, 0.0)
            for n, k in fit.items():
                if k == need.gpus:
                    self._add_spot(option, n, k, -1, 1.0, need, chosen)
            return
        pod = need.pod
        chosen = self._add_row({option: -float(need.gpus // pod)}, 0.0, 0.0)
        here = {
            n: self._add_spot(option, n, pod, -1, float(k // pod), need, chosen)
            for n, k in fit.items()
            if k > 0
        }
        if need.wish is Wish.PACKED or need.least_nodes:
            least = need.least_nodes if need.least_nodes > 1 else 0
            groups = [([y], float(fit[n] // pod)) for n, y in here.items()]
            self._limit_groups(option, groups, need.most_nodes, least)
        if need.wish is Wish.SAME:
            domains: dict[int, list[int]] = defaultdict(list)
            for n in here:
                domains[nodes.domains[need.level][n]].append(n)
            groups = [
                ([here[n] for n in of], float(min(need.gpus, sum(fit[n] for n in of)) // pod))
                for of in domains.values()
            ]
            self._limit_groups(option, groups, 1, 0)

    def _limit_groups(
        self, option: int, groups: Sequence[tuple[list[int], float]], most: int, least: int
    ) -> None:
        """Let an option use columns of at most `most` of the groups, and of at least `least`.

        A group is its columns, and the largest sum that they may have.
        """
        limits = (-np.inf, 0.0) if least < most else (0.0, 0.0)
        count = self._add_row({option: -float(most)}, *limits)
        for columns, top in groups:
            used = self._add_column(1.0)
            self._entries[used, count] = 1.0
            self._add_row({used: -top, **dict.fromkeys(columns, 1.0)}, -np.inf, 0.0)
            if least:
                self._add_row({used: 1.0, **dict.fromkeys(columns, -1.0)}, -np.inf, 0.0)

    def _add_spot(
        self, option: int, node: int, gpus: int, gpu: int, most: float, need: Need, chosen: int
    ) -> int:
        column = self._add_column(most)
        self.spots.append((column, option, node, gpus, gpu))
        self._entries[column, chosen] = 1.0
        self.use(column, node, gpus, gpu, need)
        return column

    def finish(self) -> LinearModel:
        """Return the model with all that was added."""
        m = self._model
        extra = len(self._most)
        column = np.append(m.entry_column, [c for c, _ in self._entries]).astype(np.int64)
        row = np.append(m.index, [r for _, r in self._entries]).astype(np.int64)
        number = np.append(m.coef, list(self._entries.values()))
        order: Ints = np.lexsort((row, column))
        lower, upper = np.array(self._limits).reshape(-1, 2).T
        rows = RowFamily(PLACEMENT, m.m, [""] * len(self._limits))
        return replace(
            m,
            value=np.append(m.value, np.zeros(extra)),
            col_lower=np.append(m.col_lower, np.zeros(extra)),
            col_upper=np.append(m.col_upper, self._most),
            integer=np.append(m.integer, np.ones(extra, bool)),
            start=np.searchsorted(column[order], np.arange(m.n + extra + 1)),
            index=row[order],
            coef=number[order],
            lower=np.append(m.lower, lower),
            upper=np.append(m.upper, upper),
            families=(*m.families, rows),
        )
