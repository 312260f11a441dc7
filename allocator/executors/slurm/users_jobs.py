"""Jobs that users submit to Slurm, and that its job_submit plugin holds for the allocator.

Such a job keeps its id, its account and its script. It is started by an update of its GPUs and its
nodes and a release, and stopped by a requeue after which it is held. It is known by its admin
comment, which users cannot write: the plugin writes "allocator", and this module adds the names of
the state and of the job in the queue. Its number of restarts says which run an allocation is:

    released.json    it was released; `restarts` is how often it had been restarted before, and
                     `output` its output file, if its progress is read from that
    started.json     it runs with the GPUs and on the nodes of the order
    forgotten.json   Slurm forgot a run that had started: its processes may live for a while

Everything is decided from these files and from what Slurm says now. So each command may be repeated
after a crash, and none of them is given twice for one run.

Such jobs have no supervisor, so the controller reads what they print. Users choose what is read and
write what is in it. So the output of a job is read only if it is a regular file of the job's own
user, and from where it ended before the run; metrics are asked for on the first node of the run
only, whatever machine their address names. The limits are those of io/progress_sources.py, and all
that is read in one look takes READING_S at most.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from allocator.clusters.slurm.adapter import list_arguments
from allocator.clusters.slurm.answers import ask_slurm, ask_version
from allocator.clusters.slurm.commands import SlurmRefused, SlurmUnreachable
from allocator.clusters.slurm.observe import find_gres_prefix, observe_slurm
from allocator.clusters.slurm.settings import MARK, read_slurm_settings
from allocator.domain.records import USER
from allocator.executors.allocation import BASE, ORDER, PROGRESS, STOP, OpenAllocation
from allocator.executors.slurm import commands
from allocator.executors.slurm.commands import UsersJob
from allocator.executors.supervision.supervisor import ProgressReader
from allocator.io.progress_sources import LOG, LogFile, Metric, read_source
from allocator.loop.executor import ClusterJob
from allocator.objects import Json, Record

# columns that say what a job has already
NOT_SUBMITTED = frozenset(("state", "remaining_work", "restarts", "gpu_types", "submitted_s"))
USERS_JOB = "ALLOCATOR_CLUSTER_JOB"  # variable of an order: which job of Slurm it starts, as JSON
RELEASED = "released.json"
STARTED = "started.json"
FORGOTTEN = "forgotten.json"
FORGOTTEN_S = 15.0  # seconds until the processes of a forgotten run have ended
# seconds from the end of a run to the next release: slurmd refuses a run that begins in the second
# in which the last one was ended ("Job credential revoked")
PAUSE_S = 2.0
MISSING_S = 5.0  # seconds after which a job that is not listed is gone
End = tuple[str, str]  # phase and detail
FINISHED = ("COMPLETED",)
LOST = ("CANCELLED", "NODE_FAIL", "PREEMPTED", "REVOKED")
READING_S = 2.0  # for the output of all jobs in one look; the others are read at the next one
NODE = "%N"  # which Slurm leaves in the name of an output file: the first node


class UsersJobs:
    """The jobs of users that are held for a state, and the commands that they need.

    `patience_s` is the seconds that a released job may wait in Slurm.
    """

    def __init__(self, state: str, patience_s: float) -> None:
        self._state = state
        self._patience_s = patience_s
        self.listed: dict[str, UsersJob] = {}  # by job of the queue
        self._were_on: dict[str, tuple[str, ...]] = {}  # nodes of each job at the look before
        self._readers: dict[Path, ProgressReader] = {}  # of the allocations that run, by folder

    def look(self) -> None:
        """Ask Slurm for the jobs. Raises OSError."""
        self._commands: defaultdict[str, list[str]] = defaultdict(list)  # jobs by verb of scontrol
        self._running: list[tuple[OpenAllocation, UsersJob, Record]] = []
        self._were_on = {name: job.nodes for name, job in self.listed.items()}
        jobs = commands.list_users_jobs(MARK)
        self.listed = {name: job for job in jobs if (name := self._name(job))}

    def _name(self, job: UsersJob) -> str:
        """Return the job of the queue that it is, "" if it is of another queue."""
        words = job.mark.split()
        if words == [MARK]:
            return f"slurm-{job.job_id}-{job.submitted_s}"
        return words[2] if len(words) == 3 and words[1] == self._state else ""

    # ---- into the queue

    def list_jobs(self) -> list[ClusterJob]:
        """Return the jobs that are held for this queue, or were."""
        return [
            ClusterJob(name, job.is_over)
            for name, job in self.listed.items()
            if job.mark != MARK or (job.is_waiting and not job.priority)
        ]

    def take(
        self, names: Sequence[str], settings: Record
    ) -> tuple[dict[str, Json], dict[str, str]]:
        """Mark jobs, and return the values of their submissions, and refusals by job."""
        view = observe_slurm(ask_slurm(), read_slurm_settings({**settings, "jobs": "marked"}))
        rows = {row["job_id"]: row for row in view.tables["jobs.csv"]}
        names_in_queue = {job.job_id: name for name, job in self.listed.items()}
        values = {}
        refused = {}
        for name in names:
            ident = self.listed[name].job_id
            row = rows.get(ident)
            if "+" in ident:
                refused[name] = "it is part of a heterogeneous job, which is refused"
                continue
            if row is None or row["state"] == "held":
                notes = [n for n in view.notes if f" {ident}:" in n or f" {ident}," in n]
                refused[name] = "; ".join(notes) or "Slurm does not list it as one that waits"
                continue
            known = view.details["jobs"][ident]
            mark = f"{MARK} {self._state} {name}"
            if self.listed[name].mark != mark:
                commands.run("scontrol", "update", f"JobId={ident}", f"AdminComment={mark}")
            values[name] = _build_submission(name, row, known, names_in_queue)
        return values, refused

    # ---- allocations

    def observe(
        self, allocation: OpenAllocation, are_nodes_ready: Callable[[], bool]
    ) -> End | None:
        """Return how an allocation ended; None: it has not. Note the commands that it needs."""
        job = self.listed.get(allocation.job_id)
        released = allocation.read(RELEASED)
        if job is None:
            is_gone = allocation.age_s(ORDER) > MISSING_S
            return ("lost", "Slurm does not list it any more") if is_gone else None
        if job.is_over:
            self._finish(allocation)
            phase = "finished" if job.state in FINISHED else "failed"
            return "lost" if job.state in LOST else phase, f"Slurm says {job.state}"
        if not job.is_waiting:
            self._check_run(allocation, job, released)
            return None
        if released is not None and job.restarts > released["restarts"]:
            return self._judge_requeued(allocation, job)
        if allocation.has(STARTED):
            return self._judge_forgotten(allocation, job)
        is_stopping = allocation.has(STOP)
        if is_stopping or allocation.age_s(RELEASED) > self._patience_s:
            why = f"Slurm did not start it in {self._patience_s:g} s: {job.reason}"
            self._commands["hold"].append(job.job_id)
            return None if job.priority else ("stopped", "") if is_stopping else ("lost", why)
        has_just_ended = job.restarts and time.time() - job.submitted_s < PAUSE_S
        if job.priority or has_just_ended:
            return None
        if are_nodes_ready():
            return self._release(allocation, job)
        is_late = allocation.age_s(ORDER) > self._patience_s
        return ("lost", f"its nodes took no jobs for {self._patience_s:g} s") if is_late else None

    def _check_run(
        self, allocation: OpenAllocation, job: UsersJob, released: Record | None
    ) -> None:
        """Requeue a run that is not that of the allocation, or has to stop."""
        if job.state != "RUNNING":
            return
        if released is None or job.restarts != released["restarts"]:
            self._commands["requeuehold"].append(job.job_id)
            return
        started = allocation.read(STARTED) or {}
        why = started.get("why", "")
        if not started:
            gpus = commands.read_allocated_gpus(job.job_id)
            why = _describe_difference(allocation.asked, job.nodes, gpus)
            allocation.write(STARTED, {"nodes": job.nodes, "why": why})
        elif set(started["nodes"]) != set(job.nodes):
            why = f"it has nodes {' '.join(job.nodes)} now"
            allocation.write(STARTED, {**started, "why": why})
        if not why:
            self._running.append((allocation, job, released))
        if why or allocation.has(STOP):
            self._commands["requeuehold"].append(job.job_id)

    def _judge_requeued(self, allocation: OpenAllocation, job: UsersJob) -> End | None:
        self._commands["hold"].append(job.job_id)  # so that its user cannot release it
        if job.priority:  # Slurm or its user requeued it, and it may start at any moment
            return None
        self._finish(allocation)
        why = (allocation.read(STARTED) or {}).get("why", "")
        if not why and allocation.has(STOP):
            return "stopped", ""
        return "lost", why or f"Slurm requeued it: {job.reason}"

    def _judge_forgotten(self, allocation: OpenAllocation, job: UsersJob) -> End | None:
        self._commands["hold"].append(job.job_id)
        if not allocation.has(FORGOTTEN):
            allocation.write(FORGOTTEN, {})
        is_over = not job.priority and allocation.age_s(FORGOTTEN) > FORGOTTEN_S
        return ("lost", "Slurm forgot that it was running") if is_over else None

    def _release(self, allocation: OpenAllocation, job: UsersJob) -> End | None:
        """Give a held job its GPUs and nodes; the next command releases it."""
        request = json.loads(allocation.order["environment"][USERS_JOB])
        asked = allocation.asked
        sizes = {gpus for _, gpus in asked}
        if request["per"] == "node" and len(sizes) > 1:
            return "failed", "scontrol cannot give a job unequal numbers of GPUs on its nodes"
        gpus: Sequence[object] = ()
        if request["per"] == "node":
            gpus = (find_gres_prefix(ask_version(), ()), request["gpu_type"], sizes.pop())
        nodes = [node for node, _ in asked if node]
        arguments = list_arguments(allocation.order["pool"], nodes, len(asked), gpus)
        try:
            released: Json = {"restarts": job.restarts}
            if LOG in allocation.order["environment"]:
                # what it prints is read from where its output file ends now
                released["output"] = path = commands.read_output_path(job.job_id)
                released["output_size"] = 0
                with suppress(OSError):
                    released["output_size"] = os.lstat(path).st_size
            allocation.write(RELEASED, released)
            commands.run("scontrol", "update", f"JobId={job.job_id}", *arguments)
        except SlurmRefused as error:
            return "failed", str(error)
        self._commands["release"].append(job.job_id)
        return None

    def carry_out(self, known: Sequence[OpenAllocation]) -> None:
        """Give the commands, and stop what runs without an allocation; one call for many jobs."""
        allocated = {allocation.job_id for allocation in known}
        for name, job in self.listed.items():
            if name not in allocated and job.mark != MARK:
                if job.state == "RUNNING":
                    self._commands["requeuehold"].append(job.job_id)
                elif job.is_waiting and job.priority:
                    self._commands["hold"].append(job.job_id)
        self._read_progress()
        for verb in ("requeuehold", "hold", "release"):
            more = ("Incomplete",) if verb == "requeuehold" else ()
            # what has ended or changed meanwhile is refused; the next look tells
            with suppress(SlurmRefused):
                if idents := self._commands[verb]:
                    commands.run("scontrol", verb, *more, ",".join(idents))

    # ---- progress

    def _read_progress(self) -> None:
        """Read the progress of runs, those first that were not read for longest."""
        before, self._readers = self._readers, {}
        for allocation, job, released in self._running:
            with suppress(SlurmUnreachable):  # the next look tries again
                place = allocation.folder
                if reader := before.get(place) or _make_reader(allocation, job, released):
                    self._readers[place] = reader
        until = time.monotonic() + READING_S
        for reader in sorted(self._readers.values(), key=lambda reader: reader.looked_s):
            if time.monotonic() < until:
                reader.update()
        for allocation, _, _ in self._running:
            _remember_base(allocation)

    def _finish(self, allocation: OpenAllocation) -> None:
        """Read what a run has printed last."""
        if reader := self._readers.pop(allocation.folder, None):
            reader.update(is_over=True)
            _remember_base(allocation)

    def count_held(self, allocation: OpenAllocation) -> Json:
        """Return the GPUs that an allocation holds on each node.

        Nodes are listed before jobs, so a job that has just ended still counts.
        """
        job = self.listed.get(allocation.job_id)
        if job is None or not allocation.has(RELEASED):
            return {}
        nodes = job.nodes if job.is_live else self._were_on.get(allocation.job_id, ())
        return {node: allocation.order["gpus"] / len(nodes) for node in nodes}


def _remember_base(allocation: OpenAllocation) -> None:
    if not allocation.has(BASE):
        OpenAllocation(allocation.folder, dict(allocation.order)).remember_base()


def _make_reader(
    allocation: OpenAllocation, job: UsersJob, released: Record
) -> ProgressReader | None:
    """Return the reader of a run, None if nothing is said of its progress. Raises OSError."""
    source = read_source(allocation.order["environment"])
    if source is None:
        return None
    logs: tuple[LogFile, ...] = ()
    if isinstance(source, Metric):
        source = source.move_to(commands.read_node_address(job.nodes[0]))
    else:
        path = Path(released.get("output", os.devnull).replace(NODE, job.nodes[0]))
        logs = (LogFile(path, released.get("output_size", 0), job.user_id),)
    return ProgressReader(source, logs, allocation.folder / PROGRESS)


def _describe_difference(asked: Sequence[tuple[str, int]], nodes: Sequence[str], gpus: int) -> str:
    """Return how what Slurm gave differs from the order; "" if it does not."""
    wanted = {node for node, _ in asked if node}
    total = sum(number for _, number in asked)
    if gpus != total:
        return f"asked for {total} GPUs, got {gpus}"
    if wanted and wanted != set(nodes):
        return f"asked for nodes {' '.join(sorted(wanted))}, got {' '.join(nodes)}"
    return ""


def _build_submission(name: str, row: Record, known: Record, names: Mapping[str, str]) -> Json:
    """Return the values with which a job is submitted to the queue.

    Its GPUs are the same on each of its nodes, as scontrol cannot say anything else.
    """
    values = {column: value for column, value in row.items() if column not in NOT_SUBMITTED}
    values["total_work"] = row["total_work"] or row["remaining_work"]
    values["after"] = [names[ident] for ident in row.get("after") or () if ident in names]
    if known["per"] == "node":
        sizes = row["sizes"] or range(row["min_gpus"], row["max_gpus"] + 1)
        full = known["gpus_per_node"]
        values["sizes"] = [k for k in sizes if all(k <= n or k % n == 0 for n in full)]
        values["placement"] = row.get("placement") or "packed"
    if not known["may_change"]:
        values["preemptible"] = False
    request = {"per": known["per"], "gpu_type": known["gpu_type"] or ""}
    environment = {USER: known["user"], USERS_JOB: json.dumps(request), **known["progress"]}
    return {**values, "job_id": name, "pools": known["partitions"], "environment": environment}
