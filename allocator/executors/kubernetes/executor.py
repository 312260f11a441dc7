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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from allocator.clusters.adapter import Capabilities, ClusterUnreachable
from allocator.clusters.kubernetes.api import (
    APPLY,
    MANAGER,
    MERGE,
    RESOURCES,
    Api,
    Reader,
    Refused,
    Request,
    path_of,
)
from allocator.clusters.kubernetes.client import ClientApi
from allocator.clusters.kubernetes.nodes import GpuNode, read_nodes
from allocator.clusters.kubernetes.objects import Object, field, name_of, uid_of
from allocator.clusters.kubernetes.pools import group_nodes
from allocator.clusters.kubernetes.progress import ASKING_S, ask_pod, ask_text, is_running
from allocator.clusters.kubernetes.workloads.pods import gpus_of_pod, node_of_pod
from allocator.errors import UsageError
from allocator.executors.disk import write_json
from allocator.executors.errors import NotNow
from allocator.executors.kubernetes.judging import Verdict, difference, judge, read_progress
from allocator.executors.kubernetes.manifest import (
    CONTAINER,
    FINALIZER,
    SIDECAR,
    STATE,
    build_job,
    object_name,
)
from allocator.executors.kubernetes.settings import Settings, read_settings
from allocator.executors.ledger import ORDER, STOP, Ledger, OpenAllocation, summarise_ending
from allocator.executors.report import parse_line
from allocator.io.progress_sources import LogPattern, Metric, read_source
from allocator.io.tables.limited_reader import as_storable_text, read_json
from allocator.loop.executor import (
    ENDED,
    Identity,
    NodePart,
    NodeStatus,
    Observation,
    Order,
    Phase,
)

SEEN = "seen.json"
REFUSED = "refused.json"
END = "end.json"
FOR_GOOD = (400, 422)  # the same request would be refused again
NAMES_S = 30.0  # for so long nodes are not read again to start jobs
REPORT_S = 30.0  # for so long the progress of a job is not asked for again
SIDECAR_LOG = f"/log?container={SIDECAR}&tailLines=1&limitBytes=200"
ROUND_S = 2.0  # for so long what nodes have is the present within a round
FRESH_S = 10.0  # the same between two rounds


