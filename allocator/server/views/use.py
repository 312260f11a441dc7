"""GPUs in use over the last hours, by pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from allocator.queue import cluster_tables
from allocator.queue.database.bulk import query

SAMPLES = 49
_HELD = (
    "SELECT pool, held_gpus, ordered_s, ended_s FROM allocations"
    " WHERE held_gpus > 0 AND (ended_s IS NULL OR ended_s > ?)"
)


@dataclass(frozen=True)
class UseOverTime:
    """GPUs in use: at_s are the times, unix seconds; by_pool has a number for each of them."""

    at_s: tuple[float, ...]
    by_pool: dict[str, tuple[int, ...]]
    gpus: int


def read_use(connection: Connection, now_s: float, hours: float = 24.0) -> UseOverTime:
    """Return the GPUs in use over the last hours, and how many there are now."""
    at_s = np.linspace(now_s - 3600.0 * hours, now_s, SAMPLES)
    pools = cluster_tables.gpus(connection)
    rows = query(connection, _HELD, float(at_s[0]))
    by_pool = {}
    for pool in pools:
        spans = [(gpus, begin, end) for name, gpus, begin, end in rows if name == pool]
        gpus = np.array([span[0] for span in spans], dtype=np.int64)
        begin = np.array([span[1] for span in spans], dtype=np.float64)
        end = np.array([np.inf if s[2] is None else s[2] for s in spans], dtype=np.float64)
        change = np.zeros(SAMPLES + 1, dtype=np.int64)
        np.add.at(change, np.searchsorted(at_s, begin), gpus)
        np.subtract.at(change, np.searchsorted(at_s, end), gpus)
        by_pool[pool] = tuple(int(n) for n in change[:-1].cumsum())
    return UseOverTime(tuple(at_s.tolist()), by_pool, sum(pools.values()))
