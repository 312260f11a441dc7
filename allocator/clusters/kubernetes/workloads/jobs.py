"""Jobs, JobSets and PyTorchJobs as one form: sets of equal pods that run together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from allocator.clusters.kubernetes.nodes import gpus_of_pod
from allocator.clusters.kubernetes.objects import (
    QUEUE_NAME,
    Object,
    Objects,
    annotation,
    field,
    is_true,
    name_of,
    namespace_of,
    owners_of,
    uid_of,
)

PINNED = "pinned-nodes"  # annotation: hostnames that the allocator put into the affinity
PINNED_LABEL = "pinned-label"  # annotation: LABEL=VALUE that it put into the node selector


@dataclass(frozen=True)
class PodSet:
    """Equal pods of a job.

    Parameters
    ----------
    name : str
        As Kueue calls it.
    pods, gpus : int
        How many pods, and GPUs of each.
    resource : str
        GPU resource of the pods, "" if they have none.
    pod : mapping
        Spec of the pods.
    is_elastic : bool
        The number of its pods can be another one while the job is suspended.
    """

    name: str
    pods: int
    gpus: int
    resource: str
    pod: Object
    is_elastic: bool = False


@dataclass(frozen=True)
class FoundJob:
    """A job of the cluster whose pods hold or want GPUs.

    Parameters
    ----------
    job_id : str
        Its name in the snapshot.
    kind, namespace, name, uid : str
        The object.
    source : mapping
        The object as it was read.
    pod_sets : tuple of PodSet
        Its pods.
    is_suspended : bool
        It is suspended.
    """

    job_id: str
    kind: str
    namespace: str
    name: str
    uid: str
    source: Object
    pod_sets: tuple[PodSet, ...]
    is_suspended: bool

    @property
    def gpus(self) -> int:
        """Return the GPUs that its spec asks for."""
        return sum(pod_set.pods * pod_set.gpus for pod_set in self.pod_sets)

    @property
    def queue(self) -> str | None:
        """Return the local queue of Kueue that it is in."""
        name = field(self.source, "metadata", "labels", QUEUE_NAME)
        return None if name is None else str(name)

    @property
    def pinned(self) -> list[str]:
        """Return the hostnames that the allocator put into its affinity."""
        return (annotation(self.source, PINNED) or "").split()


def pods_of(name: str, pods: object, template: object, is_elastic: bool = False) -> PodSet:
    """Return equal pods of a template; without a number there is one."""
    spec = field(template, "spec") or {}
    gpus = gpus_of_pod(spec)
    resource = next(iter(gpus), "") if len(gpus) < 2 else "+".join(gpus)
    count = 1 if pods is None else int(str(pods))
    return PodSet(name, count, sum(gpus.values()), resource, spec, is_elastic)


def _sets_of_job(job: Object) -> Iterator[PodSet]:
    spec = job["spec"]
    completions = spec.get("completions")
    parallelism = spec.get("parallelism")
    fewest = parallelism if completions is None else min(parallelism or 1, completions)
    yield pods_of("main", fewest, spec.get("template"), is_elastic=True)


def _sets_of_job_set(job: Object) -> Iterator[PodSet]:
    for part in job["spec"].get("replicatedJobs") or ():
        inner = field(part, "template", "spec") or {}
        pods = int(part.get("replicas", 1)) * int(inner.get("parallelism") or 1)
        pod_set = pods_of(str(part["name"]), pods, inner.get("template"))
        selector = field(pod_set.pod, "nodeSelector") or {}
        # without the label of nodes that the allocator itself asked for
        pinned = annotation(job, PINNED_LABEL)
        left = {name: value for name, value in selector.items() if f"{name}={value}" != pinned}
        is_pinned = left != selector
        yield replace(pod_set, pod={**pod_set.pod, "nodeSelector": left}) if is_pinned else pod_set


def _sets_of_pytorch_job(job: Object) -> Iterator[PodSet]:
    replicas: Object = job["spec"].get("pytorchReplicaSpecs") or {}
    for name in sorted(replicas):
        replica = replicas[name]
        is_elastic = name == "Worker"
        yield pods_of(name.lower(), replica.get("replicas", 1), replica.get("template"), is_elastic)


@dataclass(frozen=True)
class _Kind:
    api_version: str
    find_sets: Callable[[Object], Iterator[PodSet]]
    suspend: tuple[str, ...]
    ends: tuple[str, ...]


KINDS: Mapping[str, _Kind] = {
    "Job": _Kind("batch/v1", _sets_of_job, ("spec", "suspend"), ("Complete", "Failed")),
    "JobSet": _Kind(
        "jobset.x-k8s.io/v1alpha2", _sets_of_job_set, ("spec", "suspend"), ("Completed", "Failed")
    ),
    "PyTorchJob": _Kind(
        "kubeflow.org/v1",
        _sets_of_pytorch_job,
        ("spec", "runPolicy", "suspend"),
        ("Succeeded", "Failed"),
    ),
}


def find_jobs(objects: Objects) -> list[FoundJob]:
    """Return the jobs that are not over and ask for GPUs.

    Parts of other jobs are none of them, even if the list has not the other job: who starts that
    one starts its parts.
    """
    jobs: list[FoundJob] = []
    for kind, about in KINDS.items():
        for source in objects.of_kind(kind):
            is_part = any(
                owner.get("kind") in KINDS and owner.get("controller", True)
                for owner in owners_of(source)
            )
            if is_part or any(is_true(source, end) for end in about.ends):
                continue
            place, name = namespace_of(source), name_of(source)
            job = FoundJob(
                f"{place}/{name}" if kind == "Job" else f"{place}/{kind.lower()}/{name}",
                kind,
                place,
                name,
                uid_of(source),
                source,
                tuple(about.find_sets(source)),
                bool(field(source, *about.suspend)),
            )
            if job.gpus:
                jobs.append(job)
    return jobs


def resize(job: FoundJob, gpus: int) -> FoundJob | None:
    """Return the job with other numbers of pods, or None if no number of pods makes this size."""
    if gpus == job.gpus:
        return job
    elastic = [pod_set for pod_set in job.pod_sets if pod_set.is_elastic and pod_set.gpus]
    if len(elastic) != 1:
        return None
    fixed = job.gpus - elastic[0].pods * elastic[0].gpus
    pods, rest = divmod(gpus - fixed, elastic[0].gpus)
    if rest or pods < 0 or gpus <= 0:
        return None
    sets = tuple(
        replace(pod_set, pods=pods) if pod_set is elastic[0] else pod_set
        for pod_set in job.pod_sets
    )
    return replace(job, pod_sets=sets)
