"""Run allocations as Jobs of Kubernetes: one Job for each, named by it.

The state is a folder (ledger.py); besides order.json and stop.json an allocation there has

    seen.json       the uid of its Job, from the first time that it was seen
    refused.json    what the cluster said when it refused the Job for good
    end.json        how it ended

What the folder says is made so at every look: a Job that is missing is made again under the same
name, so that it is there once; a Job that shall stop is deleted. Pods have a finalizer, so that
their last words are there until the end of the allocation is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from allocator.clusters.adapter import Capabilities, ClusterUnreachable, Refused
from allocator.clusters.kubernetes.api import (
    APPLY,
    JSON,
    MANAGER,
    MERGE,
    RESOURCES,
    Api,
    ClientApi,
    Reader,
    Request,
    find_missing_rights,
    path_of,
)
from allocator.clusters.kubernetes.nodes import GpuNode, gpus_of_pod, node_of_pod, read_nodes
from allocator.clusters.kubernetes.objects import Object, field, name_of, owners_of, uid_of
from allocator.clusters.kubernetes.pools import group_nodes
from allocator.clusters.kubernetes.progress import ASKING_S, ask_pod, ask_text, is_running
from allocator.errors import UsageError
from allocator.executors.allocation import STOP, OpenAllocation
from allocator.executors.kubernetes.judging import Verdict, difference, judge
from allocator.executors.kubernetes.manifest import (
    CONTAINER,
    FINALIZER,
    SIDECAR,
    STATE,
    Settings,
    build_job,
    object_name,
    read_settings,
)
from allocator.executors.ledger_executor import ClusterExecutor, observe_ending
from allocator.executors.report import Report, parse as parse_report
from allocator.io.progress_sources import LogPattern, read_source
from allocator.io.tables.limited_reader import as_storable_text
from allocator.loop.executor import ENDED, NodePart, NodeStatus, NotNow, Observation, Order, Phase
from allocator.objects import Json

SEEN = "seen.json"
REFUSED = "refused.json"
FOR_GOOD = (400, 422)  # the same request would be refused again
NAMES_S = 30.0  # for so long nodes are not read again to start jobs
REPORT_S = 30.0  # for so long the progress of a job is not asked for again
NOTHING = Report(0.0, 0.0)
SIDECAR_LOG = f"/log?container={SIDECAR}&tailLines=1&limitBytes=200"
FRESH_S = 2.0  # for so long what nodes have is the present


@dataclass(frozen=True)
class HeardReport:
    """What an allocation reported last, when it was read, and why it cannot be read now."""

    read_s: float = -REPORT_S
    report: Report = NOTHING
    fault: str = ""


class KubernetesExecutor(ClusterExecutor):
    """The executor of a cluster of Kubernetes.

    Parameters
    ----------
    folder : Path
        Folder of the state, with kubernetes.toml.
    grace_s : float
        Seconds for a checkpoint between the request to stop and the kill.
    api : callable, optional
        Function from the settings to an `Api`; default: the official client.

    Raises
    ------
    UsageError
        If there are no settings, or they make no sense.
    """

    name = "kubernetes"
    capabilities = Capabilities(pins_nodes=True)
    ending = "end.json"
    unreachable = (Refused, ClusterUnreachable)

    def __init__(
        self, folder: Path, grace_s: float = 60.0, api: Callable[[Settings], Api] | None = None
    ) -> None:
        self.settings = read_settings(Path(folder))
        super().__init__(folder, grace_s)
        connect = api or (lambda settings: ClientApi(settings.context, settings.kubeconfig))
        self._reader = Reader(connect(self.settings), (self.settings.namespace,))
        self._state = self.identity().state
        self._jobs: dict[str, Object] = {}  # by name, as of the last answer
        self._pods: dict[str, list[Object]] = {}  # by name of their Job
        self._nodes: list[GpuNode] = []
        self._usable: list[NodeStatus] = []
        self._looked_s = -NAMES_S
        self._reports: dict[str, HeardReport] = {}
        self._asking_until = 0.0

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue.

        Raises WrongState, and UsageError if the account lacks a right: later it would be an answer
        to one request among many. A server that does not tell is asked for work all the same.
        """
        with suppress(*self.unreachable):
            missing = find_missing_rights(self._reader.api, "run", self.settings.namespace)
            if missing:
                raise UsageError(
                    f"the account of kubernetes.toml may not {', '.join(missing)}; "
                    "allocator rbac run prints what is needed"
                )
        super().claim(queue)

    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node with GPUs, without the GPUs of others. Raises NotNow."""
        with self._say_not_now():
            self._look_if_older(FRESH_S)
        return self._usable

    def _look_if_older(self, seconds: float) -> None:
        """Read the nodes, and what each has for jobs of this state, unless that was just read."""
        if time.monotonic() < self._looked_s + seconds:
            return
        self._nodes = nodes = read_nodes(self._reader.list_kind("Node"))
        rows = {(node.node, node.resource): node for node in nodes}
        free = {node.name: node.gpus if node.state == "up" else 0 for node in nodes}
        for pod in self._reader.list_kind("Pod"):
            is_own = field(pod, "metadata", "labels", STATE) == self._state
            machine = node_of_pod(pod)
            for resource, n in gpus_of_pod(pod["spec"]).items() if machine else ():
                row = rows.get((str(machine), resource))
                if row is not None and is_own == (row.state != "up"):
                    free[row.name] += n if is_own else -n
        self._usable = [
            NodeStatus(node.name, pool, max(0, free[node.name]), node.state)
            for pool, members in group_nodes(nodes, (), {}).nodes.items()
            for node in members
        ]
        self._looked_s = time.monotonic()

    def _send(
        self,
        method: str,
        kind: str,
        name: str,
        body: Object,
        content_type: str = JSON,
        **query: str,
    ) -> Json:
        """Send a request about an object of the namespace, and return the answer."""
        path = path_of(RESOURCES[kind], self.settings.namespace, name, **query)
        return self._reader.api.send(Request(method, path, body, content_type))

    def _name(self, allocation: OpenAllocation) -> str:
        return object_name(self._state, allocation.job_id, allocation.generation)

    def _create(self, order: Order) -> None:
        """Write the order down, but for GPUs of another job: pods of Kubernetes share none."""
        if any(other.needed for other in order.beside):
            raise NotNow(f'job "{order.job_id}": Kubernetes lets no two jobs share GPUs')
        self.ledger.create(order, {}, base=self._find_base(order))

    def _begin(self, allocation: OpenAllocation) -> None:
        """Make the Job; if the cluster does not answer, it is made at the next look."""
        if not allocation.has(SEEN, REFUSED, STOP, self.ending):
            self._make(allocation)

    def _begin_to_stop(self, allocation: OpenAllocation) -> None:
        seen = allocation.read(SEEN)
        if seen is not None and self._read_ending(allocation) is None:
            self._delete(self._name(allocation), seen["uid"])

    def _make(self, allocation: OpenAllocation) -> Verdict:
        """Ask for the Job of an allocation, and believe only what the answer says."""
        order = _restore_order(allocation.order)
        try:
            self._look_if_older(NAMES_S)
            members = group_nodes(self._nodes, (), {}).nodes.get(order.pool, [])
            named = {part.node for part in order.nodes}
            hostnames = [row.hostname for row in self._nodes if row.name in named]
            job = build_job(order, self._state, self.settings, members, hostnames, self.grace_s)
            answer = self._send("PATCH", "Job", name_of(job), job, APPLY, fieldManager=MANAGER)
            if field(answer, "metadata", "name") != name_of(job) or not uid_of(answer):
                raise ClusterUnreachable("the answer is not the Job")
        except Refused as refused:
            if refused.status in FOR_GOOD:
                allocation.write(REFUSED, {"detail": str(refused)})
            return Verdict(Phase.RUNNING, 0.0, f"the cluster did not take its Job yet: {refused}")
        except ClusterUnreachable as error:
            return Verdict(Phase.RUNNING, 0.0, f"the cluster did not answer yet: {error}")
        if changed := difference(job, answer):
            allocation.write(REFUSED, {"detail": changed})
        else:
            allocation.write(SEEN, {"uid": uid_of(answer)})
        return Verdict(Phase.RUNNING)

    def _observe_all(self) -> Sequence[Observation | None]:
        """Ask for all Jobs and pods, and make the cluster as the folder says."""
        with self.ledger.hold_lock():
            query = {"labelSelector": f"{STATE}={self._state}"}
            self._jobs = {name_of(job): job for job in self._reader.list_kind("Job", **query)}
            self._pods = {}
            for pod in self._reader.list_kind("Pod", **query):
                names = [
                    str(owner["name"]) for owner in owners_of(pod) if owner.get("kind") == "Job"
                ]
                self._pods.setdefault((names or [""])[0], []).append(pod)
            self._asking_until = time.monotonic() + ASKING_S
            seen = super()._observe_all()
            open_names = {self._name(allocation) for allocation in self.ledger.known()}
            # what is left of allocations whose ends were acknowledged
            for name in sorted((self._jobs.keys() | self._pods.keys()) - open_names):
                for pod in self._pods.get(name, []):
                    self._release(pod)
                if name in self._jobs:
                    self._remove(self._jobs[name])
            return seen

    def _observe_allocation(self, allocation: OpenAllocation) -> Observation:
        name = self._name(allocation)
        job, pods = self._jobs.get(name), self._pods.get(name, [])
        end = self._read_ending(allocation)
        if end is None:
            end = self._observe_open(allocation, job, pods)
            if end["phase"] in ENDED:
                allocation.write(self.ending, end)
        elif job and judge(_restore_order(allocation.order), True, job, pods).phase not in ENDED:
            self._remove(job)
        return observe_ending(allocation, end)

    def _observe_open(
        self, allocation: OpenAllocation, job: Object | None, pods: Sequence[Object]
    ) -> Json:
        """Return what is known of an allocation without a recorded end, as the file of one."""
        verdict = self._judge_allocation(allocation, job, pods)
        heard = HeardReport()
        if pods:
            heard = self._read_report(allocation, pods, is_over=verdict.phase in ENDED)
        safe = max(verdict.work, heard.report.safe)
        remaining, base = float(allocation.order["remaining_work"]), allocation.order["base"]
        work = max(0.0, safe - base) if base is not None else 0.0
        return {
            "phase": verdict.phase,
            "work_done": remaining if verdict.phase is Phase.FINISHED else min(work, remaining),
            "at_s": time.time(),
            "detail": as_storable_text(verdict.detail or heard.fault, 1000),
            "reported": heard.report.fields,
            "safe": safe or base,
        }

    def _judge_allocation(
        self, allocation: OpenAllocation, job: Object | None, pods: Sequence[Object]
    ) -> Verdict:
        """Return what became of an allocation, and send what is missing for it."""
        order = _restore_order(allocation.order)
        is_stopping = allocation.has(STOP)
        base = float(allocation.order["base"] or 0.0)
        refused = allocation.read(REFUSED)
        seen = allocation.read(SEEN)
        if job is not None and seen is None and refused is None:
            # the answer to the request was lost, and its effect was not
            seen = {"uid": uid_of(job)}
            allocation.write(SEEN, seen)
        if job is not None and seen is not None and uid_of(job) != seen["uid"]:
            other, job = uid_of(job), None
            pods = [pod for pod in pods if all(owner["uid"] != other for owner in owners_of(pod))]
        if seen is None and refused is None:
            return Verdict(Phase.STOPPED) if is_stopping else self._make(allocation)
        verdict = judge(order, is_stopping or refused is not None, job, pods, base)
        is_over = verdict.phase in ENDED
        if job is not None and (refused is not None or (is_stopping and not is_over)):
            self._remove(job)
        if refused is None:
            return verdict
        phase = Phase.STOPPED if is_stopping else Phase.FAILED
        return Verdict(phase if is_over else Phase.RUNNING, 0.0, str(refused["detail"]))

    def _read_report(
        self, allocation: OpenAllocation, pods: Sequence[Object], *, is_over: bool
    ) -> HeardReport:
        """Return what an allocation reports; what was read just now still counts."""
        heard = self._reports.get(allocation.folder.name, HeardReport())
        before, now_s = heard.report, time.monotonic()
        is_due = is_over or before.safe == 0.0 or now_s > heard.read_s + REPORT_S
        if is_due and now_s < self._asking_until:
            try:
                new = self._ask(allocation, pods, is_over)
                safe, fields = max(before.safe, new.safe), new.fields or before.fields
                heard = HeardReport(now_s, Report(new.done, safe, fields))
            except Refused as refused:
                fault = f"its progress is not known: {refused}"
                heard = HeardReport(now_s, before, fault)
            self._reports[allocation.folder.name] = heard
        return heard

    def _ask(self, allocation: OpenAllocation, pods: Sequence[Object], is_over: bool) -> Report:
        """Return what the first pod tells, no work if it tells nothing."""
        first = min((p for p in pods if is_over or is_running(p)), key=name_of, default=None)
        try:
            source = read_source(allocation.order["environment"])
        except UsageError:
            source = None  # such a job could not be submitted
        if first is None or (is_over and not isinstance(source, LogPattern)):
            return NOTHING
        if source is None:  # its sidecar tells
            return parse_report(ask_text(self._reader.api, first, SIDECAR_LOG)) or NOTHING
        progress = ask_pod(self._reader.api, first, source, CONTAINER)
        return NOTHING if progress is None else Report(*progress)

    def _clear(self, allocation: OpenAllocation) -> None:
        self._reports.pop(allocation.folder.name, None)

    def _remove(self, job: Object) -> None:
        """Delete a Job that is not being deleted yet."""
        if field(job, "metadata", "deletionTimestamp") is None:
            self._delete(name_of(job), uid_of(job))

    def _delete(self, name: str, uid: str) -> None:
        """Delete a Job, and no other one of the same name; its pods go first.

        If that fails now, it is done at the next look.
        """
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        with suppress(*self.unreachable):
            self._send("DELETE", "Job", name, body)

    def _release(self, pod: Object) -> None:
        """Take the finalizer of a pod away, unless the pod has changed since it was read."""
        before = field(pod, "metadata", "finalizers") or ()
        if FINALIZER in before:
            left = [finalizer for finalizer in before if finalizer != FINALIZER]
            metadata = {"finalizers": left, "resourceVersion": pod["metadata"]["resourceVersion"]}
            with suppress(*self.unreachable):
                self._send("PATCH", "Pod", name_of(pod), {"metadata": metadata}, MERGE)


def _restore_order(order: Object) -> Order:
    """Return the order that a folder holds, as far as a Job needs it."""
    values = {attribute.name: order[attribute.name] for attribute in fields(Order)}
    nodes = tuple(NodePart(**part) for part in order["nodes"])
    return Order(**{**values, "command": tuple(order["command"]), "beside": (), "nodes": nodes})
