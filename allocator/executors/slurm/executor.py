"""Run jobs as batch jobs of Slurm. A pool is a partition, and a node is a node of Slurm.

The state is a folder on a file system that all nodes share (ledger.py). An allocation is one batch
job, which Slurm never starts again, and whose name has the job, the generation and the name of the
state. The batch job runs a supervisor (batch_job.py), which keeps the same files as on one machine
(local.py), and these:

    attempt          sbatch was called
    submitted.json   it returned; from then on repeating the start changes nothing
    cancelled.json   the batch job had not started and was cancelled
    revoked.json     the job shall end, since Slurm does not list it as running where it should
    on.<name>        the allocation has GPUs of the batch job of another allocation, <name>

The supervisor claims the allocation by keeper.json, and a second batch job of the same name ends at
once. So the job runs once even if Slurm was given it twice. An allocation has ended when exit.json
says so, or when Slurm lists no such job and the supervisor has not touched keeper.json for a while.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from allocator.clusters.adapter import Capabilities
from allocator.clusters.slurm.commands import SlurmRefused
from allocator.clusters.slurm.nodes import Reservation, reserved_nodes
from allocator.errors import UsageError
from allocator.executors.allocation import EXIT, STOP, SUPERVISOR, OpenAllocation
from allocator.executors.disk import read_toml
from allocator.executors.ledger_executor import GRACE_S, PACKAGES, observe_ending
from allocator.executors.slurm import commands
from allocator.executors.slurm.batch_job import SHARED_GPUS
from allocator.executors.slurm.commands import Node
from allocator.executors.slurm.users_jobs import RELEASED, STARTED, USERS_JOB, UsersJobs
from allocator.executors.supervision.batch import (
    GONE_S,
    KILL_S,
    SUBMITTED,
    BatchExecutor,
    BatchJob,
    build_command,
    is_to_be_submitted,
)
from allocator.executors.supervision.supervisor import REVOKED, read_last_words
from allocator.loop.executor import ClusterJob, NodeStatus, Observation, Order
from allocator.objects import Json, Record

ATTEMPT = "attempt"
CANCELLED = "cancelled.json"
MINUTE_S = 60.0  # least time limit of Slurm
NO_RESERVATION = Reservation("", math.inf, math.inf)
SETTINGS = "slurm.toml"  # how jobs of users are taken, as for `allocator observe slurm`
OUTPUT = "slurm.out"
TASK_NODES = "task_nodes"
SBATCH_OPTIONS = "ALLOCATOR_SBATCH"  # variable of a job: more options of sbatch for it
FAILED = ("FAILED", "OUT_OF_MEMORY", "BOOT_FAIL")  # ends of a batch job without a supervisor
_COMMENT = re.compile(r"allocator gpus=(\d+)((?: \S+:\d+)*)")


class SlurmExecutor(BatchExecutor):
    """The executor of a Slurm cluster, by its commands; limits as of `BatchExecutor`."""

    name = "slurm"
    unready = "its nodes took no jobs"
    no_shares = "shares of a GPU cannot be asked of Slurm"
    unreachable = ()  # an OSError, as of a disk
    capabilities = Capabilities(pins_nodes=True)

    def __init__(self, folder: Path, grace_s: float = GRACE_S, **limits: float) -> None:
        super().__init__(folder, grace_s, **limits)
        self._nodes: list[Node] = []
        self._reserved: dict[str, Reservation] = {}  # of nodes, now or later
        self._held = Counter[str]()  # GPUs of each node that jobs of this state hold
        self._users_jobs = UsersJobs(self._suffix[1:], self.patience_s)

    def _may_have_begun(self, allocation: OpenAllocation) -> bool:
        """Return whether Slurm may have its job; the next looks cancel it, or have it requeued."""
        return allocation.has(ATTEMPT, RELEASED)

    def list_cluster_jobs(self) -> Sequence[ClusterJob]:
        """Return the jobs of users that are held for this state."""
        return self._users_jobs.list_jobs()

    def take_cluster_jobs(
        self, job_ids: Sequence[str]
    ) -> tuple[Mapping[str, Record], Mapping[str, str]]:
        """Write the name of this state into the admin comments of users' jobs.

        Returns the values of their submissions, and why some jobs cannot be taken. Raises
        SlurmUnreachable.
        """
        path = self.ledger.folder / SETTINGS
        return self._users_jobs.take(job_ids, read_toml(path) if path.exists() else {})

    def cancel_cluster_job(self, job_id: str) -> None:
        """Cancel a job of a user for good. Raises SlurmUnreachable."""
        commands.cancel([self._users_jobs.listed[job_id].job_id])

    def _act_on_look(self) -> None:
        """Start and stop the jobs of users as their allocations say, and record their ends."""
        with self.ledger.hold_lock():
            alive = self._list_users_allocations()
            for allocation in alive:
                end = self._users_jobs.observe(
                    allocation, partial(self._are_nodes_ready, allocation)
                )
                if end is not None:
                    allocation.end(*end)
            self._users_jobs.carry_out(alive)

    def _list_users_allocations(self) -> list[OpenAllocation]:
        """Return the allocations of users' jobs that have not ended."""
        return [
            allocation
            for allocation in self.ledger.known()
            if _is_users_job(allocation) and not allocation.has(EXIT)
        ]

    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node, once for each of its partitions, without the GPUs of others."""
        self._look_if_old()
        statuses = []
        for node in self._nodes:
            usable = held = self._held[node.name]
            if node.is_available:
                usable = node.gpus - max(0, node.used - held)
            _, begin_s, end_s = self._reserved.get(node.name, NO_RESERVATION)
            # jobs that are done a minute before are done within a time limit in whole minutes
            times = begin_s - MINUTE_S, end_s
            statuses.append(
                NodeStatus(node.name, node.partition, round(usable), node.service, *times)
            )
        return statuses

    def _look(self) -> None:
        """Ask Slurm for its nodes and the batch jobs of this state."""
        # nodes first: then a job that starts or ends in between does not look like one of others
        nodes = commands.list_nodes()
        self._users_jobs.look()
        self._reserved = reserved_nodes(commands.list_reservations(), time.time())
        jobs = [job for job in commands.list_batch_jobs() if job.name.endswith(self._suffix)]
        were_live = {job.name for group in self._jobs.values() for job in group if job.is_live}
        self._jobs = {}
        self._held = Counter()
        for job in jobs:
            self._jobs.setdefault(job.name, []).append(job)
            if job.is_live or job.name in were_live:
                self._held.update(_count_held(job))
        for allocation in self._list_users_allocations():
            self._held.update(self._users_jobs.count_held(allocation))
        self._nodes = nodes
        self._looked_s = time.monotonic()

    def _cancel(self, job_ids: Sequence[str]) -> None:
        commands.cancel(job_ids)

    # ---- starting
    # ----------------------------------------------------------------------------------------------

    def _choose_nodes(self, order: Order) -> list[tuple[str, int]]:
        self._look_if_old()
        sizes = [node.gpus for node in self._nodes if node.partition == order.pool]
        for number in range(1, len(sizes) + 1):
            if order.gpus % number == 0 and order.gpus // number <= max(sizes):
                return number * [("", order.gpus // number)]
        raise UsageError(
            f'partition "{order.pool}" of Slurm has no nodes with {order.gpus} GPUs, the same'
            " number on each"
        )

    def _begin(self, allocation: OpenAllocation) -> None:
        """Submit the batch job of an allocation if that was not done. Raises SlurmUnreachable.

        After a call of sbatch whose answer was lost, Slurm is asked for a job of this name first.
        """
        if not is_to_be_submitted(allocation) or _is_users_job(allocation):
            return
        is_shared = allocation.order["holder"] is not None
        if not (
            self._is_partner_ready(allocation) if is_shared else self._are_nodes_ready(allocation)
        ):
            return
        if allocation.has(ATTEMPT):
            self._look()
        jobs = self._jobs.get(self._name_batch_job(allocation))
        if jobs:
            allocation.write(SUBMITTED, {"slurm_job_id": jobs[0].job_id})
            return
        (allocation.folder / ATTEMPT).touch()
        options, variables = self._build_options(allocation)
        script = f"#!/bin/sh\nexec {build_command('slurm.batch_job', allocation.folder)}\n"
        try:
            job_id = commands.submit(options, script, **variables)
        except SlurmRefused as error:
            allocation.end("failed", str(error))
            return
        allocation.write(SUBMITTED, {"slurm_job_id": job_id})

    def _build_options(self, allocation: OpenAllocation) -> tuple[list[str], dict[str, str]]:
        """Return the options of sbatch, and variables of its environment.

        Options of the job's owner come first, so that they cannot change what the order says.
        """
        asked = allocation.asked
        sizes = {gpus for _, gpus in asked}
        held = sum(gpus for _, gpus in asked)
        unequal = "".join(f" {node}:{gpus}" for node, gpus in asked if len(sizes) > 1)
        # Slurm starts no job whose time limit runs into a later reservation of its nodes
        begin = (self._reserved.get(node, NO_RESERVATION).start_s for node, _ in asked)
        left_s = min(begin, default=math.inf) - time.time()
        options = [f"--time={int(left_s // 60)}"] if MINUTE_S <= left_s < math.inf else []
        options += [
            *shlex.split(allocation.order["environment"].get(SBATCH_OPTIONS, "")),
            f"--job-name={self._name_batch_job(allocation)}",
            f"--comment=allocator gpus={held}{unequal}",
            f"--partition={allocation.order['pool']}",
            "--no-requeue",
            "--dependency=singleton",
            f"--chdir={PACKAGES}",
            f"--output={allocation.folder / OUTPUT}",
            "--open-mode=append",
        ]
        if not asked:
            partner = self._partner_of(allocation).read(SUPERVISOR) or {}
            options += ["--nodes=1", f"--nodelist={partner['node']}"]
            return options, {SHARED_GPUS: partner["indices"]}
        if len(sizes) > 1:
            path = allocation.folder / TASK_NODES
            path.write_text("".join(gpus * f"{node}\n" for node, gpus in asked), encoding="utf-8")
            options += ["--distribution=arbitrary", f"--ntasks={held}", "--gpus-per-task=1"]
            return options, {"SLURM_HOSTFILE": str(path)}
        options += [f"--nodes={len(asked)}", f"--gres=gpu:{sizes.pop()}"]
        if nodes := [node for node, _ in asked if node]:
            options.append(f"--nodelist={','.join(nodes)}")
        return options, {}

    def _are_nodes_ready(self, allocation: OpenAllocation) -> bool:
        """Return whether its nodes take jobs.

        A slurmctld that has just started does not know its nodes, and would start jobs without
        their GPUs.
        """
        self._look_if_old()
        pinned = {node for node, _ in allocation.asked if node}
        return all(
            node.is_available if pinned else node.state != "unknown"
            for node in self._nodes
            if node.partition == allocation.order["pool"] and (not pinned or node.name in pinned)
        )

    # ---- observing
    # ----------------------------------------------------------------------------------------------

    def _observe_allocation(self, allocation: OpenAllocation) -> Observation | None:
        if not _is_users_job(allocation):
            return super()._observe_allocation(allocation)
        if (end := allocation.read_ending()) is not None:
            return observe_ending(allocation, end)
        return self._running_observation(allocation) if allocation.has(STARTED) else None

    def _observe_started(
        self, allocation: OpenAllocation, who: Record, jobs: Sequence[BatchJob]
    ) -> Json | None:
        """Return the end of an allocation whose supervisor has started; None: it goes on."""
        supervised = [job for job in jobs if job.job_id == who["slurm_job_id"]]
        self._to_cancel += [job.job_id for job in jobs if job.is_waiting and job not in supervised]
        has_heartbeat = self._has_heartbeat(allocation)
        if any(job.is_live and set(job.nodes) == set(who["nodes"]) for job in supervised):
            if allocation.age_s(STOP) > self.grace_s + KILL_S:
                self._to_cancel.append(who["slurm_job_id"])
            return None
        is_new = allocation.age_s(SUBMITTED) < GONE_S
        if is_new or (has_heartbeat and any(job.is_waiting for job in supervised)):
            return None  # it has started since Slurm was asked
        words = ", ".join(f"{job.state} {' '.join(job.nodes)}".strip() for job in supervised)
        why = f"Slurm says: {words or 'no such job'}"
        if has_heartbeat or any(job.is_live for job in supervised):
            if not allocation.has(REVOKED):
                allocation.write(REVOKED, {"why": why})
            return None
        return allocation.end("lost", why)

    def _give_up(self, allocation: OpenAllocation, jobs: Sequence[BatchJob]) -> None:
        allocation.write(CANCELLED, {"why": jobs[0].reason})
        self._to_cancel += [job.job_id for job in jobs]

    def _judge_unstarted(self, allocation: OpenAllocation, job: BatchJob) -> tuple[str, str]:
        """Return phase and detail of an allocation whose batch job ended without a supervisor."""
        cancelled = allocation.read(CANCELLED)
        if cancelled is not None:
            patience_s = self._start_patience_s(allocation)
            return "lost", f"Slurm did not start it in {patience_s:g} s: {cancelled['why']}"
        words = read_last_words(allocation.folder / OUTPUT)
        return "failed" if job.state in FAILED else "lost", f"Slurm says {job.state}{words}"


def _is_users_job(allocation: OpenAllocation) -> bool:
    """Return whether the allocation is of a job that its user submitted to Slurm."""
    return USERS_JOB in allocation.order["environment"]


def _count_held(job: BatchJob) -> Json:
    """Return the GPUs that a batch job of a state holds on each of its nodes."""
    match = _COMMENT.fullmatch(job.comment)
    if match is None:
        return {}
    parts = (part.rpartition(":") for part in match[2].split())
    unequal = {node: int(gpus) for node, _, gpus in parts}
    return {node: unequal.get(node, int(match[1]) / len(job.nodes)) for node in job.nodes}
