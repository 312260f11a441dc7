"""Documents that start, stop and resize a job of the cluster, for server-side apply.

Every document of a job has all fields that the allocator owns there: what a later document of the
same field manager leaves out is removed from the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allocator.clusters.kubernetes.kueue import Kueue
from allocator.clusters.kubernetes.objects import (
    HOSTNAME,
    PREFIX,
    Object,
    Objects,
    field,
    timestamp,
)
from allocator.clusters.kubernetes.workloads.constraints import (
    node_terms,
    pinned_affinity,
    unpinned_terms,
)
from allocator.clusters.kubernetes.workloads.jobs import (
    KINDS,
    PINNED,
    PINNED_LABEL,
    FoundJob,
    PodSet,
    find_jobs,
)
from allocator.objects import Json

LONGEST_MESSAGE = 32768  # of an answer that Kueue takes


def _specify(job: FoundJob, hostnames: Sequence[str], selector: Mapping[str, str]) -> Json:
    """Return the part of the spec with its numbers of pods, and where they run."""

    def template(pod_set: PodSet) -> Json:
        """Return what puts a pod on these hostnames, or takes an old pin away."""
        terms = unpinned_terms(pod_set.pod, job.pinned)
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        own: Json = {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}}
        if hostnames:
            spec = pinned_affinity(own if terms else {}, hostnames)
        else:
            spec = own if terms and terms != node_terms(pod_set.pod) else {}
        return {"template": {"spec": spec}} if spec else {}

    with_gpus = [pod_set for pod_set in job.pod_sets if pod_set.gpus]
    if job.kind == "JobSet":  # of what places its pods only node selectors can change
        pod = {"template": {"spec": {"nodeSelector": dict(selector)}}}
        parts = [{"name": pod_set.name, "template": {"spec": pod}} for pod_set in with_gpus]
        return {"replicatedJobs": parts} if selector else {}
    if job.kind == "PyTorchJob":
        replicas = {
            pod_set.name.capitalize(): {"replicas": pod_set.pods, **template(pod_set)}
            for pod_set in with_gpus
        }
        return {"pytorchReplicaSpecs": replicas}
    pod_set = job.pod_sets[0]
    before = field(job.source, "spec") or {}
    completions = before.get("completions")
    is_indexed = before.get("completionMode") == "Indexed"
    is_coupled = is_indexed and completions == before.get("parallelism", 1)
    coupled = {"completions": pod_set.pods} if is_coupled else {}
    return {"parallelism": pod_set.pods, **coupled, **template(pod_set)}


def _merge(document: Object, other: Object) -> Json:
    return dict(document) | {
        key: _merge(document[key], value)
        if isinstance(value, Mapping) and isinstance(document.get(key), Mapping)
        else value
        for key, value in other.items()
    }


def _identity(api_version: str, kind: str, metadata: Object, *more: str) -> Json:
    """Return the beginning of a document; another object of the same name has another uid."""
    names = ("name", "namespace", "uid", *more)
    known = {key: metadata[key] for key in names if metadata.get(key)}
    return {"apiVersion": api_version, "kind": kind, "metadata": known}


def job_document(
    job: FoundJob,
    is_suspended: bool | None,
    hostnames: Iterable[str],
    *,
    selector: Mapping[str, str] = {},
    is_paused: bool | None = None,
) -> Json:
    """Return the document that makes a job be as it is given.

    Parameters
    ----------
    job : FoundJob
        The job with the numbers of pods that it shall have.
    is_suspended : bool, optional
        It shall be suspended; None: that is left to Kueue.
    hostnames : iterable of str
        Values of kubernetes.io/hostname of its nodes; empty: any node.
    selector : mapping of str to str
        Labels of its nodes, for a JobSet.
    is_paused : bool, optional
        It waits until the allocator starts it; default: as is_suspended.
    """
    names = sorted(hostnames)
    about = KINDS[job.kind]
    document = _identity(
        about.api_version, job.kind, {"name": job.name, "namespace": job.namespace, "uid": job.uid}
    )
    paused = bool(is_suspended) if is_paused is None else is_paused
    marks = {PREFIX + "managed": "true", PREFIX + "paused": "true" if paused else "false"}
    if names:
        marks[PREFIX + PINNED] = " ".join(names)
    for label, value in selector.items():
        marks[PREFIX + PINNED_LABEL] = f"{label}={value}"
    document["metadata"]["annotations"] = marks
    suspend: Any = is_suspended
    for name in reversed(about.suspend):
        suspend = {name: suspend}
    started = {} if is_suspended is None else suspend
    return _merge(_merge(document, started), {"spec": _specify(job, names, selector)})


def workload_activity(workload: Object, is_active: bool) -> Json:
    """Return the document that makes a workload of Kueue active, or takes it out of its queue."""
    document = _identity(workload["apiVersion"], "Workload", workload["metadata"])
    document["metadata"]["annotations"] = {PREFIX + "paused": "false" if is_active else "true"}
    return document | {"spec": {"active": is_active}}


def check_answer(
    workload: Object,
    check: str,
    state: str,
    message: str,
    now_s: float,
    hostnames: Sequence[str] = (),
) -> Json:
    """Return the document of the status in which an admission check of a workload answers.

    A node selector has one value for a label, so that only one node can be named. The document has
    the version of the workload: if Kueue has changed it since, the answer is refused (409).

    Parameters
    ----------
    workload : mapping
        The workload.
    check : str
        Name of the check.
    state : str
        "Ready" lets it start, "Pending" takes that back, "Retry" evicts it and frees its quota.
    message : str
        The reason, for people.
    now_s : float
        Time of the answer.
    hostnames : sequence of str
        Where its pods shall run.
    """
    answer: Json = {
        "name": check,
        "state": state,
        "message": message[:LONGEST_MESSAGE],
        "lastTransitionTime": timestamp(now_s),
        # an empty list is written, too: Kueue owns the field as well, so that one that is left out
        # would stay
        "podSetUpdates": [
            {"name": pod_set["name"], "nodeSelector": {HOSTNAME: hostnames[0]}}
            for pod_set in field(workload, "spec", "podSets") or ()
            if len(hostnames) == 1
        ],
    }
    about = workload["apiVersion"], "Workload", workload["metadata"], "resourceVersion"
    return _identity(*about) | {"status": {"admissionChecks": [answer]}}


META = ("name", "namespace", "uid", "annotations", "labels", "resourceVersion")
POD = ("nodeSelector", "affinity", "tolerations")
CONTAINER = ("name", "resources", "restartPolicy")


def _some(value: Object | None, names: tuple[str, ...]) -> Json:
    return {name: value[name] for name in names if value is not None and name in value}


def _slim(value: Any) -> Any:
    """Return the spec of a job with pods of which only resources and places are left."""
    if isinstance(value, list):
        return [_slim(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    if "containers" in value:
        return _some(value, POD) | {
            kind: [_some(container, CONTAINER) for container in value[kind] or ()]
            for kind in ("containers", "initContainers")
            if kind in value
        }
    return {name: _slim(inner) for name, inner in value.items()}


def _slim_object(value: Object, status: tuple[str, ...]) -> Json:
    return {
        "apiVersion": value.get("apiVersion"),
        "kind": value.get("kind"),
        "metadata": _some(field(value, "metadata"), META),
        "spec": _slim(value.get("spec") or {}),
        "status": _some(field(value, "status"), status),
    }


def describe_job(job: FoundJob, kueue: Kueue) -> Json:
    """Return what a plan needs to know about a job."""
    source = {**job.source, "kind": job.kind, "apiVersion": KINDS[job.kind].api_version}
    workload = kueue.workload(job)
    return {
        "object": _slim_object(source, ("startTime", "active")),
        "workload": None
        if workload is None
        else _slim_object(
            {"apiVersion": "kueue.x-k8s.io/v1beta1", **workload, "kind": "Workload"},
            ("conditions", "admissionChecks"),
        ),
    }


def restore_job(details: Object) -> FoundJob:
    """Return the job from what `describe_job` wrote."""
    return find_jobs(Objects([details["object"]]))[0]
