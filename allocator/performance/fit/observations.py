"""Measured speeds, the input of all fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocator.domain.problem import Floats, Ints
from formulations.columns import Columns
from formulations.model.linear import begins_run


@dataclass(frozen=True)
class Observations(Columns):
    """Hold n measurements of speed; arrays (n,).

    Attributes
    ----------
    models, gpu_types : tuple of str
        Names.
    model, gpu_type : (n,)
        Index into the names.
    gpus : (n,)
        Size.
    rate : (n,)
        Work per second.
    efficiency : (n,)
        Useful share of the work, nan = unknown.
    batch : (n,)
        Global batch, 0 = unknown.
    passes : (n,)
        Passes per step (accumulation), at least 1.
    nodes : (n,)
        Number of nodes, 0 = unknown.
    compute_s : (n,)
        Seconds of a step without synchronisation, nan = unknown.
    """

    models: tuple[str, ...]
    gpu_types: tuple[str, ...]
    model: Ints
    gpu_type: Ints
    gpus: Ints
    rate: Floats
    efficiency: Floats
    batch: Floats
    passes: Floats
    nodes: Floats
    compute_s: Floats

    @classmethod
    def of(
        cls, model: list[str], gpu_type: list[str], gpus: Any, rate: Any, **more: Any
    ) -> Observations:
        """Build the measurements from one name per row; a column that is not given is unknown."""
        models = tuple(dict.fromkeys(model))
        types = tuple(dict.fromkeys(gpu_type))
        n = len(model)
        default = {
            "efficiency": np.nan,
            "batch": 0.0,
            "passes": 1.0,
            "nodes": 0.0,
            "compute_s": np.nan,
        }
        filled = {
            name: np.asarray(more.get(name, np.full(n, value)), np.float64)
            for name, value in default.items()
        }
        code_m = {m: i for i, m in enumerate(models)}
        code_t = {t: i for i, t in enumerate(types)}
        return cls(
            models,
            types,
            np.array([code_m[m] for m in model], np.int64),
            np.array([code_t[t] for t in gpu_type], np.int64),
            np.asarray(gpus, np.int64),
            np.asarray(rate, np.float64),
            **filled,
        )

    def __len__(self) -> int:
        return len(self.gpus)

    def groups(self) -> Iterator[tuple[str, str, Observations]]:
        """Yield each model and GPU type with its rows, in order of first appearance.

        Rows with a speed of 0 are left out.
        """
        some = self.take(self.rate > 0)
        key = some.model * max(1, len(self.gpu_types)) + some.gpu_type
        _, first, code = np.unique(key, return_index=True, return_inverse=True)
        rows = np.split(
            np.argsort(code, kind="stable"), np.cumsum(np.bincount(code.reshape(-1)))[:-1]
        )
        for g in np.argsort(first).tolist():
            row = int(first[g])
            yield (
                self.models[some.model[row]],
                self.gpu_types[some.gpu_type[row]],
                some.take(rows[g]),
            )

    def average_equal_settings(self) -> Observations:
        """Merge rows with equal settings into one, whose speed is the geometric mean.

        All rows must be of one model and GPU type.
        """
        key = np.stack([self.gpus, self.batch, self.passes, self.nodes])
        _, first, code = np.unique(key, axis=1, return_index=True, return_inverse=True)
        code = code.reshape(-1)
        count = np.bincount(code)

        def mean(values: Floats) -> Floats:
            with np.errstate(all="ignore"):
                return np.exp(np.bincount(code, np.log(values)) / count)

        return replace(
            self.take(first),
            rate=mean(self.rate),
            efficiency=mean(self.efficiency),
            compute_s=mean(self.compute_s),
        )

    @property
    def useful(self) -> Floats:
        """Useful work per second, (n,); an unknown efficiency counts as 1."""
        return self.rate * np.where(np.isnan(self.efficiency), 1.0, self.efficiency)

    def fastest(self) -> Ints:
        """Return the row of the fastest setting of each size, by size.

        All rows must be of one model and GPU type.
        """
        order = np.lexsort((-self.useful, self.gpus))
        first = begins_run(self.gpus[order])
        return order[first]
