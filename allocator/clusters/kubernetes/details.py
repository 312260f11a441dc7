"""What plans need to know about jobs, as JSON without the secrets of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.clusters.adapter import Json
from allocator.clusters.kubernetes.kueue import Kueue
from allocator.clusters.kubernetes.objects import Object, Objects, field
from allocator.clusters.kubernetes.workloads.jobs import KINDS, FoundJob, find_jobs

META = ("name", "namespace", "uid", "annotations", "labels", "resourceVersion")
POD = ("nodeSelector", "affinity", "tolerations")
CONTAINER = ("name", "resources", "restartPolicy")


def _some(value: Object | None, names: tuple[str, ...]) -> Json:
    return {name: value[name] for name in names if value is not None and name in value}


def _slim(value: Any) -> Any:
    """Return the spec of a job with pods of which only resources and places are left."""
    if isinstance(value, list):
        return [_slim(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "containers" in value:
        return _some(value, POD) | {
            kind: [_some(one, CONTAINER) for one in value[kind] or ()]
            for kind in ("containers", "initContainers")
            if kind in value
        }
    return {name: _slim(one) for name, one in value.items()}


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
