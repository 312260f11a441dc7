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
from allocator.queue.holdings import Held, Turn, held, read_secondaries, write
from allocator.queue.jobs.states import Retries, state_after_end

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
    moving = {one.job_id for one, mark in given if mark.running_s is None or one.phase != "running"}
    _record_progress(connection, [pair for pair in given if pair[0].job_id not in moving], history)
    seen = [one for one, _ in given if one.job_id in moving]
    return _record_transitions(connection, seen, moving, retries) if seen else []


def _record_progress(
    connection: Connection,
    given: Sequence[tuple[Observation, Allocation]],
    history: bool,
) -> None:
    """Record running allocations whose observation has a later time or more work than is known."""
    rows: dict[str, tuple[Any, ...]] = {}
    for one, mark in given:
        name = one.job_id
        work, at_s = rows[name][:2] if name in rows else (mark.work_done, mark.observed_s)
        is_later = at_s is None or one.at_s > at_s
        # a number that is nan is never more
        is_more = min(one.work_done, mark.work_at_start) > work
        if is_later or is_more:
            rows[name] = (
                min(one.work_done, mark.work_at_start) if is_more else work,
                one.at_s if is_later else at_s,
                json.dumps(dict(one.reported)) if one.reported else "",
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
    for one in (
        sorted(given, key=lambda one: (one.at_s, one.job_id in secondaries))
        if secondaries
        else given
    ):
        known = now[one.job_id]
        updated = None if known.phase in ENDED else _apply_observation(one, known, retries)
        if updated is None:
            continue
        updated = _delay_after_losses(connection, updated, retries)
        now[one.job_id] = updated
        recorded[one.job_id, str(one.phase)] = one
        if updated.ended_s is None:
            continue
        secondary = now.get(secondaries.get(one.job_id, ""))
        if secondary is not None and secondary.phase not in ENDED:
            now[secondary.job_id] = secondary.outlive(updated, updated.ended_s)
            turns.append(now[secondary.job_id].turn(updated.ended_s))
    changed = {name: known for name, known in now.items() if known is not before[name]}
    write(connection, changed, turns)
    # how much the jobs that are done have done in all, where a target loss ended them
    left = {
        name: one.work_at_start
        - max(before[name].work_done, _work_said(recorded[name, "finished"]))
        for name, one in changed.items()
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
                one.job_id,
                one.generation,
                one.at_s,
                kind,
                one.detail,
                _work_done(one, changed[one.job_id]),
            )
            for (_, kind), one in recorded.items()
        ],
    )
    return [
        Ended(one.job_id, one.generation, one.phase, one.state, one.detail)
        for one in changed.values()
        if one.ended_s is not None
    ]


def _delay_after_losses(connection: Connection, one: Held, retries: Retries) -> Held:
    """Delay the next start of a job that lost two or more allocations soon after their start.

    The first such loss costs no time: a machine may fail. From the second on the job waits as long
    as after a failure, but it is never parked. A job that kills its own supervisor looks like this.
    """
    began = one.ordered_s if one.running_s is None else one.running_s
    if one.phase != "lost" or one.ended_s is None or one.state not in ("queued", "paused"):
        return one
    if one.ended_s - began > SOON_S:
        return one
    earlier = query(connection, _SOON_LOST, one.job_id, one.ended_s - LOSSES_KEPT_S, SOON_S)[0][0]
    return one._replace(retry_at_s=one.ended_s + retries.wait_s(int(earlier))) if earlier else one


def _apply_observation(one: Observation, known: Held, retries: Retries) -> Held | None:
    """Return the job and its allocation after an observation; None: it has nothing new."""
    work = _work_done(one, known)
    phase = str(one.phase)
    at_s = max(one.at_s, known.ordered_s)
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
        detail=one.detail,
        running_s=began,
        remaining_work=remaining,
        phase=known.phase if stops else phase,
        updated_s=at_s,
    )
    if phase == "running":
        return known
    end = at_s if began is None else max(at_s, began)
    return known.credit(end)._replace(
        ended_s=end, **state_after_end(known, phase, end, work > 0, one.detail, retries)
    )


def _work_done(one: Observation, known: Held) -> float:
    """Return the work done since the start, the greatest ever seen; nan counts as nothing."""
    if one.phase == "finished":
        return known.work_at_start
    return min(max(_work_said(one), known.work_done), known.work_at_start)


def _work_said(one: Observation) -> float:
    """Return the work that an observation states; nan counts as nothing."""
    return float(one.work_done) if one.work_done == one.work_done else 0.0


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
