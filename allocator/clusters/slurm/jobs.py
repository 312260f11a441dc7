"""Jobs of Slurm in one form, whichever version lists them; each task of an array is a job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from allocator.clusters.slurm.values import (
    GpuRequest,
    count_gpus,
    expand_names,
    expand_numbers,
    read_integer,
    read_number,
    read_request,
    read_text,
    read_words,
)
from allocator.objects import Json, Record

MOST_TASKS = 1000  # tasks of one array that wait and are looked at
ENDED = frozenset(
    (
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
    )
)
UNLIMITED_MINUTES = 365 * 24 * 60  # what a running job without a time limit is shown to have
HELD = frozenset(("JOBHELDUSER", "JOBHELDADMIN"))
TEXTS = (
    "account",
    "qos",
    "dependency",
    "features",
    "excluded_nodes",
    "required_nodes",
    "resv_name",
    "comment",
    "admin_comment",
    "extra",
)
NUMBERS = {
    "submitted_s": "submit_time",
    "eligible_s": "eligible_time",
    "started_s": "start_time",
    "priority": "priority",
}
INTEGERS = {
    "record_id": "job_id",
    "array_id": "array_job_id",
    "throttle": "array_max_tasks",
    "het_id": "het_job_id",
    "user_id": "user_id",
    "restarts": "restart_cnt",
}
FEATURES = re.compile(r"[\w.\-+:@/]+(?:[&|,][\w.\-+:@/]+)*")
DEPENDENCY = re.compile(r"(\w+):([\d_*]+)(?:\+\d+)?\((\w+)\)")
WAITS_FOR_END = ("afterok", "afterany", "aftercorr")


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
    can_restart: bool
    dependency: str
    features: str
    excluded_nodes: str
    required_nodes: str
    resv_name: str
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
        tasks = read_text(record, "array_task_string")
        if job is None or not (job.is_waiting and tasks):
            jobs += [job] if job else []
            continue
        # the tasks of an array that wait are one record
        span, _, throttle = tasks.partition("%")
        if re.fullmatch(r"0x[0-9A-Fa-f]+", span):
            bits = int(span, 16)
            numbers = [place for place in range(bits.bit_length()) if bits >> place & 1]
        else:
            numbers = expand_numbers(span)
        if len(numbers) > MOST_TASKS:
            notes.append(
                f"array {job.record_id}: {len(numbers) - MOST_TASKS} of its {len(numbers)} waiting"
                " tasks are left out; later looks take them"
            )
        most = int(throttle) if throttle.isdecimal() else job.throttle
        array = job.array_id or job.record_id
        jobs += [
            replace(job, name_of_id=f"{array}_{number}", array_id=array, throttle=most)
            for number in numbers[:MOST_TASKS]
        ]
    return jobs, notes


def _read_job(record: Record) -> SlurmJob | None:
    """Return a job; None for one without GPUs, or one that has ended."""
    states = tuple(map(str.upper, read_words(record, "job_state")))
    if not states or states[0] in ENDED:
        return None
    request = read_request(record)
    details = record.get("gres_detail") or ()  # a text for each node
    nodes = expand_names(read_text(record, "nodes")) if isinstance(details, list) else []
    held = {
        node: dict(count_gpus(str(text)))
        for node, text in zip(nodes, details, strict=False)
        if len(nodes) == len(details)
    }
    gpus_on = {node: types for node, types in held.items() if sum(types.values())}
    if request is None and not gpus_on:
        return None
    values: Json = {name: read_text(record, name) for name in TEXTS}
    values |= {name: read_number(record, field) or 0.0 for name, field in NUMBERS.items()}
    values |= {name: read_integer(record, field) or 0 for name, field in INTEGERS.items()}
    array, task = values["array_id"], read_integer(record, "array_task_id")
    is_task = bool(array) and task is not None
    reason = read_text(record, "state_reason").upper()
    limit = read_number(record, "time_limit")
    end_s = read_number(record, "end_time") or math.inf
    return SlurmJob(
        name_of_id=f"{array}_{task}" if is_task else str(values["record_id"]),
        name=str(record.get("name") or ""),
        user=read_text(record, "user_name") or str(values["user_id"]),
        partitions=tuple(filter(None, read_text(record, "partition").split(","))),
        states=states,
        held=states[0] == "PENDING" and (values["priority"] == 0 or reason in HELD),
        reason=reason,
        request=request,
        gpus_on=gpus_on,
        end_s=end_s if math.isfinite(end_s) else None,
        limit_s=60.0 * limit if limit and limit < UNLIMITED_MINUTES else None,
        deadline_s=read_number(record, "deadline") or None,
        can_restart=bool(record.get("batch_flag", True)) and bool(record.get("requeue", True)),
        **values,
    )


def asked_features(jobs: Iterable[SlurmJob]) -> frozenset[str]:
    """Return every feature that some job asks for."""
    simple = (job.features for job in jobs if FEATURES.fullmatch(job.features))
    return frozenset(name for asked in simple for name in re.split(r"[&|,]", asked))


def has_features(asked: str, features: frozenset[str]) -> bool:
    """Return whether a node has what a job asks for: names with & or , between, or with |.

    False where counts or brackets are asked for.
    """
    return not asked or (
        FEATURES.fullmatch(asked) is not None
        and any(features.issuperset(re.split(r"[&,]", either)) for either in asked.split("|"))
    )


def find_predecessors(
    job: SlurmJob, tasks: Mapping[str, Sequence[str]]
) -> tuple[list[str], str | None]:
    """Return the jobs that must have ended before this one, or why that cannot be said.

    Parameters
    ----------
    job : SlurmJob
        A job that waits.
    tasks : mapping of str to sequence of str
        Jobs of the snapshot by the id that dependencies name: a job itself, all tasks of an array
        ("3" and "3_*"), one of them ("3_1").
    """
    parts = DEPENDENCY.findall(job.dependency)
    if "?" in job.dependency:
        return [], "it waits for one of several jobs"
    if job.dependency and not parts:
        return [], "it has a dependency of another kind"
    predecessors: list[str] = []
    for kind, ident, state in parts:
        if state == "fulfilled":
            continue
        if kind not in WAITS_FOR_END:
            return [], f'it has a dependency "{kind}"'
        name = ident
        if kind == "aftercorr" and "_" in job.name_of_id:
            name = f"{ident.partition('_')[0]}_{job.name_of_id.partition('_')[2]}"
        if name not in tasks:
            return [], "it waits for a job that is not in the snapshot"
        predecessors += tasks[name]
    return predecessors, None


def index_tasks(jobs: Iterable[SlurmJob]) -> dict[str, list[str]]:
    """Return the jobs by every id that a dependency may name."""
    tasks: dict[str, list[str]] = {}
    for job in jobs:
        names = {job.name_of_id, str(job.record_id)}
        if job.array_id:
            names |= {str(job.array_id), f"{job.array_id}_*"}
        for name in names:
            tasks.setdefault(name, []).append(job.name_of_id)
    return tasks
