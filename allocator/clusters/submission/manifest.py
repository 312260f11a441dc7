"""A manifest of Kubernetes: a Job, JobSet or PyTorchJob, or a RayJob of KubeRay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from allocator.clusters.kubernetes.nodes import PRODUCT_LABELS
from allocator.clusters.kubernetes.objects import (
    Object,
    Objects,
    expand_lists,
    field,
    name_of,
    namespace_of,
)
from allocator.clusters.kubernetes.observe import stated_columns
from allocator.clusters.kubernetes.workloads.jobs import KINDS, FoundJob, PodSet, find_jobs, pods_of
from allocator.clusters.kubernetes.workloads.owners import read_annotations
from allocator.clusters.submission.new_job import NewJob, Site, refuse
from allocator.errors import AllocatorError, UsageError, install_command
from allocator.objects import Json

RAY_JOB = "RayJob"


def read_manifest(file: str, text: str, site: Site, now_s: float) -> NewJob:
    """Return the one job with GPUs of a manifest as it would be observed. Raises InvalidInput."""
    documents = list(_read_documents(file, text))
    entries: list[tuple[int, FoundJob]] = []
    for line, document in documents:
        try:
            value = dict(document)
            jobs = find_jobs(Objects([value])) if value.get("kind") in KINDS else _ray_jobs(value)
            entries += [(line, job) for job in jobs]
        except UsageError as error:
            raise refuse(file, line, str(error)) from None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise refuse(
                file,
                line,
                f"{value.get('kind')} is not of its form: {type(error).__name__} {error}",
            ) from None
    if len(entries) != 1:
        kinds = ", ".join(str(value.get("kind")) for _, value in documents) or "nothing"
        words = f"has {len(entries)} jobs that ask for GPUs ({kinds}); one {', '.join(KINDS)} or"
        raise refuse(file, None, f"{words} {RAY_JOB} can be submitted at a time")
    return _row(file, *entries[0], site, now_s)


def _row(file: str, line: int, job: FoundJob, site: Site, now_s: float) -> NewJob:
    said, faults = read_annotations(job)
    if faults:
        raise refuse(file, line, faults[0])
    try:
        row = stated_columns(job, said, now_s)
        selectors = [
            field(pod_set.pod, "nodeSelector") or {} for pod_set in job.pod_sets if pod_set.gpus
        ]
        products = [
            str(selector[k]) for selector in selectors for k in PRODUCT_LABELS if k in selector
        ]
        named = said.get("gpu-types") or products
        types = sorted({gpu_type for name in named for gpu_type in site.find_types(name)})
    except (UsageError, ValueError) as error:
        raise refuse(file, line, str(error)) from None
    notes = []
    if job.queue is not None and job.queue not in site.tenants:
        notes.append(
            f"the snapshot has no tenant {job.queue}, its queue; namespace {job.namespace} counts"
        )
    selected = {
        name for pod_set in job.pod_sets for name in field(pod_set.pod, "nodeSelector") or ()
    }
    others = sorted(selected - set(PRODUCT_LABELS))
    if others:
        notes.append(f"its node selector {', '.join(others)} does not count here")
    if not {"total-work", "remaining-work", "expected-seconds"} & set(said):
        notes.append("it says nothing of its work (total-work, expected-seconds); an hour is taken")
    row |= {
        "job_id": site.free_name(job.job_id),
        "submitted_s": now_s,
        "tenant": job.queue if job.queue in site.tenants else job.namespace,
        "gpu_types": types or None,
    }
    return NewJob(row, file, line, notes=tuple(notes))


def _ray_jobs(source: Object) -> Iterator[FoundJob]:
    """Yield a RayJob with GPUs: its head, and the workers of each group."""
    if source.get("kind") != RAY_JOB:
        return
    cluster = field(source, "spec", "rayClusterSpec") or {}
    head = field(cluster, "headGroupSpec", "template")
    sets: list[PodSet] = [pods_of("head", 1, head)] if head else []
    for group in cluster.get("workerGroupSpecs") or ():
        hosts = int(group.get("numOfHosts") or 1)
        pods = hosts * int(group.get("replicas", group.get("minReplicas") or 0))
        sets.append(pods_of(str(group["groupName"]), pods, group.get("template")))
    name, place = name_of(source), namespace_of(source)
    ident = f"{place}/{RAY_JOB.lower()}/{name}"
    with_gpus = tuple(pod_set for pod_set in sets if pod_set.gpus and pod_set.pods)
    job = FoundJob(ident, RAY_JOB, place, name, "", source, with_gpus, False)
    if job.gpus:
        yield job


def _read_documents(file: str, text: str) -> Iterator[tuple[int, Json]]:
    """Yield the objects of a file of JSON or YAML, with their first lines."""
    for line, document in _parse(file, text):
        is_object = isinstance(document, dict)
        for item in expand_lists(document) if is_object else [document]:
            if isinstance(item, dict):
                yield line, item
            elif is_object or item is not None:
                raise refuse(file, line, "is no object of Kubernetes")


def _parse(file: str, text: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("{"):
        try:
            yield 1, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise refuse(file, getattr(error, "lineno", 1), f"is no JSON: {error}") from None
        return
    try:
        import yaml
    except ImportError:
        raise AllocatorError(
            f"a manifest in YAML needs a package: {install_command('kubernetes')}; as JSON it needs"
            " none"
        ) from None
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            yield node.start_mark.line + 1, loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", str(error).partition("\n")[0])
        raise refuse(file, mark.line + 1 if mark else None, f"is no YAML: {why}") from None
    finally:
        loader.dispose()
