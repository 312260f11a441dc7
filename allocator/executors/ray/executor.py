"""Run jobs as jobs of Ray: pools and nodes as in allocator/clusters/ray/resources.py.

The state is a folder on a file system that all nodes share (ledger.py, batch.py). An allocation is
one job of Ray under an id of its own, which Ray takes once: the job, the generation, and the
beginning of the name of the state. Its entrypoint is a supervisor (ray_job.py). Besides the files
of batch.py an allocation has

    attempt.json     Ray was asked to take the job; the ids of its nodes
    revoked.json     the job shall end, since it is not where it should be

GPUs on one node are those of the entrypoint. GPUs on several nodes, and those of a job that starts
its own workers, are a placement group that the supervisor makes. Ray ends no job that waits, so a
job is submitted only when its GPUs are free, and one that waits in Ray even so finds its end in
exit.json and does nothing. An allocation has ended when exit.json says so, or when Ray lists no
such job as running and the supervisor has not touched keeper.json for a while.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from allocator.clusters.adapter import Capabilities
from allocator.clusters.ray.api import RayApi, RayRefused
from allocator.clusters.ray.resources import (
    NODE_ID,
    OWNED,
    PINNED_TO,
    Holding,
    RayNode,
    find_refused_nodes,
    read_holdings,
    read_nodes,
    read_waiting,
)
from allocator.errors import UsageError
from allocator.executors.allocation import EXIT, STOP, OpenAllocation
from allocator.executors.ledger_executor import GRACE_S, PACKAGES
from allocator.executors.ray.workers import is_own_workers, read_options
from allocator.executors.supervision.batch import (
    FRESH_S,
    KILL_S,
    SUBMITTED,
    BatchExecutor,
    BatchJob,
    build_command,
    is_to_be_submitted,
)
from allocator.executors.supervision.supervisor import REVOKED
from allocator.loop.executor import NodeStatus, NotNow, Order
from allocator.objects import Json, Record

ATTEMPT = "attempt.json"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
# errors of a job that another start would not mend
FAULTS = (
    "JOB_ENTRYPOINT_COMMAND_ERROR",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR",
    "RUNTIME_ENV_SETUP_FAILURE",
)


class RayExecutor(BatchExecutor):
    """The executor of a Ray cluster, by its dashboard; limits as of `BatchExecutor`.

    `address` is the address of the dashboard, by default that of `RayApi`.
    """

    name = "ray"
    unready = "its GPUs were not free"
    no_shares = "shares of a GPU cannot be pinned in Ray"
    capabilities = Capabilities(pins_nodes=True)

    def __init__(
        self, folder: Path, grace_s: float = GRACE_S, address: str | None = None, **limits: float
    ) -> None:
        super().__init__(folder, grace_s, **limits)
        self._api = RayApi(address)
        self._nodes: list[RayNode] = []
        self._taken = Counter[str]()  # GPUs that others hold, by name of the node
        self._leaving = Counter[str]()  # GPUs of jobs of this state that are over but listed
        self._nodes_read_s = -math.inf

    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node that is alive, without the GPUs of others. Raises NotNow."""
        with self._say_not_now():
            self._read_nodes_if_old()
        held = self._count_held()
        statuses = []
        for node in self._nodes:
            usable = max(0, node.gpus - math.ceil(self._taken[node.name]))
            gpus = usable if node.state == "up" else held[node.name]
            statuses.append(NodeStatus(node.name, node.pool, gpus, node.state))
        return statuses

    def _count_held(self, own: Path | None = None) -> Counter[str]:
        """Return the GPUs of each node that allocations have been given and not given back."""
        held = Counter[str]()
        for allocation in self.ledger.known():
            if allocation.folder != own and allocation.has(ATTEMPT) and not allocation.has(EXIT):
                for node, gpus in allocation.asked:
                    held[node] += gpus
        return held

    # ---- looking
    # ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._read_jobs(self._api.list_records("jobs"))
        self._read_nodes_if_old()
        self._looked_s = time.monotonic()

    def _read_jobs(self, records: Sequence[Record]) -> None:
        jobs = (_parse_job(record) for record in records if record.get("submission_id"))
        self._jobs = {job.job_id: [job] for job in jobs if job.job_id.endswith(self._suffix)}
        self._refused = find_refused_nodes(records)

    def _read_nodes_if_old(self) -> None:
        """Ask Ray for its nodes, and for what others hold on them."""
        if time.monotonic() - self._nodes_read_s <= FRESH_S:
            return
        if not math.isfinite(self._looked_s):
            self._read_jobs(self._api.list_records("jobs"))
        nodes = read_nodes(self._api.list_records("nodes"), self._refused)
        actors = self._api.list_records("actors")
        lists = (self._api.list_records(kind) for kind in ("placement_groups", "tasks"))
        holdings = list(read_holdings(actors, *lists))
        # jobs of this state that were ended before they started still get their GPUs for a moment
        holdings += [holding for holding in read_waiting(actors) if self._find_owner(holding)]
        names = {node.node_id: node.name for node in nodes}
        open_names = {self._name_batch_job(allocation) for allocation in self.ledger.known()}
        self._taken = Counter()
        self._leaving = Counter()
        for holding in holdings:
            owner = self._find_owner(holding)
            if holding.node_id in names and owner not in open_names:
                counts: Json = self._leaving if owner else self._taken
                counts[names[holding.node_id]] += holding.gpus
        self._nodes = nodes
        self._nodes_read_s = time.monotonic()

    def _find_owner(self, holding: Holding) -> str:
        """Return the name of the batch job of this state that holds it; "" for others."""
        owner = holding.submission_id or holding.group
        return owner if owner.endswith(self._suffix) else ""

    # ---- starting
    # ----------------------------------------------------------------------------------------------

    def _check_options(self, order: Order) -> None:
        read_options(order.environment)

    def _choose_nodes(self, order: Order) -> list[tuple[str, int]]:
        self._read_nodes_if_old()
        nodes = [node for node in self._nodes if node.pool == order.pool]
        if order.gpus > sum(node.gpus for node in nodes):
            raise UsageError(f'pool "{order.pool}" of Ray has no {order.gpus} GPUs')
        free = {node.name: self._count_free(node) for node in nodes if node.state == "up"}
        whole = [(gpus, name) for name, gpus in free.items() if gpus >= order.gpus]
        if whole:
            return [(min(whole)[1], order.gpus)]
        left = order.gpus
        shape = []
        for name, gpus in sorted(free.items(), key=lambda pair: pair[::-1], reverse=True):
            if take := min(left, gpus):
                shape.append((name, take))
                left -= take
        if left:
            raise NotNow(f'job "{order.job_id}": {left} of {order.gpus} GPUs are not free yet')
        return shape

    def _count_free(self, node: RayNode, own: Path | None = None) -> int:
        """Return the GPUs of a node that nobody holds, or only the allocation `own`."""
        held = math.ceil(self._taken[node.name] + self._leaving[node.name])
        return max(0, node.gpus - held - self._count_held(own)[node.name])

    def _begin(self, allocation: OpenAllocation) -> None:
        """Submit the job of an allocation if that was not done and its GPUs are free.

        Whatever Ray answers, it is asked whether it has the job. Raises ClusterUnreachable.
        """
        if not is_to_be_submitted(allocation):
            return
        name = self._name_batch_job(allocation)
        if allocation.has(ATTEMPT) and self._api.has_job(name):
            allocation.write(SUBMITTED, {})
            return
        request = self._build_request(allocation)
        if request is None:
            return
        try:
            self._api.submit(request)
        except RayRefused as refused:
            if not self._api.has_job(name):
                if refused.status == 400:
                    allocation.end("failed", f"Ray refuses it: {refused}")
                    return
                raise
        allocation.write(SUBMITTED, {})

    def _build_request(self, allocation: OpenAllocation) -> Json | None:
        """Return the request that submits a job; None while its GPUs are not free."""
        if allocation.order["holder"] is not None:
            if not self._is_partner_ready(allocation):
                return None
            asked = []
            ids = self._partner_of(allocation).read(ATTEMPT) or {"node_ids": [""]}
            node_ids = ids["node_ids"]
        else:
            self._read_nodes_if_old()
            asked = allocation.asked
            by_name = {node.name: node for node in self._nodes if node.state == "up"}
            if not all(
                node in by_name and self._count_free(by_name[node], allocation.folder) >= gpus
                for node, gpus in asked
            ):
                return None
            node_ids = [by_name[node].node_id for node, _ in asked]
        allocation.write(ATTEMPT, {"node_ids": node_ids})
        options = read_options(allocation.order["environment"])
        command = build_command("ray.ray_job", allocation.folder)
        has_group = len(asked) > 1 or is_own_workers(allocation.order["environment"])
        about = {"allocator_job": allocation.job_id, OWNED: str(allocation.generation)}
        return {
            "entrypoint_num_cpus": 0,
            **options,
            "entrypoint": f"cd {shlex.quote(str(PACKAGES))} && exec {command}",
            "submission_id": self._name_batch_job(allocation),
            "entrypoint_num_gpus": 0 if has_group or not asked else asked[0][1],
            "entrypoint_label_selector": {NODE_ID: node_ids[0]},
            "metadata": about if options else {**about, PINNED_TO: node_ids[0]},
        }

    def _cancel(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._api.stop(job_id)

    # ---- observing
    # ----------------------------------------------------------------------------------------------

    def _observe_started(
        self, allocation: OpenAllocation, who: Record, jobs: Sequence[BatchJob]
    ) -> Json | None:
        """Return the end of an allocation whose supervisor has started; None: it goes on."""
        has_heartbeat = self._has_heartbeat(allocation)
        if any(job.is_live for job in jobs):
            asked = (allocation.read(ATTEMPT) or {"node_ids": []})["node_ids"][:1]
            if asked and jobs[0].nodes[0] not in ("", asked[0]):
                allocation.write(REVOKED, {"why": "Ray put it on another node"})
            if allocation.age_s(STOP) > self.grace_s + KILL_S:
                self._to_cancel.append(jobs[0].job_id)
            return None
        if has_heartbeat or any(job.is_waiting for job in jobs):
            return None  # its supervisor is ending it, or has started since Ray was asked
        words = ", ".join(f"{job.state} {job.comment}".strip() for job in jobs)
        return allocation.end("lost", f"Ray says: {words or 'no such job'}")

    def _give_up(self, allocation: OpenAllocation, jobs: Sequence[BatchJob]) -> Json | None:
        self._to_cancel += [job.job_id for job in jobs if job.is_live]
        patience_s = self._start_patience_s(allocation)
        return allocation.end("lost", f"Ray did not start it in {patience_s:g} s")

    def _judge_unstarted(self, allocation: OpenAllocation, job: BatchJob) -> tuple[str, str]:
        if job.state == "SUCCEEDED":
            return "failed", "its node does not see the folder of the state"
        phase = "failed" if job.reason in FAULTS else "lost"
        return phase, f"Ray says: {job.state} {job.comment}".strip()


def _parse_job(record: Record) -> BatchJob:
    name, status = str(record["submission_id"]), str(record.get("status"))
    return BatchJob(
        name,
        status,
        is_waiting=status not in (*ENDED, "RUNNING"),
        is_live=status == "RUNNING",
        nodes=(str(record.get("driver_node_id") or ""),),
        reason=str(record.get("error_type") or ""),
        comment=" ".join(str(record.get("message") or "").split())[-400:],
    )
