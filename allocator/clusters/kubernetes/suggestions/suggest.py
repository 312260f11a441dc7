"""A plan as documents for `kubectl apply --server-side`, with the commands as comments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.clusters.adapter import PlannedJob
from allocator.clusters.kubernetes.api import MANAGER
from allocator.clusters.kubernetes.details import restore_job
from allocator.clusters.kubernetes.kueue import state_in_words
from allocator.clusters.kubernetes.objects import (
    Object,
    field,
    is_true,
    name_of,
    namespace_of,
)
from allocator.clusters.kubernetes.suggestions.documents import (
    check_answer,
    job_document,
    workload_activity,
)
from allocator.clusters.kubernetes.suggestions.words import explain_in_words
from allocator.clusters.kubernetes.suggestions.yaml_text import yaml_text
from allocator.clusters.kubernetes.workloads.jobs import FoundJob, resize

STOP = "1-stop.yaml"
EVICT = "2-evict.yaml"
START = "3-start.yaml"
READY = "4-ready.yaml"
ABOUT = {
    STOP: "what stops, shrinks or moves",
    EVICT: "workloads of Kueue that may not start any more, or go back into their queue",
    START: "what starts, when the pods of what stops are gone",
    READY: "workloads of Kueue that may start",
}
OF_STATUS = (EVICT, READY)  # files whose documents are about the status
ELASTIC = "kueue.x-k8s.io/elastic-job"  # Kueue resizes such a job while it runs
LABELS = {  # label by which the pods of a kind name their job
    "Job": "batch.kubernetes.io/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "PyTorchJob": "training.kubeflow.org/job-name",
}


@dataclass(frozen=True)
class Change:
    """One change of one object.

    Parameters
    ----------
    file : str
        One of `ABOUT`.
    document : mapping, optional
        What is applied; None: there is nothing to apply.
    comment : tuple of str
        Why, and what the plan says.
    before : tuple of str
        Commands to run before the file is applied.
    after : tuple of str
        Commands to run after it.
    """

    file: str
    document: Mapping[str, Any] | None
    comment: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def suggest(jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that carry a plan out: what stops first, then what starts.

    Parameters
    ----------
    jobs : sequence of PlannedJob
        What the plan gives every job.
    details : mapping of str to object
        The details of the view from which the snapshot was made.
    """
    changes = list_changes(jobs, details)
    waiting = [
        f"{one.job_id}: {_waiting_words(one, details)}" for one in jobs if one.action == "wait"
    ]
    return {
        file: _file(file, mine, waiting if file == START else ())
        for file in ABOUT
        if (mine := [one for one in changes if one.file == file]) or file in (STOP, START)
    }


def list_changes(jobs: Sequence[PlannedJob], details: Mapping[str, Any]) -> list[Change]:
    """Return the changes of a plan, in their order."""
    changes = [change for planned in jobs for change in _changes_of_job(planned, details)]
    return [one for file in ABOUT for one in changes if one.file == file]


def _changes_of_job(planned: PlannedJob, details: Mapping[str, Any]) -> list[Change]:
    about = details["jobs"][planned.job_id]
    if stuck := _send_back(planned, details):
        return [stuck]
    if planned.action == "keep":
        return []
    job = restore_job(about)
    target = resize(job, planned.gpus) if planned.gpus else job
    comment = (_summary(planned), explain_in_words(planned))
    if target is None:
        return [Change(START, None, (*comment, "no number of pods makes this size: not changed"))]
    hostnames, note = _choose_hostnames(planned, target, details)
    selector, remark = _choose_selector(planned, target, details)
    note += remark
    if about["workload"] is not None:
        return _with_kueue(planned, job, target, hostnames, details, (*comment, *note))
    if planned.action == "wait":
        return []
    if job.queue is not None:
        words = "left to Kueue: it is in a queue of it and has no workload there"
        return [Change(START, None, (*comment, words))]
    changes = []
    is_unsuspended = not job.is_suspended
    if is_unsuspended:
        stop = job_document(job, True, job.pinned, is_paused=True)
        changes.append(Change(STOP, stop, comment, after=(_wait_for_pods(job),)))
    if planned.gpus:
        start = job_document(target, False, hostnames, selector=selector)
        has_started = (
            is_unsuspended
            or field(job.source, "status", "startTime") is not None
            or bool(job.kind == "JobSet" and job.pinned)
        )
        reset = {"Job": _reset_start, "JobSet": _remove_jobs}.get(job.kind)
        before = (reset(job),) if has_started and reset else ()
        changes.append(Change(START, start, (*comment, *note), before=before))
    return changes


