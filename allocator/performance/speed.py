"""One interface to all known speeds: rate and uncertainty of many configurations at once.

A configuration is a model, GPU type, size, batch and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance import batched, curves
from allocator.performance.fit.feedback import DEVIATION
from allocator.performance.table import RateTable

MEASURED = 0.02  # relative error of a measured speed
BETWEEN = 0.1  # relative error of a speed between measured sizes
GUESSED = 1.0  # relative error of an assumed speed


@dataclass(frozen=True)
class Configurations:
    """Configurations, arrays (n,).

    model and gpu_type are indices of the Problem, batch is the global batch, spread the number of
    nodes. memory_gb is that of one GPU, nan = no limit, and link_gb_s that of its link, inf = no
    limit. 0 means free: the best batch, the fewest passes that fit the memory, the fewest nodes.
    """

    model: Ints
    gpu_type: Ints
    gpus: Ints
    batch: Ints
    accumulation: Ints
    spread: Ints
    memory_gb: Floats
    link_gb_s: Floats

    @classmethod
    def of(
        cls,
        model: Ints,
        gpu_type: Ints,
        gpus: Ints,
        batch: Ints | None = None,
        memory_gb: Floats | None = None,
        link_gb_s: Floats | None = None,
    ) -> Configurations:
        """Return configurations in which everything else is free."""
        free = np.zeros(gpus.shape, dtype=np.int64)
        gpu_memory_gb = np.full(gpus.shape, np.nan) if memory_gb is None else memory_gb
        link = np.full(gpus.shape, np.inf) if link_gb_s is None else link_gb_s
        return cls(
            model, gpu_type, gpus, free if batch is None else batch, free, free, gpu_memory_gb, link
        )

    def __getitem__(self, rows: Ints) -> Configurations:
        return Configurations(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True)
class Speed:
    """Speeds, arrays (n,).

    Attributes
    ----------
    rate : (n,)
        Useful work per second, nan = unknown or impossible.
    error : (n,)
        Its relative standard deviation.
    batch, accumulation : (n,)
        What it needs, 0 = unknown.
    row : (n,)
        Row of rates.csv, -1 = none.
    """

    rate: Floats
    error: Floats
    batch: Ints
    accumulation: Ints
    row: Ints


class SpeedModel(Protocol):
    """Anything that knows how fast jobs run."""

    def speed(self, at: Configurations) -> Speed:
        """Return the speeds of these configurations; raises nothing."""


class BelievedSpeeds:
    """The SpeedModel of a Problem: its rates.csv and models.csv."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._table = RateTable.of(problem)

    def speed(self, at: Configurations) -> Speed:
        """Return the speeds of these configurations."""
        n = len(at.gpus)
        free = (at.batch == 0) & (at.accumulation == 0) & (at.spread == 0)
        rate = np.full(n, np.nan)
        row = np.full(n, -1, dtype=np.int64)
        rate[free], row[free] = self._table.rate(
            at.model[free],
            at.gpu_type[free],
            at.gpus[free],
            at.memory_gb[free],
            link_gb_s=at.link_gb_s[free],
        )
        bound = np.flatnonzero(~free)
        rate[bound], row[bound] = self._measured(at[bound])
        rates = self._problem.rates
        batch = np.where(
            row >= 0, np.maximum(rates.batch_size[row], 0) if len(rates.gpus) else 0, 0
        )
        passes = np.where(
            row >= 0, np.maximum(rates.accumulation[row], 0) if len(rates.gpus) else 0, 0
        )
        error = np.where(np.isnan(rate), np.nan, np.where(row >= 0, MEASURED, BETWEEN))
        error[self._table.is_assumed(at.model, at.gpu_type, at.gpus) & ~np.isnan(rate)] = GUESSED
        between = np.flatnonzero(
            (row < 0) & (np.isnan(rate) | self._table.by_curve(at.model, at.gpu_type, at.gpus))
        )
        made = self._curves(at[between])
        for array, value in (
            (rate, made.rate),
            (error, made.error),
            (batch, made.batch),
            (passes, made.accumulation),
        ):
            array[between] = value
        return Speed(rate, error, batch, passes, row)

    def _measured(self, at: Configurations) -> tuple[Floats, Ints]:
        """Return the fastest row of rates.csv with these settings, and its number."""
        rates = self._problem.rates
        same = np.ones((len(at.gpus), len(rates.gpus)), dtype=bool)
        for wanted, there in (
            (at.model, rates.model),
            (at.gpu_type, rates.gpu_type),
            (at.gpus, rates.gpus),
        ):
            same &= wanted[:, None] == there
        for wanted, there in (
            (at.batch, rates.batch_size),
            (at.accumulation, rates.accumulation),
            (at.spread, rates.spread),
        ):
            same &= (wanted[:, None] == 0) | (wanted[:, None] == there)
        same &= ~(rates.memory_gb > at.memory_gb[:, None])
        if not same.size:
            return np.full(len(at.gpus), np.nan), np.full(len(at.gpus), -1, dtype=np.int64)
        rate = rates.over(np.arange(len(rates.gpus))[None], at.link_gb_s[:, None])
        row = np.argmax(np.where(same, rate, -1.0), axis=1)
        known = same.any(axis=1)
        return np.where(known, rates.over(row, at.link_gb_s), np.nan), np.where(known, row, -1)

    def _curves(self, at: Configurations) -> Speed:
        n = len(at.gpus)
        known = self._problem.curves
        rate = np.full(n, np.nan)
        error = np.full(n, np.nan)
        batch = np.zeros(n, dtype=np.int64)
        passes = np.zeros(n, dtype=np.int64)
        curve = self._table.curve(at.model, at.gpu_type)
        names, code = known.kinds
        for i, kind in enumerate(names):
            mine = np.flatnonzero((curve >= 0) & (code[curve] == i))
            q = {name: v[curve[mine]] for name, v in known.numbers.items()}
            k = at.gpus[mine].astype(np.float64)
            inside = (k >= batched.number(q, "min_gpus", 1.0)) & (
                k <= batched.number(q, "max_gpus", curves.MAX_GPUS)
            )
            if kind in batched.KINDS:
                found = _choose_batch(kind, q, k, at[mine])
                sized = ~np.isnan(found.rate) & (found.batch > 1)
                batch[mine] = np.where(sized, found.batch, 0).astype(np.int64)
                passes[mine] = np.where(sized, found.passes, 0).astype(np.int64)
                value = found.rate
            else:
                value = np.where(
                    (at.batch[mine] == 0) & (at.spread[mine] == 0), curves.KINDS[kind](q, k), np.nan
                )
            rate[mine] = np.where(inside, value, np.nan)
            error[mine] = np.where(
                np.isnan(rate[mine]), np.nan, batched.number(q, "error", DEVIATION)
            )
        return Speed(rate, error, batch, passes, np.full(n, -1, dtype=np.int64))


def _choose_batch(
    kind: str, q: dict[str, Floats], k: Floats, at: Configurations
) -> batched.BestBatch:
    """Return the speed of a kind that knows the batch, at the best batch where it is free."""
    best = batched.best(kind, q, k)
    size = np.where(at.batch > 0, at.batch, best.batch).astype(np.float64)
    fewest = batched.passes_for(kind, q, k, size)
    passes = np.where(at.accumulation > 0, at.accumulation, fewest)
    nodes = np.where(at.spread > 0, at.spread, np.ceil(k / batched.number(q, "gpus_per_node", 8.0)))
    return batched.at(kind, q, k, size, passes, nodes)
