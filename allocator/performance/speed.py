"""All known speeds of many configurations at once, with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.performance import batched, curves
from allocator.performance.fit.feedback import DEVIATION
from allocator.performance.table import RateTable

MEASURED = 0.02  # relative error of a measured speed
BETWEEN = 0.1  # relative error of a speed between measured sizes
GUESSED = 1.0  # relative error of an assumed speed


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
    """

    rate: Floats
    error: Floats
    batch: Ints
    accumulation: Ints


def believed_speeds(
    problem: Problem,
    model: Ints,
    gpu_type: Ints,
    gpus: Ints,
    batch: Ints | int = 0,
    memory_gb: Floats | float = np.nan,
    link_gb_s: Floats | float = np.inf,
) -> Speed:
    """Return the speeds of configurations by rates.csv and models.csv, (n,).

    Parameters
    ----------
    model, gpu_type, gpus : (n,)
        Indices of the problem, and sizes.
    batch : (n,)
        The global batch of a curve; 0 is the best one. Passes are the fewest that fit the memory,
        and nodes the fewest.
    memory_gb, link_gb_s : (n,)
        GB of a GPU, nan = no limit; GB/s of its link, inf = no limit.
    """
    table, rates, known = RateTable.of(problem), problem.rates, problem.curves
    rate, row = table.rate(model, gpu_type, gpus, memory_gb, link_gb_s=link_gb_s)
    asked = np.broadcast_to(batch, gpus.shape)
    rate[asked > 0], row[asked > 0] = np.nan, -1
    size, passes = (
        np.maximum(np.append(column, 0)[row], 0)
        for column in (rates.batch_size, rates.accumulation)
    )
    error = np.where(np.isnan(rate), np.nan, np.where(row >= 0, MEASURED, BETWEEN))
    error[table.is_assumed(model, gpu_type, gpus) & ~np.isnan(rate)] = GUESSED
    open_ = (row < 0) & (np.isnan(rate) | table.by_curve(model, gpu_type, gpus))
    curve = np.where(open_, table.curve(model, gpu_type), -1)
    names, code = known.kinds
    for i, kind in enumerate(names):
        at = np.flatnonzero((curve >= 0) & (code[curve] == i))
        q = {name: v[curve[at]] for name, v in known.numbers.items()}
        k = gpus[at].astype(np.float64)
        if kind in batched.KINDS:
            wanted = np.where(asked[at] > 0, asked[at], batched.best(kind, q, k).batch)
            best = batched.at(kind, q, k, wanted.astype(np.float64))
            sized = ~np.isnan(best.rate) & (best.batch > 1)
            size[at] = np.where(sized, best.batch, 0)
            passes[at] = np.where(sized, best.passes, 0)
            value = best.rate
        else:
            value = np.where(asked[at] == 0, curves.KINDS[kind](q, k), np.nan)
        rate[at] = np.where(curves.is_offered(q, gpus[at]), value, np.nan)
        deviation = batched.number(q, "error", DEVIATION)
        error[at] = np.where(np.isnan(rate[at]), np.nan, deviation)
    return Speed(rate, error, size, passes)
