"""The jobs that a queue has seen, as the history from which classes of jobs are estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection

from allocator.market.history import History
from allocator.queue.database.rows import as_columns, query
from allocator.queue.database.schema import ACTIVE

_JOBS = (
    "SELECT model, submitted_s, total_work, weight, max_gpus FROM jobs "
    f"WHERE submitted_s > ? AND state IN {('done', *ACTIVE)} ORDER BY submitted_s"
)
_ALWAYS_S = -1e300  # before every submission


def read_history(
    connection: Connection, source: str, models: Sequence[str], since_s: float = -math.inf
) -> tuple[History, list[str]]:
    """Return the jobs submitted since then that are done or under way.

    Jobs of other models than `models` are left out; the names of those models are returned too.
    """
    rows = query(connection, _JOBS, max(since_s, _ALWAYS_S))
    number = {name: m for m, name in enumerate(models)}
    unknown = sorted({row[0] for row in rows} - set(number))
    known = [(number[model], *rest) for model, *rest in rows if model in number]
    model, submitted, work, weight, most = as_columns(known, 5)
    history = History(
        source,
        np.array(model, dtype=np.int64),
        np.array(submitted, dtype=np.float64),
        np.array(work, dtype=np.float64),
        np.array([1.0 if w is None else w for w in weight], dtype=np.float64),
        np.array(most, dtype=np.int64),
    )
    return history, unknown
