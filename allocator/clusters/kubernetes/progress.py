"""Progress of jobs that do not report it: the log of a pod, or its metrics, by the API server.

What a pod says is limited by the request, and nobody trusts it (io/progress_sources.py). An address
of metrics names the port and the path; the machine is always the pod.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from allocator.clusters.adapter import ClusterUnreachable, Refused
from allocator.clusters.kubernetes.api import RESOURCES, Api, Request, path_of
from allocator.clusters.kubernetes.nodes import gpus_of_pod
from allocator.clusters.kubernetes.objects import Object, Objects, field, name_of, namespace_of
from allocator.clusters.kubernetes.workloads.jobs import find_jobs
from allocator.clusters.kubernetes.workloads.owners import read_annotations, read_progress_source
from allocator.io.progress_sources import LogPattern, Metric, Progress

ANSWER_S = 2.0  # for what one pod tells
ASKING_S = 5.0  # for what all pods tell in one look; nothing is known of the others


def ask_pod(api: Api, pod: Object, source: LogPattern | Metric, container: str) -> Progress | None:
    """Return the progress that a pod tells, None if it tells none."""
    if isinstance(source, LogPattern):
        end = f"/log?container={container}&tailLines=200&limitBytes=65536"
    else:
        parts = urlsplit(source.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        query = f"?{parts.query}" if parts.query else ""
        end = f":{port}/proxy{parts.path or '/'}{query}"
    return source.find(ask_text(api, pod, end).encode())


def ask_text(api: Api, pod: Object, end: str) -> str:
    """Return the text of a subresource of a pod, "" if there is none in time.

    Raises Refused if the account may not read it.
    """
    path = path_of(RESOURCES["Pod"], namespace_of(pod), name_of(pod))
    request = Request("GET", path + end, is_text=True, patience_s=ANSWER_S)
    try:
        return str(api.send(request)["text"])
    except Refused as refused:
        if refused.status == 403:
            raise
        return ""
    except ClusterUnreachable:
        return ""


def is_running(pod: Object) -> bool:
    """Return whether a pod runs."""
    return bool(field(pod, "status", "phase") == "Running")


def ask_jobs(api: Api, objects: Objects) -> tuple[dict[str, Progress], list[str]]:
    """Return the progress of the jobs whose annotations name its source, by job, and notes.

    The first running pod of a job is asked. Only jobs that name their whole work are asked, as
    nothing follows from progress alone.
    """
    sources = {}
    for job in find_jobs(objects):
        said, _ = read_annotations(job)
        source = read_progress_source(said)
        if "total-work" in said and source is not None:
            sources[job.uid] = job, source
    first: dict[str, Object] = {}  # the running pod of each job whose name is the first one
    for pod in objects.of_kind("Pod") if sources else ():
        for uid in objects.owner_uids(pod) if is_running(pod) else ():
            if uid in sources:
                first.setdefault(uid, pod)
    until = time.monotonic() + ASKING_S
    by_job, notes = {}, []
    for uid, (job, source) in sources.items():
        if uid in first and time.monotonic() < until:
            containers = field(first[uid], "spec", "containers") or [{"name": ""}]
            with_gpus = [
                container for container in containers if gpus_of_pod({"containers": [container]})
            ]
            name = str((with_gpus or containers)[0]["name"])
            try:
                progress = ask_pod(api, first[uid], source, name)
            except Refused as refused:
                notes.append(f"{job.job_id}: its progress is not known: {refused}")
                continue
            if progress is not None:
                by_job[job.job_id] = progress
    return by_job, notes
