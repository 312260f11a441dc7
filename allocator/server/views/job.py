"""The view of one job: its timeline, its observed and expected speeds, and its cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from allocator.loop.executor import NodePart
from allocator.objects import Json
from allocator.queue.cluster_tables import read_learned_rates, read_stored_rows
from allocator.queue.jobs.verbs import (
    Job,
    history,
    read_observations,
    read_turns,
    show,
    unknown_job_error,
)
from allocator.server.views.cluster import hide_names
from allocator.server.views.jobs import JobAnswer, read_rows
from allocator.server.views.sight import Sight

MOST_EVENTS = 200  # the latest


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
    allocations: list[Json]
    speeds: tuple[SpeedCheck, ...]


def read_job(sight: Sight, job_id: str) -> JobView:
    """Return one job.

    A member sees jobs of its tenant; others are as if they were not there, and jobs with which
    this one shares GPUs have no name. Raises UsageError if there is no such job.
    """
    rows = read_rows(sight, [job_id])
    if not rows or sight.tenant not in (None, rows[0].tenant):
        raise unknown_job_error(sight.connection, job_id, sight.tenant)
    row = rows[0]
    job = show(sight.connection, job_id)
    allocations = history(sight.connection, job_id)
    speeds = tuple(_check_speeds(sight, job, allocations))
    events = sorted(_list_events(sight, job, allocations), key=attrgetter("at_s"))
    left_s = _find_seconds_left(row, speeds)
    return JobView(row, job, left_s, tuple(events[-MOST_EVENTS:]), allocations, speeds)


def _list_events(sight: Sight, job: Job, allocations: Sequence[Json]) -> Iterator[Event]:
    yield Event(job.submitted_s, "submitted")
    for allocation in allocations:
        what = f"{allocation['gpus']} x {allocation['pool']}"
        nodes = ", ".join(str(NodePart(**part)) for part in allocation["nodes"] or ())
        yield Event(allocation["ordered_s"], f"start ordered on {what}", nodes)
        if allocation["running_s"] is not None:
            yield Event(allocation["running_s"], f"runs on {what}")
        if allocation["stop_ordered_s"] is not None:
            yield Event(allocation["stop_ordered_s"], f"stop ordered on {what}")
        if allocation["ended_s"] is not None:
            how = " with a checkpoint" * (allocation["phase"] == "stopped")
            yield Event(
                allocation["ended_s"], f"{allocation['phase']}{how} on {what}", allocation["detail"]
            )
    turns = read_turns(sight.connection, job.job_id)
    names = hide_names(sight, [turn["host"] for turn in turns if turn["host"]])
    for turn in turns:
        where = (
            f'on the GPUs of "{names[turn["host"]]}"' if turn["host"] else "holds its GPUs itself"
        )
        yield Event(turn["at_s"], where)
    for seen in read_observations(sight.connection, job.job_id):
        if seen["kind"] == "running" and seen["work_done"] > 0:
            reported = "".join(f", {name} {x:g}" for name, x in seen["reported"].items())
            words = f"{seen['work_done']:g} of work since its start{reported}"
            yield Event(seen["at_s"], "progress", words)
    if job.finished_s is not None:
        yield Event(job.finished_s, job.state)
    elif job.state == "failed":
        yield Event(job.updated_s, "parked", job.park_reason)


def _check_speeds(sight: Sight, job: Job, allocations: Sequence[Json]) -> Iterator[SpeedCheck]:
    model = job.values["model"]
    given: dict[tuple[str, int], float] = {}
    for rate in read_stored_rows(sight.connection, "rates.csv"):
        if rate["model"] == model and rate["work_per_s"] is not None:
            key = (rate["gpu_type"], rate["gpus"])
            share = 1.0 if rate["efficiency"] is None else rate["efficiency"]
            given[key] = max(given.get(key, 0.0), rate["work_per_s"] * share)
    corrected = {
        (rate["gpu_type"], rate["gpus"]): rate["work_per_s"]
        for rate in read_learned_rates(sight.connection)
        if rate["model"] == model
    }
    entry = sight.entries.get(job.job_id, {})
    latest = {
        (allocation["gpu_type"], allocation["gpus"]): allocation for allocation in allocations
    }
    for key, last in reversed(latest.items()):
        is_planned = (entry.get("pool"), entry.get("gpus")) == (last["pool"], last["gpus"])
        yield SpeedCheck(
            *key,
            _observed_speed(last),
            given.get(key),
            corrected.get(key),
            entry["work_per_s"] if is_planned else None,
        )


def _observed_speed(allocation: Json) -> float | None:
    since = allocation["running_s"]
    seen = allocation["observed_s"]
    if since is None or seen is None or seen <= since or allocation["work_done"] <= 0:
        return None
    return float(allocation["work_done"] / (seen - since))


def _find_seconds_left(row: JobAnswer, speeds: Sequence[SpeedCheck]) -> float | None:
    """Return how long the remaining work takes at the observed speed, else the planned one."""
    for speed in speeds if row.pool else ():
        rate = speed.observed or speed.planned or speed.corrected or speed.given or 0.0
        if speed.gpus == row.gpus and 0 < rate < math.inf:
            return row.remaining_work / rate
    return None
