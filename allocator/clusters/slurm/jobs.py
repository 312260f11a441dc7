"""Jobs of Slurm in one form, whichever version lists them; each task of an array is a job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from allocator.clusters.slurm.gres import GpuRequest, count_gpus, read_request
from allocator.clusters.slurm.name_lists import expand_names, expand_numbers
from allocator.clusters.slurm.shapes import (
    Record,
    read_integer,
    read_number,
    read_text,
    read_words,
)

MOST_TASKS = 1000  # tasks of one array that wait and are looked at
ENDED = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
UNLIMITED_MINUTES = 365 * 24 * 60  # what a running job without a time limit is shown to have
HELD = frozenset({"JOBHELDUSER", "JOBHELDADMIN"})


@dataclass(frozen=True)
class SlurmJob:
    """Hold one job, or one task of an array.

    Parameters
    ----------
    name_of_id : str
        How commands address it: "7", or "7_3" for a task of an array.
    record_id : int
        Its own number; tasks that wait share that of their array.
    array_id : int
        Number of the array; 0: none.
    throttle : int
        Most tasks of the array that may run at a time; 0: no limit.
    states : tuple of str
        Its state and flags in upper case, the state first.
    held : bool
        Whether it waits because somebody holds it.
    reason : str
        Why it waits, in upper case.
    limit_s, end_s : float, optional
        Its time limit, and when it ends by that; None: no limit.
    gpus_on : mapping of str to mapping
        By node and type, the GPUs that it holds.
    """

    name_of_id: str
    record_id: int
    array_id: int
    throttle: int
    het_id: int
    name: str
    user: str
    user_id: int
    account: str
    qos: str
    partitions: tuple[str, ...]
    states: tuple[str, ...]
    held: bool
    reason: str
    request: GpuRequest | None
    gpus_on: dict[str, dict[str, int]]
    submitted_s: float
    eligible_s: float
    started_s: float
    end_s: float | None
    limit_s: float | None
    deadline_s: float | None
    priority: float
    restarts: int
    is_batch: bool
    can_requeue: bool
    dependency: str
    features: str
    excluded: str
    required: str
    reservation: str
    comment: str
    admin_comment: str
    extra: str

    @property
    def is_waiting(self) -> bool:
        return self.states[0] == "PENDING"

    @property
    def is_running(self) -> bool:
        return self.states == ("RUNNING",)

    @property
    def gpus(self) -> int:
        """GPUs that it holds, or asks for."""
        held = sum(sum(types.values()) for types in self.gpus_on.values())
        return held or (self.request.gpus if self.request else 0)


def read_jobs(records: Iterable[Record]) -> tuple[list[SlurmJob], list[str]]:
    """Return the GPU jobs that have not ended, and notes."""
    jobs: list[SlurmJob] = []
    notes: list[str] = []
    for record in records:
        job = _read_job(record)
        if job is None:
            continue
        tasks = read_text(record, "array_task_string")
        if job.is_waiting and tasks:
            more, note = _unfold(job, tasks)
            jobs += more
            notes += note
        else:
            jobs.append(job)
    return jobs, notes


def _read_job(record: Record) -> SlurmJob | None:
    """Return a job; None for one without GPUs, or one that has ended."""
    states = read_words(record, "job_state")
    if not states or states[0] in ENDED:
        return None
    request = read_request(record)
    gpus_on = _read_allocation(record)
    if request is None and not gpus_on:
        return None
    record_id = read_integer(record, "job_id") or 0
    array_id = read_integer(record, "array_job_id") or 0
    task = read_integer(record, "array_task_id")
    is_task = bool(array_id) and task is not None
    reason = read_text(record, "state_reason").upper()
    priority = read_number(record, "priority") or 0.0
    limit = read_number(record, "time_limit")
    end_s = read_number(record, "end_time") or 0.0
    return SlurmJob(
        name_of_id=f"{array_id}_{task}" if is_task else str(record_id),
        record_id=record_id,
        array_id=array_id,
        throttle=read_integer(record, "array_max_tasks") or 0,
        het_id=read_integer(record, "het_job_id") or 0,
        name=str(record.get("name") or ""),
        user=read_text(record, "user_name") or str(read_integer(record, "user_id") or 0),
        user_id=read_integer(record, "user_id") or 0,
        account=read_text(record, "account"),
        qos=read_text(record, "qos"),
        partitions=tuple(filter(None, read_text(record, "partition").split(","))),
        states=states,
        held=states[0] == "PENDING" and (priority == 0 or reason in HELD),
        reason=reason,
        request=request,
        gpus_on=gpus_on,
        submitted_s=read_number(record, "submit_time") or 0.0,
        eligible_s=read_number(record, "eligible_time") or 0.0,
        started_s=read_number(record, "start_time") or 0.0,
        end_s=end_s if end_s and math.isfinite(end_s) else None,
        limit_s=60.0 * limit if limit and limit < UNLIMITED_MINUTES else None,
        deadline_s=read_number(record, "deadline") or None,
        priority=priority,
        restarts=read_integer(record, "restart_cnt") or 0,
        is_batch=bool(record.get("batch_flag", True)),
        can_requeue=bool(record.get("requeue", True)),
        dependency=read_text(record, "dependency"),
        features=read_text(record, "features"),
        excluded=read_text(record, "excluded_nodes"),
        required=read_text(record, "required_nodes"),
        reservation=read_text(record, "resv_name"),
        comment=read_text(record, "comment"),
        admin_comment=read_text(record, "admin_comment"),
        extra=read_text(record, "extra"),
    )


def _read_allocation(record: Record) -> dict[str, dict[str, int]]:
    """Return the GPUs that a job holds by node and type: gres_detail has a text for each node."""
    details = record.get("gres_detail")
    if not isinstance(details, list) or not details:
        return {}
    nodes = expand_names(read_text(record, "nodes"))
    if len(nodes) != len(details):
        return {}
    held = {node: dict(count_gpus(str(text))) for node, text in zip(nodes, details, strict=True)}
    return {node: types for node, types in held.items() if sum(types.values())}


def _unfold(job: SlurmJob, tasks: str) -> tuple[list[SlurmJob], list[str]]:
    """Return the tasks of an array that wait as one record, and a note if they are too many."""
    span, _, throttle = tasks.partition("%")
    numbers = _task_numbers(span)
    note = []
    if len(numbers) > MOST_TASKS:
        note = [
            f"array {job.record_id}: {len(numbers) - MOST_TASKS} of its {len(numbers)} waiting"
            " tasks are left out; later looks take them"
        ]
    most = int(throttle) if throttle.isdecimal() else job.throttle
    array = job.array_id or job.record_id
    return [
        replace(job, name_of_id=f"{array}_{number}", array_id=array, throttle=most)
        for number in numbers[:MOST_TASKS]
    ], note


def _task_numbers(span: str) -> list[int]:
    """Return the numbers of tasks of a list such as "1-5,9", or of a bit string such as "0x1E"."""
    if re.fullmatch(r"0x[0-9A-Fa-f]+", span):
        bits = int(span, 16)
        return [place for place in range(bits.bit_length()) if bits >> place & 1]
    return expand_numbers(span)
