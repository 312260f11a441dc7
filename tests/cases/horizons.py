"""Synthetic horizons: the rounds of bench/solvers/instances.py over several intervals.

A job has up to 14 options. Its fastest option does 4 to 12 units of work in an interval. The job
needs about three such intervals (log-normal, sigma 0.8), and at most 48 units. A change or a start
costs 10 to 40 % of an interval. The value of work falls by 3 % per interval, and finishing has a
bonus that falls with time.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from allocator.bench.solvers.instances import generate
from formulations.horizon.intervals import Horizon
from formulations.model.linear import Floats

OPTIONS, MOST_UNITS, INTERVAL_S = 14, 48, 300.0


def horizon(
    size: str | tuple[int, int, int], seed: int = 0, intervals: int = 12, whole: bool = True
) -> Horizon:
    """Return a horizon.

    With `whole`, rates and what a pause leaves are whole units per interval; otherwise they are any
    numbers.
    """
    i = generate(size, seed)
    J, H = len(i.start) - 1, intervals
    rng = np.random.default_rng([seed, J, 99])
    tie = rng.random(len(i.job))
    order = np.lexsort((tie, i.job))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - i.start[i.job[order]]
    option = np.flatnonzero(place < OPTIONS)
    job, value = i.job[option], i.value[option]
    start = np.searchsorted(job, np.arange(J + 1))
    top = np.maximum.reduceat(value, start[:-1])
    u = rng.integers(4, 13, J).astype(float)
    rate = value / top[job] * u[job]
    need = np.clip(np.floor(u * rng.lognormal(np.log(3.0), 0.8, J)), 2, MOST_UNITS)
    lost = rng.uniform(0.1, 0.4, J)[job]
    if whole:
        rate = np.maximum(1.0, np.round(rate))
        lost = 1.0 - np.floor(rate * (1 - lost) + 1e-9) / rate
    unit_value = top / u
    bonus = unit_value * need * rng.uniform(0.2, 0.8, J)
    runs = rng.random(J) < 0.5
    current = np.where(runs, start[:-1] + (rng.random(J) * np.diff(start)).astype(np.int64), -1)
    first = bonus[:, None] * (1 - np.arange(H) / H)
    drop = bonus[:, None] / H * np.ones(H)
    T, n = len(i.capacity), len(option)
    gpus, cost, pool = i.gpus[option].astype(float), i.cost[option], i.pool[option]
    matrix = sparse.csr_matrix(
        (
            np.stack([gpus, cost], axis=1).ravel(),
            np.stack([pool, np.full(n, T)], axis=1).ravel(),
            2 * np.arange(n + 1),
        ),
        shape=(n, T + 1),
    )
    high: Floats = np.append(i.capacity, i.budget).astype(float)
    return Horizon(
        start=start,
        rate=rate / INTERVAL_S,
        switch_s=lost * INTERVAL_S,
        startup_s=lost * INTERVAL_S,
        matrix=matrix,
        high=np.tile(high, (H, 1)),
        low=np.full(T + 1, -np.inf),
        current=current,
        mandatory=np.zeros(J, dtype=bool),
        remaining=need,
        interval_s=INTERVAL_S,
        work=unit_value[:, None] * 0.97 ** np.arange(H),
        finish=first,
        slope=-(drop / INTERVAL_S),
        unfinished=np.zeros(J),
        loss=np.zeros(J),
        held=np.zeros((n, H)),
        jobs=i.jobs,
        rows=[*i.pools, "budget"],
    )