def _with_kueue(
    planned: PlannedJob,
    job: FoundJob,
    target: FoundJob,
    hostnames: Sequence[str],
    details: Mapping[str, Any],
    comment: tuple[str, ...],
) -> list[Change]:
    """Return the changes of a job that Kueue admits: it has the last word, and is asked here."""
    about = details["jobs"][planned.job_id]
    workload = about["workload"]
    check = our_check(workload, details)
    is_active = field(workload, "spec", "active") is not False
    changes = []
    is_resized = target.gpus != job.gpus
    is_resized_in_place = field(job.source, "metadata", "annotations", ELASTIC) == "true"
    if is_resized_in_place and is_resized:
        place = STOP if target.gpus < job.gpus else START
        return [Change(place, job_document(target, None, ()), comment)]
    if is_resized_in_place and planned.action == "grow":
        words = f"it asks Kueue for this size already, which says: {state_in_words(workload)}"
        return [Change(START, None, (*comment, words))]
    if planned.previous_gpus:
        stop = (
            check_answer(workload, check, "Retry", comment[1], details["now_s"])
            if check
            else workload_activity(workload, False)
        )
        place = EVICT if check else STOP
        changes.append(Change(place, stop, comment, after=(_wait_for_pods(job),)))
        is_active = is_active and bool(check)
    if is_resized:
        changes.append(Change(START, job_document(target, True, (), is_paused=False), comment))
    if planned.gpus and not is_active:
        before = (_wait_for_quota(workload),) if is_true(workload, "QuotaReserved") else ()
        changes.append(Change(START, workload_activity(workload, True), comment, before))
    elif check and not planned.previous_gpus:
        may_start = planned.gpus > 0 and not is_resized
        changes += _answer(planned, workload, check, hostnames, details, comment, may_start)
    if planned.gpus and not changes:
        words = state_in_words(workload) or "Kueue has not said anything about it yet"
        changes.append(Change(START, None, (*comment, f"left to Kueue, which says: {words}")))
    return changes


def _answer(
    planned: PlannedJob,
    workload: Object,
    check: str,
    hostnames: Sequence[str],
    details: Mapping[str, Any],
    comment: tuple[str, ...],
    may_start: bool,
) -> list[Change]:
    """Return how the answer about a workload without GPUs changes: nothing while it is right.

    "Ready" needs reserved quota. Kueue refuses other nodes in an answer that is "Ready", so that it
    becomes "Pending" first. An admitted workload is left alone: its pods do not exist yet, or they
    have ended.
    """
    found = next(one for one in workload["status"]["admissionChecks"] if one["name"] == check)
    may_start = may_start and is_true(workload, "QuotaReserved")

    def answer(state: str, *nodes: str) -> dict[str, Any]:
        return check_answer(workload, check, state, _summary(planned), details["now_s"], nodes)

    ready = answer("Ready", *hostnames)
    if found["state"] == "Pending" and may_start:
        return [Change(READY, ready, comment)]
    (wanted,) = ready["status"]["admissionChecks"]
    is_elsewhere = found.get("podSetUpdates") and found["podSetUpdates"] != wanted["podSetUpdates"]
    is_open = found["state"] == "Ready" and not is_true(workload, "Admitted")
    if is_open and (is_elsewhere or not may_start):
        return [Change(EVICT, answer("Pending"), comment)]
    return []


def _send_back(planned: PlannedJob, details: Mapping[str, Any]) -> Change | None:
    """Return the answer that frees the quota of a job of which a pod finds no node, if it is one.

    Whatever the plan says: its quota would be held for nothing. While Kueue evicts it another
    answer would count for its next start.
    """
    about = details["jobs"][planned.job_id]
    workload, check = about["workload"], our_check(about["workload"], details)
    is_stuck = about["unschedulable"] and is_true(workload, "Admitted")
    if check is None or not is_stuck or is_true(workload, "Evicted"):
        return None
    words = f"{planned.job_id}: a pod finds no node, and its quota goes back to Kueue"
    return Change(EVICT, check_answer(workload, check, "Retry", words, details["now_s"]), (words,))


def our_check(workload: Object | None, details: Mapping[str, Any]) -> str | None:
    """Return the admission check of a workload that the allocator answers."""
    ours = set(details.get("checks", ()))
    found = (str(one["name"]) for one in field(workload, "status", "admissionChecks") or ())
    return next((name for name in found if name in ours), None)


