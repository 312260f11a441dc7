"""Speed of a model on a number of GPUs: measured rows, the rule between them, and fitted curves.

The rules are R9 to R11 of docs/reference/rules.md. At a measured size the fastest row counts whose
memory_gb the GPUs have; if none fits, nothing is offered there, nor between it and its neighbours.
A row with compute_s has the speed that its codec and the link of the pool leave of it.
Between two measured sizes k1 < k < k2 the rate is min(r1 + (r2 - r1)(k - k1)/(k2 - k1), r1 k/k1).
Outside the measured range nothing is offered, unless a curve of models.csv covers the size (its
max_local is its own limit of memory).

All this is the speed on as few nodes as the size needs. A row that is a spread shape gives the
speed at its size on its number of nodes, and nothing else.

A model without any given rate runs at an assumed speed where none was observed: the speed per GPU
of the nearest observed size, or ASSUMED_RATE at every size if none was observed. The sizes that a
job may have at an assumed speed are not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Curves, Floats, Ints, Pools, Problem, Rates
from allocator.domain.schema.columns import ASSUMED_RATE, MOST_GPUS
from allocator.performance import batched, curves as formulas
from formulations.model.linear import ragged

SPAN = MOST_GPUS + 1  # sizes of one (model, gpu_type) occupy one span of the sorted key
NODES = 1 << 20  # shapes of one size occupy so many numbers of the sorted key
EVERYWHERE = np.inf, np.inf  # memory and link on which every row fits and loses nothing


class RateTable:
    """Vectorised look-up of rates; it is built once per Problem and never changes."""

    def __init__(self, rates: Rates, curves: Curves, models: int, gpu_types: int) -> None:
        self._types = gpu_types
        self._key_of_row = self._key(rates.model, rates.gpu_type, rates.gpus)
        self._rates = rates
        self._hungriest = float(np.nan_to_num(rates.memory_gb, nan=0.0).max(initial=0.0))
        self._key_of_shape = self._key_of_row * NODES + rates.nodes
        self._shapes = np.unique(self._key_of_shape[rates.nodes > 0])
        self.has_shapes = len(self._shapes) > 0
        self._exchanges = bool((~np.isnan(rates.compute_s) & (rates.volume_gb > 0)).any())
        # GB of a GPU and GB/s of a link, and whether spread -> sizes or shapes that run there
        self._within: dict[tuple[tuple[float, float], bool], _Sizes] = {}
        self._curves = curves
        self._curve_of = np.full(models * gpu_types + 1, -1)
        self._curve_of[curves.model * gpu_types + curves.gpu_type] = np.arange(len(curves.kind))
        self.unrated = np.ones(models, bool)  # (models,) without a given rate
        self.unrated[rates.model[~rates.observed]] = False
        self.unrated[curves.model] = False
        self.largest = self._largest(rates, curves, models)

    @classmethod
    def of(cls, problem: Problem) -> RateTable:
        """Return the table of a Problem's rates and curves.

        The rounds of a simulation share them, so the last table is kept.
        """
        parts = (problem.rates, problem.curves, len(problem.models), len(problem.gpu_types))
        for rates, curves, models, types, table in _last:
            if rates is parts[0] and curves is parts[1] and (models, types) == parts[2:]:
                return table
        table = cls(*parts)
        _last[:] = [(*parts, table)]
        return table

    def _key(self, model: Ints, gpu_type: Ints, gpus: Ints) -> Ints:
        return (model * self._types + gpu_type) * SPAN + gpus

    def _largest(self, rates: Rates, curves: Curves, models: int) -> Ints:
        """Return the largest size for which any rate of the model may exist, (models,)."""
        largest = np.zeros(models, np.int64)
        np.maximum.at(largest, rates.model, rates.gpus)
        reach = curves.numbers.get("max_gpus", np.full(len(curves.kind), float(formulas.MAX_GPUS)))
        np.maximum.at(
            largest,
            curves.model,
            np.where(np.isnan(reach), formulas.MAX_GPUS, reach).astype(np.int64),
        )
        largest[self.unrated] = MOST_GPUS
        return largest

    def rate_in_pools(
        self,
        pools: Pools,
        model: Ints,
        pool: Ints,
        gpus: Ints,
        held: Bools | None = None,
        nodes: Ints | None = None,
    ) -> tuple[Floats, Ints]:
        """Return the same as `rate` on the GPUs and links of these pools, (n,)."""
        memory_gb = pools.memory_gb[pool]
        link_gb_s = pools.link_gb_s[pool]
        return self.rate(model, pools.gpu_type[pool], gpus, memory_gb, held, nodes, link_gb_s)

    def rate(
        self,
        model: Ints,
        gpu_type: Ints,
        gpus: Ints,
        memory_gb: Floats | float = np.nan,
        held: Bools | None = None,
        nodes: Ints | None = None,
        link_gb_s: Floats | float = np.inf,
    ) -> tuple[Floats, Ints]:
        """Return work per second and the row of rates.csv it comes from, shaped as the arguments.

        The rate is nan where the size is not offered; the row is -1 where the rate is interpolated
        or from a curve.

        Parameters
        ----------
        memory_gb : number or array
            Memory of each GPU, GB, nan = no limit.
        held : array of bool, optional
            True where the job runs on these GPUs already, so that it fits them whatever rates.csv
            says; if no row fits, the fastest counts.
        nodes : array of int, optional
            The number of nodes on which the GPUs are. Only a spread shape of exactly that number
            makes a difference.
        link_gb_s : number or array
            GB/s of the links, inf = exchanges take no time.
        """
        wanted = self._key(model, gpu_type, gpus)
        places = list(self._split(memory_gb, link_gb_s, len(wanted)))
        out = np.full(len(wanted), np.nan)
        row = np.full(len(wanted), -1, np.int64)
        measured = np.zeros(len(wanted), bool)
        for place, here in places:
            out[here], row[here], measured[here] = self._sizes(place).look_up(wanted[here])
        if len(self._curves.kind):
            self._add_curves(model, gpu_type, gpus, ~measured, out)
        if self.unrated.any():
            self._assume(model, gpus, ~measured & self.unrated[model], out)
        if nodes is not None and self.has_shapes:
            key = self._shape_key(wanted, nodes)
            for place, at in places:
                here = np.arange(len(key))[at]
                _, exact, rate, rows = self._sizes(place, spread=True).find(key[here])
                out[here[exact]], row[here[exact]] = rate[exact], rows[exact]
        if held is not None and self._hungriest > 0.0:
            at = np.flatnonzero(held & np.isnan(out))
            if len(at):
                out[at], row[at] = self.rate(
                    model[at],
                    gpu_type[at],
                    gpus[at],
                    nodes=None if nodes is None else nodes[at],
                    link_gb_s=np.broadcast_to(link_gb_s, len(out))[at],
                )
        return out, row

    def _split(
        self, memory_gb: Floats | float, link_gb_s: Floats | float, n: int
    ) -> Iterator[tuple[tuple[float, float], Ints | slice]]:
        """Yield each memory and link that matter, inf = all rows fit, with the GPUs (k,) there."""
        if self._hungriest == 0.0 and not self._exchanges:
            yield EVERYWHERE, slice(None)
            return
        memory = np.where(memory_gb < self._hungriest, memory_gb, np.inf)
        gpu_memory_gb = np.broadcast_to(memory, (n,))
        link = np.broadcast_to(link_gb_s if self._exchanges else np.inf, (n,))
        for gb in np.unique(gpu_memory_gb).tolist():
            for gb_s in np.unique(link[gpu_memory_gb == gb]).tolist():
                yield (gb, gb_s), np.flatnonzero((gpu_memory_gb == gb) & (link == gb_s))

    def _sizes(self, place: tuple[float, float], spread: bool = False) -> _Sizes:
        """Return the sizes, or spread shapes, that run on GPUs of so much memory and fast links."""
        if (place, spread) not in self._within:
            gb, gb_s = place
            rates = self._rates
            rate = np.where(rates.memory_gb > gb, -1.0, rates.over(slice(None), gb_s))
            key = self._key_of_shape if spread else self._key_of_row
            rows = np.flatnonzero((rates.nodes > 0) == spread)
            self._within[place, spread] = _Sizes.of(key, rate, rows)
        return self._within[place, spread]

    def _shape_key(self, key: Ints, nodes: Ints) -> Ints:
        return key * NODES + np.minimum(nodes, NODES - 1)

    def is_shape(self, model: Ints, gpu_type: Ints, gpus: Ints, nodes: Ints) -> Bools:
        """Return where a size on so many nodes is a spread shape."""
        return np.isin(self._shape_key(self._key(model, gpu_type, gpus), nodes), self._shapes)

    def find_shapes(self, model: Ints, gpu_type: Ints, gpus: Ints) -> tuple[Ints, Ints]:
        """Return (index, nodes) of every spread shape of the sizes (n,), by index."""
        key = self._key(model, gpu_type, gpus) * NODES
        ends = np.searchsorted(self._shapes, [key, key + NODES])
        index, shape = ragged(*ends)
        return index, self._shapes[shape] % NODES

    def _add_curves(
        self, model: Ints, gpu_type: Ints, gpus: Ints, open_: Bools, out: Floats
    ) -> None:
        """Add speeds by curve where rates.csv has none."""
        curve = self._curve_of[model * self._types + gpu_type]
        open_ = open_ & (curve >= 0)
        names, code = self._curves.kinds
        for i, kind in enumerate(names):
            at = np.flatnonzero(open_ & (code[curve] == i))
            if not len(at):
                continue
            c = curve[at]
            k = gpus[at]
            back = np.arange(len(at))
            # finding the best batch takes time, and it is the same for many jobs
            if kind in batched.KINDS:
                distinct, back = np.unique(c * SPAN + k, return_inverse=True)
                c, k = np.divmod(distinct, SPAN)
            rates = formulas.rate(kind, {name: v[c] for name, v in self._curves.numbers.items()}, k)
            out[at] = rates[back.reshape(-1)]

    def _assume(self, model: Ints, gpus: Ints, where: Bools, out: Floats) -> None:
        """Add assumed speeds, as the module describes."""
        out[where] = ASSUMED_RATE
        for m in np.unique(model[where]).tolist():
            rows = np.flatnonzero(self._rates.model == m)
            per_gpu = self._rates.rate[rows] / self._rates.gpus[rows]
            rows = rows[np.argsort(per_gpu, kind="stable")]  # the slowest of equally near sizes
            if len(rows):
                at = np.flatnonzero(where & (model == m))
                k = gpus[at]
                seen = self._rates.gpus[rows]
                away = np.abs(np.log2(np.maximum(k, 1))[:, None] - np.log2(seen))
                near = np.argmin(away, axis=1)
                out[at] = self._rates.rate[rows[near]] * (k / seen[near])

    def is_assumed(self, model: Ints, gpu_type: Ints, gpus: Ints) -> Bools:
        """Return where the speed is assumed: not given, not observed, nor between such sizes."""
        out: Bools = self.unrated[model]
        return out & ~self._is_measured(model, gpu_type, gpus) if out.any() else out

    def _is_measured(self, model: Ints, gpu_type: Ints, gpus: Ints) -> Bools:
        """Return where a row has the size, or rows have sizes around it."""
        return self._sizes(EVERYWHERE).look_up(self._key(model, gpu_type, gpus))[2]

    def curve(self, model: Ints, gpu_type: Ints) -> Ints:
        """Return the row of models.csv of each, -1 = none."""
        row: Ints = self._curve_of[model * self._types + gpu_type]
        return row

    def by_curve(self, model: Ints, gpu_type: Ints, gpus: Ints) -> Bools:
        """Return where only a curve may have a speed: no row at the size or around it."""
        return ~self._is_measured(model, gpu_type, gpus) & (self.curve(model, gpu_type) >= 0)


@dataclass(frozen=True)
class _Sizes:
    """The fastest row of every measured size, ascending by key; arrays (S,).

    Where no row fits, rate is nan and row -1.
    """

    keys: Ints
    row: Ints
    rate: Floats

    @classmethod
    def of(cls, key: Ints, rate: Floats, rows: Ints) -> _Sizes:
        """Build the sizes from some of the rows, with keys and speeds of all rows (R,).

        A speed below 0 means no fit.
        """
        # slowest first, so that the last row of each key is the fastest (the first such row in file
        # order)
        order = rows[np.lexsort((-rows, rate[rows], key[rows]))]
        last = (
            order[np.flatnonzero(np.append(np.diff(key[order]) != 0, True))] if len(rows) else order
        )
        fits = rate[last] >= 0
        return cls(key[last], np.where(fits, last, -1), np.where(fits, rate[last], np.nan))

    def find(self, wanted: Ints) -> tuple[Ints, Bools, Floats, Ints]:
        """Return the size at or above each key, whether it has the key, its rate and its row."""
        above = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return above, self.keys[above] == wanted, self.rate[above], self.row[above]

    def look_up(self, wanted: Ints) -> tuple[Floats, Ints, Bools]:
        """Return rate, row, and whether the size is measured or between measured ones.

        Rate is nan and row -1 where nothing is known.
        """
        if not len(self.keys):
            none = np.zeros(len(wanted), bool)
            return np.full(len(wanted), np.nan), np.full(len(wanted), -1, np.int64), none
        above, known, rate, row = self.find(wanted)
        other = np.flatnonzero(~known)
        rate[other], row[other] = np.nan, -1
        wanted, b = wanted[other], above[other]
        a = np.maximum(b - 1, 0)
        between = (self.keys[a] < wanted) & (wanted < self.keys[b])
        between &= (self.keys[a] // SPAN == wanted // SPAN) & (
            self.keys[b] // SPAN == wanted // SPAN
        )
        other, a, b = other[between], a[between], b[between]
        k1, k2, k = (keys % SPAN for keys in (self.keys[a], self.keys[b], wanted[between]))
        r1, r2 = self.rate[a], self.rate[b]
        rate[other] = np.minimum(r1 + (r2 - r1) * (k - k1) / (k2 - k1), r1 * k / k1)
        known[other] = True
        return rate, row, known


_last: list[tuple[Rates, Curves, int, int, RateTable]] = []


def slowest_rate(problem: Problem, gpus: Ints) -> Floats:
    """Return the rate of each job at so many GPUs on its slowest allowed type of the pools, (J,).

    It is nan for a job that has no rate on any of them.
    """
    table, pools, types = RateTable.of(problem), problem.pools, problem.allowed_types
    out = np.full(len(problem.jobs), np.nan)
    for t in np.unique(pools.gpu_type):
        # the maximum is nan if any memory is unknown
        memory_gb = pools.memory_gb[pools.gpu_type == t].max()
        rate, _ = table.rate(problem.jobs.model, np.full(len(gpus), t), gpus, memory_gb)
        out = np.where(types[:, t] & (rate > 0), np.fmin(out, rate), out)
    return out
