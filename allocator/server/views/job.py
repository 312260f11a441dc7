"""The view of one job: its timeline, its observed and expected speeds, and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection

from allocator.queue.cluster_tables import read_learned_rates, read_stored_rows
from allocator.queue.jobs.verbs import (
    Job,
    history,
    read_observations,
    read_turns,
    show,
    unknown_job_error,
)
from allocator.queue.node_space import Part
from allocator.server.views.cluster import hide_names
from allocator.server.views.jobs import JobAnswer, read_rows
from allocator.server.views.rounds import RoundPlan, read_last_plan

MOST_EVENTS = 200  # the latest
PHASES = {
    "stopped": "stopped with a checkpoint",
    "finished": "finished",
    "failed": "failed",
    "lost": "lost",
}


@dataclass(frozen=True)
class Event:
    """Something that happened to a job, at a time in unix seconds."""

    at_s: float
    what: str
    detail: str = ""


@dataclass(frozen=True)
class SpeedCheck:
    """The speed of a job on GPUs of one type and number, in work per second.

    Attributes
    ----------
    observed : float or None
        Its mean over the latest such allocation, the pause of the start included. None: nothing
        was observed yet.
    given, corrected : float or None
        Best rate of the queue's rates, and the rate that the controller learned.
    planned : float or None
        What the last plan counts with, if it gives the job these GPUs.
    """

    gpu_type: str
    gpus: int
    observed: float | None
    given: float | None
    corrected: float | None
    planned: float | None


@dataclass(frozen=True)
class JobView:
    """One job with all that is known about it; `allocations` are rows of the table."""

    row: JobAnswer
    job: Job
    left_s: float | None
    events: tuple[Event, ...]
    allocations: list[dict[str, Any]]
    speeds: tuple[SpeedCheck, ...]


def read_job(
    connection: Connection, now_s: float, job_id: str, *, tenant: str | None = None
) -> JobView:
    """Return one job.

    Parameters
    ----------
    now_s : float
        The present, unix seconds.
    job_id : str
        The job.
    tenant : str, optional
        Only jobs of this tenant can be seen; others are as if they were not there, and jobs with
        which this one shares GPUs have no name.

    Raises
    ------
    UsageError
        If there is no such job.
    """
    plan = read_last_plan(connection)
    rows = read_rows(connection, now_s, [job_id], plan)
    if not rows or tenant not in (None, rows[0].tenant):
        raise unknown_job_error(connection, job_id, tenant)
    row = rows[0]
    job = show(connection, job_id)
    allocations = history(connection, job_id)
    speeds = tuple(_check_speeds(connection, job, allocations, plan))
    events = _list_events(connection, job, allocations, tenant)
    return JobView(
        row,
        job,
        _seconds_left(row, speeds),
        tuple(sorted(events, key=attrgetter("at_s"))[-MOST_EVENTS:]),
        allocations,
        speeds,
    )


def _list_events(
    connection: Connection, job: Job, allocations: Sequence[dict[str, Any]], tenant: str | None
) -> Iterator[Event]:
    yield Event(job.submitted_s, "submitted")
    for one in allocations:
        what = f"{one['gpus']} x {one['pool']}"
        nodes = ", ".join(str(Part(**part)) for part in one["nodes"] or ())
        yield Event(one["ordered_s"], f"start ordered on {what}", nodes)
        if one["running_s"] is not None:
            yield Event(one["running_s"], f"runs on {what}")
        if one["stop_ordered_s"] is not None:
            yield Event(one["stop_ordered_s"], f"stop ordered on {what}")
        if one["ended_s"] is not None:
            yield Event(one["ended_s"], f"{PHASES[one['phase']]} on {what}", one["detail"])
    turns = read_turns(connection, job.job_id)
    names = {turn["host"]: turn["host"] for turn in turns if turn["host"]}
    if tenant is not None:
        names = hide_names(connection, names, tenant)
    for turn in turns:
        where = (
            f'on the GPUs of "{names[turn["host"]]}"' if turn["host"] else "holds its GPUs itself"
        )
        yield Event(turn["at_s"], where)
    for seen in read_observations(connection, job.job_id):
        if seen["kind"] == "running" and seen["work_done"] > 0:
            said = "".join(f", {name} {x:g}" for name, x in seen["reported"].items())
            words = f"{seen['work_done']:g} of work since its start{said}"
            yield Event(seen["at_s"], "progress", words)
    if job.finished_s is not None:
        yield Event(job.finished_s, job.state)
    elif job.state == "failed":
        yield Event(job.updated_s, "parked", job.park_reason)


def _check_speeds(
    connection: Connection,
    job: Job,
    allocations: Sequence[dict[str, Any]],
    plan: RoundPlan | None,
) -> Iterator[SpeedCheck]:
    model = job.values["model"]
    given: dict[tuple[str, int], float] = {}
    for rate in read_stored_rows(connection, "rates.csv"):
        if rate["model"] == model and rate["work_per_s"] is not None:
            key = (rate["gpu_type"], rate["gpus"])
            share = 1.0 if rate["efficiency"] is None else rate["efficiency"]
            given[key] = max(given.get(key, 0.0), rate["work_per_s"] * share)
    corrected = {
        (rate["gpu_type"], rate["gpus"]): rate["work_per_s"]
        for rate in read_learned_rates(connection)
        if rate["model"] == model
    }
    entry = {} if plan is None else plan.jobs.get(job.job_id, {})
    latest = {(one["gpu_type"], one["gpus"]): one for one in allocations}
    for key, one in reversed(latest.items()):
        is_planned = (entry.get("pool"), entry.get("gpus")) == (one["pool"], one["gpus"])
        yield SpeedCheck(
            *key,
            _observed_speed(one),
            given.get(key),
            corrected.get(key),
            entry["work_per_s"] if is_planned else None,
        )


def _observed_speed(allocation: dict[str, Any]) -> float | None:
    since = allocation["running_s"]
    seen = allocation["observed_s"]
    if since is None or seen is None or seen <= since or allocation["work_done"] <= 0:
        return None
    return float(allocation["work_done"] / (seen - since))


def _seconds_left(row: JobAnswer, speeds: Sequence[SpeedCheck]) -> float | None:
    """Return how long the remaining work takes at the observed speed, else the planned one."""
    if row.pool is None:
        return None
    here = (speed for speed in speeds if speed.gpus == row.gpus)
    for speed in here:
        rate = speed.observed or speed.planned or speed.corrected or speed.given
        if rate is not None and rate > 0 and math.isfinite(rate):
            return row.remaining_work / rate
    return None