def _choose_hostnames(
    planned: PlannedJob, job: FoundJob, details: Mapping[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the hostnames of a job, and a note if the plan's own nodes cannot hold its pods."""
    if not planned.gpus:
        return [], ()
    sizes = {one.gpus for one in job.pod_sets if one.gpus}
    hostnames = details["hostnames"]
    if planned.nodes and all(n % size == 0 for n in planned.nodes.values() for size in sizes):
        return [hostnames[name] for name in planned.nodes], ()
    pool = [hostnames[name] for name in details["pools"].get(planned.pool, ())]
    return pool, ("its pods do not fit the nodes of the plan: any node of the pool will do",)


def _choose_selector(
    planned: PlannedJob, job: FoundJob, details: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the label that names the nodes of a JobSet, and a note if it names further nodes.

    The node selector of a JobSet can change, and its affinity cannot. One label names one node, or
    all nodes that have its value: the label with the fewest nodes is taken.
    """
    if job.kind != "JobSet" or not planned.gpus:
        return {}, ()
    places = details["places"]
    wanted = set(planned.nodes) or set(details["pools"].get(planned.pool, ()))
    common = set.intersection(*(set(places[name].items()) for name in wanted)) if wanted else set()
    holders = {
        pair: {name for name, labels in places.items() if pair in labels.items()} for pair in common
    }
    if not holders:
        return {}, ("no label is common to its nodes: any node will do",)
    label, value = min(holders, key=lambda pair: (len(holders[pair]), pair))
    if holders[label, value] == wanted:
        return {label: value}, ()
    return {label: value}, (f"a JobSet names nodes by one label: any node with {label}={value}",)


def _summary(planned: PlannedJob) -> str:
    def holds(gpus: int, pool: str | None) -> str:
        return f"{gpus} GPUs of {pool}" if gpus else "nothing"

    nodes = ", ".join(f"{name}:{n}" for name, n in planned.nodes.items())
    return (
        f"{planned.job_id}: {planned.action}, {holds(planned.previous_gpus, planned.previous_pool)}"
        f" -> {holds(planned.gpus, planned.pool)}{f' on {nodes}' if nodes else ''}"
    )


def _waiting_words(planned: PlannedJob, details: Mapping[str, Any]) -> str:
    said = state_in_words(details["jobs"][planned.job_id]["workload"])
    return explain_in_words(planned) + (f"; Kueue says: {said}" if said else "")


def _label(job: FoundJob) -> str:
    """Return the label of the pods and Jobs of a job."""
    return f"{LABELS[job.kind]}={job.name}"


def _wait_for_pods(job: FoundJob) -> str:
    """Return the command that waits for the pods; those that have ended stay where they are."""
    options = "--field-selector=status.phase!=Succeeded,status.phase!=Failed --timeout=10m"
    return _command(f"wait --for=delete pod -n {job.namespace} -l {_label(job)} {options}")


def _wait_for_quota(workload: Object) -> str:
    """Return the command without which the workload gets back quota that Kueue gave to others."""
    wait = "wait --for=condition=QuotaReserved=false --timeout=1m"
    return _command(f"{wait} workload {name_of(workload)} -n {namespace_of(workload)}")


def _reset_start(job: FoundJob) -> str:
    """Return the command without which the template of a job that ran before cannot change."""
    words = f"patch job {job.name} -n {job.namespace} --subresource=status --type=merge -p"
    return _command(words, json.dumps({"status": {"startTime": None}}))


def _remove_jobs(job: FoundJob) -> str:
    """Return the command without which the Jobs of a JobSet keep the node selector they had.

    A JobSet that is resumed adds labels to its Jobs, and takes none away; Jobs that are missing are
    made anew.
    """
    return _command(f"delete job -n {job.namespace} -l {_label(job)} --cascade=foreground")


def _command(words: str, *more: str) -> str:
    return shlex.join(("kubectl", *words.split(), *more))


def _apply_command(file: str) -> str:
    part = "--subresource=status" if file in OF_STATUS else ""
    manager = f"--field-manager={MANAGER}"
    return _command(f"apply --server-side --force-conflicts {manager} {part} -f {file}")


def _file(name: str, changes: Sequence[Change], remarks: Sequence[str]) -> str:
    """Return a file: the commands in their order as comments, then the documents."""
    applied = [one for one in changes if one.document is not None]
    commands = [
        *(line for one in changes for line in one.before),
        *([_apply_command(name)] if applied else ()),
        *(line for one in changes for line in one.after),
    ]
    head = [f"{name}: {ABOUT[name]}", *(commands or ["nothing to do"]), *remarks]
    parts = [_comment(head)]
    for change in changes:
        body = "" if change.document is None else yaml_text(change.document)
        parts.append("---\n" + _comment(change.comment) + body)
    return "".join(parts)


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
