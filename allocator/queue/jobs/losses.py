"""The losses that running jobs with a target loss report, and what is expected from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.queue.database.bulk import execute_many, query_of

_READ = "SELECT job_id, points FROM losses WHERE job_id IN ({names})"
_SETTLE = (
    "UPDATE jobs SET total_work = CASE WHEN total_work - ? > ? THEN total_work - ? ELSE ? END"
    " WHERE job_id = ? AND target_loss IS NOT NULL AND every_s IS NULL AND total_work > ?"
)


class Heard(NamedTuple):
    """A loss that a job reported after so much work in all."""

    job_id: str
    target_loss: float
    work: float
    loss: float


def record_losses(connection: Connection, heard: Iterable[Heard]) -> None:
    """Add losses to the curves of their jobs, and note what these say of the jobs' whole work."""
    by_name = {one.job_id: one for one in heard}
    known = read_curves(connection, list(by_name))
    longer = {
        name: curve
        for name, one in by_name.items()
        if (curve := known[name].add(one.work, one.loss)) is not known[name]
    }
    if not longer:
        return
    targets = np.array([by_name[name].target_loss for name in longer])
    work, error = expect_work(list(longer.values()), targets)
    execute_many(
        connection,
        "INSERT INTO losses (job_id, points, loss_work, loss_error) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (job_id) DO UPDATE SET points = excluded.points,"
        " loss_work = excluded.loss_work, loss_error = excluded.loss_error",
        [
            (name, json.dumps(curve.points), *((None, None) if math.isnan(k) else (k, e)))
            for (name, curve), k, e in zip(
                longer.items(), work.tolist(), error.tolist(), strict=True
            )
        ],
    )


def settle_work(connection: Connection, left: Mapping[str, float]) -> None:
    """Set the whole work of jobs that reached their target loss to what they did.

    `left` has the work of jobs that are done which nobody saw. What was done is the rest, or the
    work of the last loss if that is more. Jobs of the same model learn their size from it. A
    periodic job keeps what its owner said, because the next one takes it over.
    """
    seen = {
        name: curve.points[-1][0]
        for name, curve in read_curves(connection, list(left)).items()
        if curve.points and left[name] > 0
    }
    rows = [(left[name], k, left[name], k, name, k) for name, k in seen.items() if k > 0]
    execute_many(connection, _SETTLE, rows)


def read_curves(connection: Connection, names: list[str]) -> dict[str, LossCurve]:
    """Return the curve of each of these jobs, an empty one where it has none."""
    rows = query_of(connection, _READ, names)
    found = {name: LossCurve(tuple(map(tuple, json.loads(points)))) for name, points in rows}
    return {name: found.get(name, LossCurve()) for name in names}
