"""The controller of an admission check of Kueue: it says which workloads may start, and where.

Kueue reserves quota first, and then waits for this answer. "Ready" lets a workload start, "Pending"
takes that back, "Retry" evicts one that was let in. Nothing but the answer is written:
status.admission belongs to Kueue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from allocator.clusters.adapter import ClusterView, PlannedJob, Refused
from allocator.clusters.kubernetes.api import APPLY, MANAGER, Reader, Request, path_of
from allocator.clusters.kubernetes.objects import (
    Object,
    Objects,
    field,
    is_true,
    name_of,
    timestamp,
)
from allocator.clusters.kubernetes.observe import CONTROLLER, observe
from allocator.clusters.kubernetes.progress import ask_jobs
from allocator.clusters.kubernetes.suggestions.suggest import OF_STATUS, list_changes, our_check
from allocator.objects import Json

Decide = Callable[[ClusterView], Sequence[PlannedJob]]


def answer_checks(reader: Reader, decide: Decide, now_s: float) -> list[str]:
    """Look at the cluster, decide, and answer the checks; return a line about each answer.

    A workload that the plan lets wait keeps its check pending. What the server refuses, or what is
    not there when the answer is read, is said, and decided anew the next time.

    Parameters
    ----------
    reader : Reader
        The cluster.
    decide : callable
        Function from a view to what a plan gives every job of it.
    now_s : float
        Time, in unix seconds.

    Raises
    ------
    ClusterUnreachable
        If the cluster does not answer.
    """
    objects = Objects(reader.read_everything())
    lines = [_activate(reader, check, now_s) for check in objects.of_kind("AdmissionCheck")]
    progress, notes = ask_jobs(reader.api, objects)
    lines += notes
    view = _limit_to_answers(observe(objects, now_s, progress))
    for change in list_changes(decide(view), view.details):
        if change.document is None or change.file not in OF_STATUS:
            continue
        (wanted,) = change.document["status"]["admissionChecks"]
        answer = _apply_status(reader, change.document)
        if isinstance(answer, str):
            lines.append(f"{change.comment[0]}: not taken: {answer}")
        elif not any(
            all((check.get(key) or None) == (value or None) for key, value in wanted.items())
            for check in field(answer, "status", "admissionChecks") or ()
        ):
            lines.append(f"{change.comment[0]}: the answer is not there; it is given again")
        else:
            lines.append(f"{change.comment[0]}: {wanted['state']}")
    return [line for line in lines if line]


def _limit_to_answers(view: ClusterView) -> ClusterView:
    """Return a view whose plan needs nothing but answers.

    No answer changes a size. A waiting job starts by an answer only if its quota is reserved, and a
    running job stops by one only if it has a check of ours, and Kueue does not evict it yet. GPUs
    that a plan moved between other jobs would stay idle. Quota is reserved by Kueue, and is no
    limit here: where less of it is left than jobs hold there would be no plan.
    """
    rows = []
    for row in view.tables["jobs.csv"]:
        workload = view.details["jobs"][row["job_id"]]["workload"]
        is_ours = our_check(workload, view.details) is not None and not is_true(workload, "Evicted")
        may_start = is_ours and is_true(workload, "QuotaReserved")
        size = row.get("gpus") or row["requested_gpus"]
        limits: Json = dict.fromkeys(("min_gpus", "max_gpus", "requested_gpus"), size)
        limits["sizes"] = [size]
        if row["state"] == "running":
            limits["preemptible"] = row["preemptible"] and is_ours
        elif not may_start:
            limits["state"] = "held"
        rows.append({**row, **limits})
    return replace(view, tables={**view.tables, "jobs.csv": rows, "quotas.csv": []})


def _apply_status(reader: Reader, document: Object) -> Json | str:
    """Apply a status; return the object as the server has it then, or why it refused."""
    resource = reader.resource(document["kind"])
    assert resource is not None
    metadata: Mapping[str, str] = document["metadata"]
    path = path_of(resource, metadata.get("namespace", ""), metadata["name"])
    query = f"/status?fieldManager={MANAGER}&force=true"
    try:
        return reader.api.send(Request("PATCH", path + query, document, APPLY))
    except Refused as refused:
        return str(refused)


def _activate(reader: Reader, check: Object, now_s: float) -> str:
    """Say that somebody answers this check, if it is ours: Kueue reserves no quota before."""
    if field(check, "spec", "controllerName") != CONTROLLER or is_true(check, "Active"):
        return ""
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "the allocator answers",
        "lastTransitionTime": timestamp(now_s),
    }
    document = {
        "apiVersion": check["apiVersion"],
        "kind": "AdmissionCheck",
        "metadata": {"name": name_of(check)},
        "status": {"conditions": [condition]},
    }
    answer = _apply_status(reader, document)
    if isinstance(answer, str):
        return f"check {name_of(check)}: not taken: {answer}"
    return (
        f"check {name_of(check)}: {'active' if is_true(answer, 'Active') else 'is not active yet'}"
    )
