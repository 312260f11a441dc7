"""Kueue: cluster queues, cohorts and flavors as tenants and quotas; what its workloads say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field as empty, replace
from functools import cached_property

from allocator.clusters.kubernetes.nodes import GpuNode, is_gpu
from allocator.clusters.kubernetes.objects import (
    Object,
    Objects,
    conditions,
    field,
    is_true,
    name_of,
    namespace_of,
    owners_of,
    quantity,
    uid_of,
)
from allocator.clusters.kubernetes.workloads.constraints import admits, placement_rules
from allocator.clusters.kubernetes.workloads.jobs import FoundJob, PodSet

NEVER = (None, "", "Never")
STOPPED = ("Hold", "HoldAndDrain")


@dataclass(frozen=True)
class Quota:
    """GPUs of one flavor of a cluster queue or a cohort.

    Parameters
    ----------
    flavor, resource : str
        The flavor, and the GPU resource that it covers.
    nominal : int
        Its own GPUs.
    borrowing, lending : int, optional
        Most GPUs that it may borrow and lend; None: no limit.
    """

    flavor: str
    resource: str
    nominal: int
    borrowing: int | None
    lending: int | None


@dataclass(frozen=True)
class QuotaNode:
    """A cluster queue or a cohort.

    Parameters
    ----------
    name, cohort : str
        Its name, and the cohort above it, "" if there is none.
    weight : float
        Of fair sharing.
    quotas : tuple of Quota
        Of its GPUs.
    reclaims : bool
        It takes back what others borrowed.
    is_stopped : bool
        It admits nothing.
    """

    name: str
    cohort: str
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()
    reclaims: bool = True
    is_stopped: bool = False


def _limit(amount: object) -> int | None:
    return None if amount is None else int(quantity(amount))


def _read_quota_node(value: Object, above: object, **more: bool) -> QuotaNode:
    """Return a cluster queue or a cohort; `above` is the name of the cohort above it."""
    weight = field(value, "spec", "fairSharing", "weight")
    quotas = tuple(
        Quota(
            str(flavor["name"]),
            str(resource["name"]),
            int(quantity(resource.get("nominalQuota"))),
            _limit(resource.get("borrowingLimit")),
            _limit(resource.get("lendingLimit")),
        )
        for group in field(value, "spec", "resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
        if is_gpu(str(resource["name"]))
    )
    weighed = 1.0 if weight is None else max(quantity(weight), 1e-3)
    return QuotaNode(name_of(value), str(above or ""), weighed, quotas, **more)


@dataclass(frozen=True)
class Kueue:
    """What Kueue has in a cluster; empty where it is not installed.

    Parameters
    ----------
    objects : Objects
        All objects of the look.

    Examples
    --------
    >>> Kueue(Objects([])).is_installed
    False
    """

    objects: Objects = empty(default_factory=lambda: Objects([]))

    @property
    def is_installed(self) -> bool:
        """Return whether there is a cluster queue."""
        return bool(self.objects.of_kind("ClusterQueue"))

    @cached_property
    def cluster_queues(self) -> dict[str, QuotaNode]:
        """Return the cluster queues by name."""
        return {
            name_of(queue): _read_quota_node(
                queue,
                field(queue, "spec", "cohortName") or field(queue, "spec", "cohort"),
                reclaims=field(queue, "spec", "preemption", "reclaimWithinCohort") not in NEVER,
                is_stopped=field(queue, "spec", "stopPolicy") in STOPPED,
            )
            for queue in self.objects.of_kind("ClusterQueue")
        }

    @cached_property
    def cohorts(self) -> dict[str, QuotaNode]:
        """Return the cohorts by name, those without an object of their own included."""
        named = {
            queue.cohort: QuotaNode(queue.cohort, "") for queue in self.cluster_queues.values()
        }
        written = {
            name_of(cohort): _read_quota_node(
                cohort, field(cohort, "spec", "parentName") or field(cohort, "spec", "parent")
            )
            for cohort in self.objects.of_kind("Cohort")
        }
        above = {cohort.cohort: QuotaNode(cohort.cohort, "") for cohort in written.values()}
        return {name: cohort for name, cohort in (named | above | written).items() if name}

    @cached_property
    def _local_queues(self) -> dict[tuple[str, str], Object]:
        return {(namespace_of(o), name_of(o)): o for o in self.objects.of_kind("LocalQueue")}

    @cached_property
    def _workloads(self) -> dict[str, Object]:
        """Workloads by the uid of their job; the newest counts, as Kueue orders them."""
        newest: dict[str, Object] = {}
        ordered = sorted(
            self.objects.of_kind("Workload"),
            key=lambda workload: (
                str(field(workload, "metadata", "creationTimestamp") or ""),
                uid_of(workload),
            ),
        )
        for workload in ordered:
            for owner in owners_of(workload):
                if not is_true(workload, "Finished"):
                    newest[str(owner["uid"])] = workload
        return newest

    def cluster_queue(self, job: FoundJob) -> QuotaNode | None:
        """Return the cluster queue of a job, or None if it is in none that is known."""
        local = self._local_queues.get((job.namespace, job.queue or ""))
        return self.cluster_queues.get(str(field(local, "spec", "clusterQueue")))

    def is_stopped(self, job: FoundJob) -> bool:
        """Return whether the queues of a job admit nothing."""
        local = self._local_queues.get((job.namespace, job.queue or ""))
        queue = self.cluster_queue(job)
        return field(local, "spec", "stopPolicy") in STOPPED or bool(queue and queue.is_stopped)

    def checks(self, controller: str) -> list[str]:
        """Return the names of the admission checks that a controller answers."""
        return [
            name_of(check)
            for check in self.objects.of_kind("AdmissionCheck")
            if field(check, "spec", "controllerName") == controller
        ]

    def workload(self, job: FoundJob) -> Object | None:
        """Return the workload of a job."""
        return self._workloads.get(job.uid)

    def constrain(self, job: FoundJob) -> FoundJob:
        """Return a job whose pods ask for the nodes that Kueue lets them have.

        These are the nodes of the template in the workload, to which nothing was added to start it,
        and of the flavors in which its quota is reserved.
        """
        workload = self.workload(job)
        if workload is None:
            return job
        templates = {
            pod_set["name"]: field(pod_set, "template", "spec")
            for pod_set in field(workload, "spec", "podSets") or ()
        }
        reserved = {
            pod_set["name"]: set((pod_set.get("flavors") or {}).values())
            for pod_set in field(workload, "status", "admission", "podSetAssignments") or ()
        }
        sets = (
            self._constrain_pods(
                pod_set, templates.get(pod_set.name, pod_set.pod), reserved.get(pod_set.name, ())
            )
            for pod_set in job.pod_sets
        )
        return replace(job, pod_sets=tuple(sets))

    def _constrain_pods(self, pods: PodSet, template: Object, names: Collection[str]) -> PodSet:
        selector = dict(field(template, "nodeSelector") or {})
        tolerations = [*(field(template, "tolerations") or ())]
        for flavor in self.objects.of_kind("ResourceFlavor"):
            if name_of(flavor) in names:
                selector |= field(flavor, "spec", "nodeLabels") or {}
                tolerations += field(flavor, "spec", "tolerations") or ()
        return replace(pods, pod={**pods.pod, "nodeSelector": selector, "tolerations": tolerations})

    def flavors_of_nodes(self, nodes: Sequence[GpuNode]) -> dict[str, set[str]]:
        """Return the names of the nodes of each flavor: those with all of its labels.

        A flavor without labels has every node.
        """
        return {
            name_of(flavor): {
                node.name
                for node in nodes
                if admits(
                    placement_rules({"nodeSelector": field(flavor, "spec", "nodeLabels") or {}}),
                    node.labels,
                    node.node,
                    (),
                    node.resource,
                )
            }
            for flavor in self.objects.of_kind("ResourceFlavor")
        }


def state_in_words(workload: Object | None) -> str:
    """Return what Kueue says about a workload, in its own words.

    Examples
    --------
    >>> condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending",
    ...              "message": "4 more needed"}
    >>> state_in_words({"status": {"conditions": [condition]}})
    'QuotaReserved=False, Pending: 4 more needed'
    """
    known: Object = conditions(workload or {})
    for name in ("Evicted", "Preempted", "Admitted", "QuotaReserved"):
        verdict = known.get(name)
        if verdict is not None and (name == "QuotaReserved" or verdict["status"] == "True"):
            return f"{name}={verdict['status']}, {verdict.get('reason')}: {verdict.get('message')}"
    return ""