class KubernetesExecutor:
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

    def __init__(
        self, folder: Path, grace_s: float = 60.0, api: Callable[[Settings], Api] | None = None
    ) -> None:
        self.settings = read_settings(Path(folder))
        self.ledger = Ledger(Path(folder), self.name)
        self.grace_s = grace_s
        connect = api or (lambda settings: ClientApi(settings.context, settings.kubeconfig))
        self._reader = Reader(connect(self.settings), (self.settings.namespace,))
        self._nodes: tuple[float, list[GpuNode]] = (-NAMES_S, [])
        self._usable: list[NodeStatus] = []
        self._looked_s = -FRESH_S
        self._reported: dict[str, tuple[float, float]] = {}
        self._fields: dict[str, dict[str, float]] = {}  # reported with the progress
        self._sources: dict[str, LogPattern | Metric | None] = {}
        self._asking_until = 0.0

    def identity(self) -> Identity:
        """Return the identity of the folder. Raises WrongState."""
        return self.ledger.identity()

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue. Raises WrongState."""
        self.ledger.claim(queue)

    def start(self, order: Order) -> None:
        """Make the Job of the order.

        If the cluster does not answer, the order is kept, and the Job is made at the next look.
        Raises StaleOrder. Raises NotNow for GPUs of another job: pods of Kubernetes share none.
        """
        if any(one.needed for one in order.beside):
            raise NotNow(f'job "{order.job_id}": Kubernetes lets no two jobs share GPUs')
        with self.ledger.hold_lock():
            self.ledger.fence.admit(order.token)
            if self.ledger.is_new_generation(order.job_id, order.generation):
                before = self.ledger.acknowledged(order.job_id)
                self.ledger.create(order, {}, base=_safe_work(before, order))
                place = self.ledger.place(order.job_id, order.generation)
                self._make(OpenAllocation(place, read_json(place / ORDER) or {}))

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Have the Job deleted at the latest at the next look. Raises StaleOrder.

        An allocation that was never ordered is observed as stopped.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            end = {"phase": "stopped", "work_done": 0.0, "at_s": time.time()}
            detail = {"detail": "was told to stop before it was started"}
            self.ledger.stop(job_id, generation, {END: {**end, **detail}})
            place = self.ledger.place(job_id, generation)
            seen = read_json(place / SEEN)
            if seen is not None and not (place / END).exists():
                self._try(lambda: self._delete(seen["name"], seen["uid"]))

    def observe(self) -> Sequence[Observation]:
        """Return what became of every allocation, and make the cluster as the folder says.

        Raises
        ------
        NotNow
            If the cluster does not answer: nothing is known then.
        """
        with _say_not_now(), self.ledger.hold_lock():
            query = {"labelSelector": f"{STATE}={self._state}"}
            jobs = {name_of(one): one for one in self._reader.list_kind("Job", **query)}
            pods: dict[str, list[Object]] = {}
            for one in self._reader.list_kind("Pod", **query):
                pods.setdefault(_job_of(one), []).append(one)
            self._asking_until = time.monotonic() + ASKING_S
            allocations = list(self.ledger.known())
            mine = {self._name(one) for one in allocations}
            seen = [
                self._observe_allocation(
                    one, jobs.get(self._name(one)), pods.get(self._name(one), [])
                )
                for one in allocations
            ]
            for name in sorted((jobs.keys() | pods.keys()) - mine):
                self._clean(name, jobs.get(name), pods.get(name, []))
            return seen

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget the allocation; what is left in the cluster is removed.

        Raises UsageError if it has not ended.
        """
        with self.ledger.hold_lock():
            place = self.ledger.place(job_id, generation)
            self._reported.pop(place.name, None)
            self._fields.pop(place.name, None)
            self._sources.pop(place.name, None)
            order = read_json(place / ORDER)
            end = self._recorded_end(place, job_id, generation)
            if order is not None and end is None:
                raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
            kept = {} if order is None or end is None else summarise_ending(order, end)
            safe = (read_json(place / END) or {}).get("safe")
            if safe is None:
                safe = self.ledger.acknowledged(job_id).get("safe")
            self.ledger.forget(
                job_id, generation, **kept, **({} if safe is None else {"safe": safe})
            )

    def capacity(self) -> Mapping[str, int]:
        """Return the GPUs of each pool that is seen: those of nodes that are up, without what pods
        of others hold, and what own pods hold on nodes that are leaving. Raises NotNow.
        """
        self._look_if_older(ROUND_S)
        pools: dict[str, int] = {}
        for one in self._usable:
            pools[one.pool] = pools.get(one.pool, 0) + one.gpus
        return pools

    def observe_nodes(self) -> Sequence[NodeStatus]:
        """Return every node with GPUs, without the GPUs of others. Raises NotNow."""
        self._look_if_older(FRESH_S)
        return self._usable

    def _look_if_older(self, seconds: float) -> None:
        """Read what every node has for jobs of this state, unless that was read just now."""
        if time.monotonic() < self._looked_s + seconds:
            return
        with _say_not_now():
            nodes = self._read_nodes()
            pods = self._reader.list_kind("Pod")
        rows = {(one.node, one.resource): one for one in nodes}
        free = {one.name: one.gpus if one.state == "up" else 0 for one in nodes}
        for pod in pods:
            is_own = field(pod, "metadata", "labels", STATE) == self._state
            machine = node_of_pod(pod)
            for resource, n in gpus_of_pod(pod["spec"]).items() if machine else ():
                found = rows.get((str(machine), resource))
                if found is not None and is_own == (found.state != "up"):
                    free[found.name] += n if is_own else -n
        self._usable = [
            NodeStatus(one.name, pool, max(0, free[one.name]), one.state)
            for pool, members in group_nodes(nodes, (), {}).nodes.items()
            for one in members
        ]
        self._looked_s = time.monotonic()

    @property
    def _state(self) -> str:
        return self.ledger.fence.identity().state

    def _name(self, one: OpenAllocation) -> str:
        return object_name(self._state, one.job_id, one.generation)

    def _read_nodes(self) -> list[GpuNode]:
        nodes = read_nodes(self._reader.list_kind("Node"))
        self._nodes = (time.monotonic(), nodes)
        return nodes

    def _make(self, one: OpenAllocation) -> Verdict:
        """Ask for the Job of an allocation, and believe only what the answer says."""
        order = _restore_order(one.order)
        try:
            read_at, nodes = self._nodes
            if time.monotonic() > read_at + NAMES_S:
                nodes = self._read_nodes()
            members = group_nodes(nodes, (), {}).nodes.get(order.pool, [])
            hostnames = [row.hostname for row in nodes if row.name in {p.node for p in order.nodes}]
            job = build_job(order, self._state, self.settings, members, hostnames, self.grace_s)
            path = path_of(
                RESOURCES["Job"], self.settings.namespace, name_of(job), fieldManager=MANAGER
            )
            found = self._reader.api.send(Request("PATCH", path, job, APPLY))
            if field(found, "metadata", "name") != name_of(job) or not uid_of(found):
                raise ClusterUnreachable("the answer is not the Job")
        except Refused as refused:
            if refused.status in FOR_GOOD:
                write_json(one.folder / REFUSED, {"detail": str(refused)})
            return Verdict(Phase.RUNNING, 0.0, f"the cluster did not take its Job yet: {refused}")
        except ClusterUnreachable as error:
            return Verdict(Phase.RUNNING, 0.0, f"the cluster did not answer yet: {error}")
        if changed := difference(job, found):
            write_json(one.folder / REFUSED, {"detail": changed})
        else:
            write_json(one.folder / SEEN, {"uid": uid_of(found), "name": name_of(found)})
        return Verdict(Phase.RUNNING)

    def _observe_allocation(
        self, one: OpenAllocation, job: Object | None, pods: Sequence[Object]
    ) -> Observation:
        if (end := self._recorded_end(one.folder, one.job_id, one.generation)) is not None:
            if (
                job is not None
                and judge(_restore_order(one.order), True, job, pods).phase not in ENDED
            ):
                self._try(lambda: self._delete(name_of(job), uid_of(job)))
            return end
        verdict = self._judge_allocation(one, job, pods)
        if pods:
            reported = self._read_work(one, pods, is_over=verdict.phase in ENDED)
            verdict = replace(verdict, work=max(verdict.work, reported))
        remaining = float(one.order["remaining_work"])
        base = one.order.get("base")
        work = max(0.0, verdict.work - base) if base is not None else 0.0
        if verdict.phase is Phase.FINISHED:
            work = remaining
        seen = Observation(
            one.job_id,
            one.generation,
            time.time(),
            verdict.phase,
            min(work, remaining),
            as_storable_text(verdict.detail, 1000),
            self._fields.get(one.folder.name, {}),
        )
        if verdict.phase in ENDED:
            ending = {"phase": seen.phase.value, "work_done": seen.work_done, "at_s": seen.at_s}
            safe = verdict.work or base
            told = {"detail": seen.detail, "reported": dict(seen.reported)}
            write_json(one.folder / END, {**ending, **told, "safe": safe})
        return seen

    def _judge_allocation(
        self, one: OpenAllocation, job: Object | None, pods: Sequence[Object]
    ) -> Verdict:
        """Return what became of an allocation, and send what is missing for it."""
        order = _restore_order(one.order)
        is_stopping = (one.folder / STOP).exists()
        base = float(one.order.get("base") or 0.0)
        refused = read_json(one.folder / REFUSED)
        seen = read_json(one.folder / SEEN)
        if job is not None and seen is None and refused is None:
            # the answer to the request was lost, and its effect was not
            seen = {"uid": uid_of(job), "name": name_of(job)}
            write_json(one.folder / SEEN, seen)
        if job is not None and seen is not None and uid_of(job) != seen["uid"]:
            pods = [pod for pod in pods if not _belongs(pod, uid_of(job))]
            job = None
        if refused is not None:
            if job is not None:
                self._try(lambda: self._delete(name_of(job), uid_of(job)))
            verdict = judge(order, True, job, pods, base)
            phase = Phase.STOPPED if is_stopping else Phase.FAILED
            is_over = verdict.phase in ENDED
            return Verdict(phase if is_over else Phase.RUNNING, 0.0, str(refused["detail"]))
        if seen is None:
            return Verdict(Phase.STOPPED) if is_stopping else self._make(one)
        if is_stopping and job is not None and field(job, "metadata", "deletionTimestamp") is None:
            uid = uid_of(job)
            verdict = judge(order, is_stopping, job, pods, base)
            if verdict.phase not in ENDED:
                self._try(lambda: self._delete(seen["name"], uid))
            return verdict
        return judge(order, is_stopping, job, pods, base)

    def _read_work(self, one: OpenAllocation, pods: Sequence[Object], *, is_over: bool) -> float:
        """Return the safe work that an allocation reports; what was read just now still counts."""
        read_at, work = self._reported.get(one.folder.name, (-REPORT_S, 0.0))
        is_due = is_over or work == 0.0 or time.monotonic() > read_at + REPORT_S
        if is_due and time.monotonic() < self._asking_until:
            work = max(work, self._ask_for_work(one, pods, is_over))
            self._reported[one.folder.name] = (time.monotonic(), work)
        return work

    def _ask_for_work(self, one: OpenAllocation, pods: Sequence[Object], is_over: bool) -> float:
        """Return the safe work that the first pod tells, 0 if it tells none."""
        first = min((p for p in pods if is_over or is_running(p)), key=name_of, default=None)
        source = self._find_source(one)
        if first is None or (is_over and not isinstance(source, LogPattern)):
            return 0.0
        if source is None:
            text = ask_text(self._reader.api, first, SIDECAR_LOG)
            self._fields[one.folder.name] = parse_line(text)
            return read_progress(text)
        return (ask_pod(self._reader.api, first, source, CONTAINER) or (0.0, 0.0))[1]

    def _find_source(self, one: OpenAllocation) -> LogPattern | Metric | None:
        """Return where the progress of an allocation comes from; None: from its sidecar."""
        if one.folder.name not in self._sources:
            try:
                source = read_source(one.order["environment"])
            except UsageError:
                source = None  # such a job could not be submitted
            self._sources[one.folder.name] = source
        return self._sources[one.folder.name]

    def _recorded_end(self, place: Path, job_id: str, generation: int) -> Observation | None:
        found = read_json(place / END)
        if found is None:
            return None
        return Observation(
            job_id,
            generation,
            float(found["at_s"]),
            Phase(found["phase"]),
            float(found["work_done"]),
            str(found["detail"]),
            found.get("reported", {}),
        )

    def _delete(self, name: str, uid: str) -> None:
        """Delete a Job, and no other one of the same name; its pods go first."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        path = path_of(RESOURCES["Job"], self.settings.namespace, name)
        self._reader.api.send(Request("DELETE", path, body))

    def _clean(self, name: str, job: Object | None, pods: Sequence[Object]) -> None:
        """Remove what is left of an allocation whose end was acknowledged."""
        for pod in pods:
            self._try(partial(self._release, pod))
        if job is not None and field(job, "metadata", "deletionTimestamp") is None:
            self._try(lambda: self._delete(name, uid_of(job)))

    def _release(self, pod: Object) -> None:
        """Take the finalizer of a pod away, unless the pod has changed since it was read."""
        before = field(pod, "metadata", "finalizers") or ()
        if FINALIZER in before:
            left = [one for one in before if one != FINALIZER]
            metadata = {"finalizers": left, "resourceVersion": pod["metadata"]["resourceVersion"]}
            path = path_of(RESOURCES["Pod"], self.settings.namespace, name_of(pod))
            self._reader.api.send(Request("PATCH", path, {"metadata": metadata}, MERGE))

    def _try(self, send: Callable[[], object]) -> None:
        """Send what is sent again at the next look if it fails now."""
        try:
            send()
        except (Refused, ClusterUnreachable):
            return


@contextmanager
def _say_not_now() -> Iterator[None]:
    """Turn a cluster that does not answer, or refuses to, into NotNow: it is asked again later."""
    try:
        yield
    except (Refused, ClusterUnreachable) as error:
        raise NotNow(str(error)) from error


def _safe_work(before: Mapping[str, Any], order: Order) -> float | None:
    """Return the work of a job that was safe when it last ended, None if that is not known."""
    if order.generation <= order.first_generation:
        return 0.0
    is_same_job = int(before.get("generation", -1)) >= order.first_generation
    return before.get("safe") if is_same_job else None


def _job_of(pod: Object) -> str:
    owners = field(pod, "metadata", "ownerReferences") or ()
    return next((str(one["name"]) for one in owners if one.get("kind") == "Job"), "")


def _belongs(pod: Object, uid: str) -> bool:
    return any(one["uid"] == uid for one in field(pod, "metadata", "ownerReferences") or ())


def _restore_order(order: Mapping[str, Any]) -> Order:
    """Return the order that a folder holds, as far as a Job needs it."""
    return Order(
        str(order["job_id"]),
        int(order["generation"]),
        int(order["token"]),
        str(order["pool"]),
        int(order["gpus"]),
        str(order["gpu_type"]),
        float(order["remaining_work"]),
        tuple(order["command"]),
        dict(order["environment"]),
        str(order["workdir"]),
        nodes=tuple(NodePart(one["node"], one["gpus"]) for one in order["nodes"]),
    )
