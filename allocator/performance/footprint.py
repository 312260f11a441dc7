"""Memory of a job on one GPU, and the ways to need less of it: rows with more accumulation.

At (model, gpu_type, gpus) every row of rates.csv with memory_gb is a way. Without such a row,
memory_gb of the job counts at its usual speed. Without that there is no way, because GPUs are not
shared on a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.domain.schema.columns import MOST_GPUS

SPAN = MOST_GPUS + 1


@dataclass(frozen=True)
class Footprints:
    """The ways to run jobs at n places; arrays (W,).

    Attributes
    ----------
    start : (n + 1,)
        Those of place i are start[i] to start[i + 1].
    rate : (W,)
        Work per second alone.
    memory_gb : (W,)
        Memory on each GPU, GB.
    row : (W,)
        Row of rates.csv, -1 = none.
    accumulation : (W,)
        Passes per step, 0 = unknown.
    """

    start: Ints
    rate: Floats
    memory_gb: Floats
    row: Ints
    accumulation: Ints


def find_footprints(
    problem: Problem,
    model: Ints,
    pool: Ints,
    gpus: Ints,
    rate: Floats,
    row: Ints,
    memory_gb: Floats,
) -> Footprints:
    """Return the ways of n places, arrays (n,).

    rate and row are the usual speed and its row of rates.csv; memory_gb is that of the job, nan =
    unknown.
    """
    rates = problem.rates
    types = len(problem.gpu_types)
    measured = np.flatnonzero((rates.memory_gb > 0) & (rates.rate > 0) & (rates.nodes == 0))
    key = (rates.model[measured] * types + rates.gpu_type[measured]) * SPAN + rates.gpus[measured]
    order = np.argsort(key, kind="stable")
    wanted = (model * types + problem.pools.gpu_type[pool]) * SPAN + gpus
    first = np.searchsorted(key[order], wanted, side="left")
    count = np.searchsorted(key[order], wanted, side="right") - first
    alone = (count == 0) & (memory_gb > 0)
    start = np.append(0, np.cumsum(np.where(alone, 1, count)))
    owner = np.repeat(np.arange(len(model)), np.diff(start))
    place = first[owner] + np.arange(len(owner)) - start[owner]
    own = alone[owner]
    which = np.where(own, row[owner], np.append(measured[order], -1)[np.where(own, -1, place)])
    speed = rate[owner].copy()
    listed = np.flatnonzero(~own)
    speed[listed] = rates.over(which[listed], problem.pools.link_gb_s[pool[owner[listed]]])
    return Footprints(
        start,
        speed,
        np.where(own, memory_gb[owner], np.append(rates.memory_gb, np.nan)[which]),
        which,
        np.maximum(np.append(rates.accumulation, -1)[which], 0),
    )
