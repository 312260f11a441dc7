"""What executors observe of open allocations: the first sight, progress and the end.

Orders, and what jobs hold, are in allocations.py.

A running job with a target loss also reports losses; what is expected from them is noted here too.

Progress comes from every running job in every round, so it is written in one place only, the
allocation. The remaining work of the job follows from it (`read_jobs` in jobs/verbs.py). First
sights and ends are rare and change the job too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.loop.executor import ENDED, Observation
from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.queue import lease
from allocator.queue.allocations import Allocation
from allocator.queue.database.rows import execute, execute_many, query, query_of
from allocator.queue.holdings import (
    Held,
    Retries,
    Turn,
    held,
    read_secondaries,
    state_after_end,
    write,
)

_READ = "SELECT job_id, points FROM losses WHERE job_id IN ({names})"
_SETTLE = (
    "UPDATE jobs SET total_work = CASE WHEN total_work - ? > ? THEN total_work - ? ELSE ? END"
    " WHERE job_id = ? AND target_loss IS NOT NULL AND every_s IS NULL AND total_work > ?"
)

# seconds after its start within which an allocation may have caused its own loss
SOON_S = 120.0
LOSSES_KEPT_S = 4 * 3600.0  # seconds for which earlier losses count


class Ended(NamedTuple):
    """An allocation that ended: how and why, and the state of its job now."""

    job_id: str
    generation: int
    phase: str
    state: str
    detail: str


_SOON_LOST = (
    "SELECT COUNT(*) FROM allocations WHERE job_id = ? AND phase = 'lost' AND ended_s > ? "
    "AND ended_s - COALESCE(running_s, ordered_s) <= ?"
)
_PRUNE = (
    "DELETE FROM observations WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER"
    " (PARTITION BY job_id, generation ORDER BY id DESC) AS place FROM observations) ranked"
    " WHERE place > ?) OR job_id IN (SELECT job_id FROM jobs WHERE state IN ('done', 'cancelled'))"
)


def record(
    connection: Connection,
    token: int,
    given: Sequence[tuple[Observation, Allocation]],
    retries: Retries,
    history: bool,
) -> list[Ended]:
    """Record what an executor observed of open allocations, and return those that ended.

    Observations of known facts change nothing. The work of an allocation is the greatest ever seen,
    at most the remaining work at its start. An end is final.

    Parameters
    ----------
    given : sequence of (Observation, Allocation)
        Observations of open allocations, each with what the queue knows of it.
    retries : Retries
        Pauses after failures.
    history : bool
        Progress is also added to the table `observations`. First sights and ends always are.

    Returns
    -------
    list of Ended
        The allocations that have ended now.

    Raises
    ------
    LeaseLost
        If the token is not the current one.
    """
    lease.check(connection, token)
    moving = {
        observation.job_id
        for observation, mark in given
        if mark.running_s is None or observation.phase != "running"
    }
    _record_progress(connection, [pair for pair in given if pair[0].job_id not in moving], history)
    seen = [observation for observation, _ in given if observation.job_id in moving]
    return _record_transitions(connection, seen, moving, retries) if seen else []


def _record_progress(
    connection: Connection,
    given: Sequence[tuple[Observation, Allocation]],
    history: bool,
) -> None:
    """Record running allocations whose observation has a later time or more work than is known."""
    rows: dict[str, tuple[Any, ...]] = {}
    for observation, mark in given:
        name = observation.job_id
        work, at_s = rows[name][:2] if name in rows else (mark.work_done, mark.observed_s)
        is_later = at_s is None or observation.at_s > at_s
        # a number that is nan is never more
        is_more = min(observation.work_done, mark.work_at_start) > work
        if is_later or is_more:
            rows[name] = (
                min(observation.work_done, mark.work_at_start) if is_more else work,
                observation.at_s if is_later else at_s,
                json.dumps(dict(observation.reported)) if observation.reported else "",
                name,
                mark.generation,
            )
    execute_many(
        connection,
        "UPDATE allocations SET work_done = ?, observed_s = ?, reported = ? "
        "WHERE job_id = ? AND generation = ?",
        list(rows.values()),
    )
    if history:
        execute_many(
            connection,
            "INSERT INTO observations (work_done, at_s, reported, job_id, generation, kind) "
            "VALUES (?, ?, ?, ?, ?, 'running')",
            list(rows.values()),
        )


def _record_transitions(
    connection: Connection, given: Sequence[Observation], names: set[str], retries: Retries
) -> list[Ended]:
    """Record first sights and ends, with all other observations of the same allocations.

    When one of two colocated jobs ends, the other one holds the GPUs from that moment on.
    """
    secondaries = read_secondaries(connection)
    before = held(connection, names | {secondaries[name] for name in names if name in secondaries})
    now = dict(before)
    recorded: dict[tuple[str, str], Observation] = {}
    turns: list[Turn] = []
    # in the order of time: when one of two colocated jobs ends, the other one holds the GPUs
    for observation in (
        sorted(given, key=lambda observation: (observation.at_s, observation.job_id in secondaries))
        if secondaries
        else given
    ):
        known = now[observation.job_id]
        updated = None if known.phase in ENDED else _apply_observation(observation, known, retries)
        if updated is None:
            continue
        updated = _delay_after_losses(connection, updated, retries)
        now[observation.job_id] = updated
        recorded[observation.job_id, str(observation.phase)] = observation
        if updated.ended_s is None:
            continue
        secondary = now.get(secondaries.get(observation.job_id, ""))
        if secondary is not None and secondary.phase not in ENDED:
            now[secondary.job_id] = secondary.outlive(updated, updated.ended_s)
            turns.append(now[secondary.job_id].turn(updated.ended_s))
    changed = {name: known for name, known in now.items() if known is not before[name]}
    write(connection, changed, turns)
    # how much the jobs that are done have done in all, where a target loss ended them
    left = {
        name: job.work_at_start
        - max(before[name].work_done, _work_said(recorded[name, "finished"]))
        for name, job in changed.items()
        if (name, "finished") in recorded
    }
    if left:
        settle_work(connection, left)
    execute_many(
        connection,
        "INSERT INTO observations (job_id, generation, at_s, kind, detail, work_done) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                observation.job_id,
                observation.generation,
                observation.at_s,
                kind,
                observation.detail,
                _work_done(observation, changed[observation.job_id]),
            )
            for (_, kind), observation in recorded.items()
        ],
    )
    return [
        Ended(job.job_id, job.generation, job.phase, job.state, job.detail)
        for job in changed.values()
        if job.ended_s is not None
    ]


def _delay_after_losses(connection: Connection, job: Held, retries: Retries) -> Held:
    """Delay the next start of a job that lost two or more allocations soon after their start.

    The first such loss costs no time: a machine may fail. From the second on the job waits as long
    as after a failure, but it is never parked. A job that kills its own supervisor looks like this.
    """
    began = job.ordered_s if job.running_s is None else job.running_s
    if job.phase != "lost" or job.ended_s is None or job.state not in ("queued", "paused"):
        return job
    if job.ended_s - began > SOON_S:
        return job
    earlier = query(connection, _SOON_LOST, job.job_id, job.ended_s - LOSSES_KEPT_S, SOON_S)[0][0]
    return job._replace(retry_at_s=job.ended_s + retries.wait_s(int(earlier))) if earlier else job


def _apply_observation(observation: Observation, known: Held, retries: Retries) -> Held | None:
    """Return the job and its allocation after an observation; None: it has nothing new."""
    work = _work_done(observation, known)
    phase = str(observation.phase)
    at_s = max(observation.at_s, known.ordered_s)
    remaining = known.work_at_start - work
    if phase == "running" and known.running_s is not None:
        if known.observed_s is not None and at_s <= known.observed_s and work <= known.work_done:
            return None
        return known._replace(
            work_done=work,
            observed_s=max(at_s, known.observed_s or at_s),
            remaining_work=remaining,
            updated_s=at_s,
        )
    began = _start_time(phase, at_s, known, work)
    if known.running_s is None and began is not None:
        first = known.first_started_s is None
        known = known._replace(
            first_started_s=began if first else known.first_started_s,
            restarts=known.restarts + (0 if first else 1),
            largest_gpus=max(known.largest_gpus, known.gpus),
        )
    stops = phase == "running" and known.phase == "stopping"
    known = known._replace(
        work_done=work,
        observed_s=at_s,
        detail=observation.detail,
        running_s=began,
        remaining_work=remaining,
        phase=known.phase if stops else phase,
        updated_s=at_s,
    )
    if phase == "running":
        return known
    end = at_s if began is None else max(at_s, began)
    return known.credit(end)._replace(
        ended_s=end, **state_after_end(known, phase, end, work > 0, observation.detail, retries)
    )


def _work_done(observation: Observation, known: Held) -> float:
    """Return the work done since the start, the greatest ever seen; nan counts as nothing."""
    if observation.phase == "finished":
        return known.work_at_start
    return min(max(_work_said(observation), known.work_done), known.work_at_start)


def _work_said(observation: Observation) -> float:
    """Return the work that an observation states; nan counts as nothing."""
    return float(observation.work_done) if observation.work_done == observation.work_done else 0.0


def _start_time(phase: str, at_s: float, known: Held, work: float) -> float | None:
    """Return when the allocation began to run, or None if it is not known to have run.

    If its end is observed before it was ever seen running, it counts as running since its order.
    """
    if known.running_s is not None:
        return known.running_s
    if phase == "running":
        return at_s
    return None if phase in ("stopped", "lost") and work <= 0 else known.ordered_s


def prune(connection: Connection, token: int, keep: int) -> int:
    """Drop all but the last `keep` observations of each allocation, and all of jobs that are over.

    Returns how many were dropped. Raises LeaseLost.
    """
    lease.check(connection, token)
    return execute(connection, _PRUNE, keep)


class Heard(NamedTuple):
    """A loss that a job reported after so much work in all."""

    job_id: str
    target_loss: float
    work: float
    loss: float


def record_losses(connection: Connection, heard: Iterable[Heard]) -> None:
    """Add losses to the curves of their jobs, and note what these say of the jobs' whole work."""
    by_name = {report.job_id: report for report in heard}
    known = read_curves(connection, list(by_name))
    longer = {
        name: curve
        for name, report in by_name.items()
        if (curve := known[name].add(report.work, report.loss)) is not known[name]
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
    curves = {name: LossCurve(tuple(map(tuple, json.loads(points)))) for name, points in rows}
    return {name: curves.get(name, LossCurve()) for name in names}
