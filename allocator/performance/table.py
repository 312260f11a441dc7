"""Speed of a model on a number of GPUs: measured rows, the rule between them, fitted curves where nothing was measured.

Source: contract section 1, rates.csv. At a measured size the fastest row counts. Between two measured sizes
k1 < k < k2 the rate is min(r1 + (r2 - r1)(k - k1)/(k2 - k1), r1 k/k1). Outside the measured range nothing is
offered, unless a curve of models.csv covers the size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.domain.columns import MOST_GPUS
from allocator.domain.problem import Curves, Floats, Ints, Problem, Rates
from allocator.performance import batched
from allocator.performance import curves as formulas

SPAN = MOST_GPUS + 1      # sizes of one (model, gpu_type) occupy one span of the sorted key


class RateTable:
    """Vectorised look-up of rates; built once per Problem, never changed."""

    def __init__(self, rates: Rates, curves: Curves, models: int, gpu_types: int) -> None:
        self._types = gpu_types
        key = self._key(rates.model, rates.gpu_type, rates.gpus)
        # slowest first, so that the last row of each key is the fastest (the first such row in file order)
        order = np.lexsort((-np.arange(len(key)), rates.rate, key))
        last = np.flatnonzero(np.append(np.diff(key[order]) != 0, True)) if len(key) else np.zeros(0, np.int64)
        self._row = order[last]
        self._keys = key[self._row]
        self._rate = rates.rate[self._row]
        self._curves = curves
        self._curve_of = np.full(models * gpu_types + 1, -1)
        self._curve_of[curves.model * gpu_types + curves.gpu_type] = np.arange(len(curves.kind))
        self.largest = self._largest(rates, curves, models)

    @classmethod
    def of(cls, problem: Problem) -> RateTable:
        """The table of a Problem's rates and curves. The rounds of a simulation share them, so the last is kept."""
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
        """Largest size for which any rate of the model may exist, shape (models,)."""
        largest = np.zeros(models, dtype=np.int64)
        np.maximum.at(largest, rates.model, rates.gpus)
        reach = curves.numbers.get("max_gpus", np.full(len(curves.kind), float(formulas.MAX_GPUS)))
        np.maximum.at(largest, curves.model, np.where(np.isnan(reach), formulas.MAX_GPUS, reach).astype(np.int64))
        return largest

    def rate(self, model: Ints, gpu_type: Ints, gpus: Ints) -> tuple[Floats, Ints]:
        """Work per second and the row of rates.csv it comes from, shapes as the arguments.

        The rate is nan where the size is not offered; the row is -1 where the rate is interpolated or from a curve.
        """
        wanted = self._key(model, gpu_type, gpus)
        out = np.full(wanted.shape, np.nan)
        row = np.full(wanted.shape, -1, dtype=np.int64)
        if len(self._keys):
            self._look_up(wanted, out, row)
        curve = self._curve_of[model * self._types + gpu_type]
        open_ = np.isnan(out) & (curve >= 0)
        names, code = self._curves.kinds
        for i, kind in enumerate(names):
            mine = np.flatnonzero(open_ & (code[curve] == i))
            c, k, back = curve[mine], gpus[mine], np.arange(len(mine))
            if kind in batched.KINDS:        # the best batch takes a while, and is the same for many jobs
                distinct, back = np.unique(c * SPAN + k, return_inverse=True)
                c, k = np.divmod(distinct, SPAN)
            found = formulas.rate(kind, {name: v[c] for name, v in self._curves.numbers.items()}, k)
            out[mine] = found[back.reshape(-1)]
        return out, row

    def curve(self, model: Ints, gpu_type: Ints) -> Ints:
        """The row of models.csv of each, -1 = none."""
        row: Ints = self._curve_of[model * self._types + gpu_type]
        return row

    def by_curve(self, model: Ints, gpu_type: Ints, gpus: Ints) -> NDArray[np.bool_]:
        """True where rates.csv says nothing, neither at the size nor at sizes around it, and a curve may."""
        out = np.full(gpus.shape, np.nan)
        if len(self._keys):
            self._look_up(self._key(model, gpu_type, gpus), out, np.zeros(gpus.shape, dtype=np.int64))
        open_: NDArray[np.bool_] = np.isnan(out) & (self.curve(model, gpu_type) >= 0)
        return open_

    def _look_up(self, wanted: Ints, out: Floats, row: Ints) -> None:
        above = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        exact: NDArray[np.bool_] = self._keys[above] == wanted
        out[exact] = self._rate[above[exact]]
        row[exact] = self._row[above[exact]]
        below = np.maximum(above - 1, 0)
        group = wanted // SPAN
        between = ~exact & (self._keys[above] > wanted) & (self._keys[below] < wanted)
        between &= (self._keys[above] // SPAN == group) & (self._keys[below] // SPAN == group)
        if not between.any():
            return
        a, b = below[between], above[between]
        k1, k2 = self._keys[a] % SPAN, self._keys[b] % SPAN
        r1, r2 = self._rate[a], self._rate[b]
        k = wanted[between] % SPAN
        out[between] = np.minimum(r1 + (r2 - r1) * (k - k1) / (k2 - k1), r1 * k / k1)


_last: list[tuple[Rates, Curves, int, int, RateTable]] = []
