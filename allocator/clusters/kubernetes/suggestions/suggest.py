"""A plan as documents for `kubectl apply --server-side`, with the commands as comments."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.clusters.adapter import PlannedJob
from allocator.clusters.kubernetes.api import MANAGER
from allocator.clusters.kubernetes.kueue import state_in_words
from allocator.clusters.kubernetes.objects import Object, field, is_true, name_of, namespace_of
from allocator.clusters.kubernetes.suggestions.documents import (
    check_answer,
    job_document,
    restore_job,
    workload_activity,
)
from allocator.clusters.kubernetes.workloads.jobs import FoundJob, resize
from allocator.objects import Json

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
    document: Object | None
    comment: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def suggest(jobs: Sequence[PlannedJob], details: Object) -> dict[str, str]:
    """Return the files that carry a plan out: what stops first, then what starts.

    Parameters
    ----------
    jobs : sequence of PlannedJob
        What the plan gives every job.
    details : mapping of str to object
        The details of the view from which the snapshot was made.
    """
    changes = list_changes(jobs, details)
    waiting = []
    for planned in jobs:
        if planned.action == "wait":
            state = state_in_words(details["jobs"][planned.job_id]["workload"])
            words = explain_in_words(planned) + (f"; Kueue says: {state}" if state else "")
            waiting.append(f"{planned.job_id}: {words}")
    return {
        file: _file(file, of_file, waiting if file == START else ())
        for file in ABOUT
        if (of_file := [change for change in changes if change.file == file])
        or file in (STOP, START)
    }


def list_changes(jobs: Sequence[PlannedJob], details: Object) -> list[Change]:
    """Return the changes of a plan, in their order."""
    changes = [change for planned in jobs for change in _Job(planned, details).list_changes()]
    return [change for file in ABOUT for change in changes if change.file == file]


class _Job:
    """A job of the cluster, and what a plan gives it."""

    def __init__(self, planned: PlannedJob, details: Object) -> None:
        self.planned = planned
        self.details = details
        self.about = details["jobs"][planned.job_id]
        self.workload = self.about["workload"]
        self.check = our_check(self.workload, details)
        self.comment: tuple[str, ...] = ()

    def change(self, file: str, document: Object | None, *words: str) -> Change:
        return Change(file, document, (*self.comment, *words))

    def answer(self, state: str, message: str, nodes: Sequence[str] = ()) -> Json:
        """Return the document of an answer to the check of the workload."""
        now_s = self.details["now_s"]
        return check_answer(self.workload, self.check or "", state, message, now_s, nodes)

    def list_changes(self) -> list[Change]:
        planned = self.planned
        is_stuck = self.about["unschedulable"] and is_true(self.workload, "Admitted")
        if is_stuck and self.check and not is_true(self.workload, "Evicted"):
            # whatever the plan says: its quota would be held for nothing; while Kueue evicts it
            # another answer would count for its next start
            words = f"{planned.job_id}: a pod finds no node, and its quota goes back to Kueue"
            return [self.change(EVICT, self.answer("Retry", words), words)]
        if planned.action == "keep":
            return []
        self.job = job = restore_job(self.about)
        target = resize(job, planned.gpus) if planned.gpus else job
        self.comment = (_summary(planned), explain_in_words(planned))
        if target is None:
            return [self.change(START, None, "no number of pods makes this size: not changed")]
        hostnames, note = self._choose_hostnames(target)
        selector, remark = self._choose_selector()
        notes = tuple(filter(None, (note, remark)))
        if self.workload is not None:
            self.comment += notes
            return self._list_with_kueue(target, hostnames)
        if planned.action == "wait":
            return []
        if job.queue is not None:
            words = "left to Kueue: it is in a queue of it and has no workload there"
            return [self.change(START, None, words)]
        changes = []
        if not job.is_suspended:
            stop = job_document(job, True, job.pinned, is_paused=True)
            changes.append(Change(STOP, stop, self.comment, after=(_wait_for_pods(job),)))
        if planned.gpus:
            start = job_document(target, False, hostnames, selector=selector)
            has_started = (
                not job.is_suspended
                or field(job.source, "status", "startTime") is not None
                or bool(job.kind == "JobSet" and job.pinned)
            )
            before: tuple[str, ...] = ()
            if has_started and job.kind == "Job":
                # without this command the template of a job that ran before cannot change
                place = f"patch job {job.name} -n {job.namespace} --subresource=status --type=merge"
                before = (_command(f"{place} -p", json.dumps({"status": {"startTime": None}})),)
            elif has_started and job.kind == "JobSet":
                # a JobSet that is resumed adds labels to its Jobs, and takes none away: they would
                # keep the node selector they had; Jobs that are missing are made anew
                before = (_command(f"delete job {_selection(job)} --cascade=foreground"),)
            changes.append(Change(START, start, (*self.comment, *notes), before=before))
        return changes

    def _list_with_kueue(self, target: FoundJob, hostnames: Sequence[str]) -> list[Change]:
        """Return the changes of a job that Kueue admits: it has the last word, and is asked."""
        planned, job, workload = self.planned, self.job, self.workload
        is_active = field(workload, "spec", "active") is not False
        changes = []
        is_resized = target.gpus != job.gpus
        if field(job.source, "metadata", "annotations", ELASTIC) == "true":  # resized in place
            if is_resized:
                place = STOP if target.gpus < job.gpus else START
                return [self.change(place, job_document(target, None, ()))]
            if planned.action == "grow":
                state = state_in_words(workload)
                words = f"it asks Kueue for this size already, which says: {state}"
                return [self.change(START, None, words)]
        if planned.previous_gpus:
            place, stop = STOP, workload_activity(workload, False)
            if self.check:
                place, stop = EVICT, self.answer("Retry", explain_in_words(planned))
            changes.append(Change(place, stop, self.comment, after=(_wait_for_pods(job),)))
            is_active = is_active and bool(self.check)
        if is_resized:
            changes.append(self.change(START, job_document(target, True, (), is_paused=False)))
        if planned.gpus and not is_active:
            before = (_wait_for_quota(workload),) if is_true(workload, "QuotaReserved") else ()
            start = workload_activity(workload, True)
            changes.append(Change(START, start, self.comment, before=before))
        elif self.check and not planned.previous_gpus:
            changes += self._answer(hostnames, bool(planned.gpus) and not is_resized)
        if planned.gpus and not changes:
            words = state_in_words(workload) or "Kueue has not said anything about it yet"
            changes.append(self.change(START, None, f"left to Kueue, which says: {words}"))
        return changes

    def _answer(self, hostnames: Sequence[str], may_start: bool) -> list[Change]:
        """Return how the answer about a workload without GPUs changes: nothing while it is right.

        "Ready" needs reserved quota. Kueue refuses other nodes in an answer that is "Ready", so
        that it becomes "Pending" first. An admitted workload is left alone: its pods do not exist
        yet, or they have ended.
        """
        checks = self.workload["status"]["admissionChecks"]
        answer = next(check for check in checks if check["name"] == self.check)
        may_start = may_start and is_true(self.workload, "QuotaReserved")
        summary = _summary(self.planned)
        ready = self.answer("Ready", summary, hostnames)
        if answer["state"] == "Pending" and may_start:
            return [self.change(READY, ready)]
        nodes, (wanted,) = answer.get("podSetUpdates"), ready["status"]["admissionChecks"]
        is_elsewhere = nodes and nodes != wanted["podSetUpdates"]
        is_open = answer["state"] == "Ready" and not is_true(self.workload, "Admitted")
        if is_open and (is_elsewhere or not may_start):
            return [self.change(EVICT, self.answer("Pending", summary))]
        return []

    def _choose_hostnames(self, target: FoundJob) -> tuple[list[str], str]:
        """Return the hostnames of the job, and a note if the plan's nodes cannot hold its pods."""
        planned = self.planned
        if not planned.gpus:
            return [], ""
        sizes = {pod_set.gpus for pod_set in target.pod_sets if pod_set.gpus}
        hostnames = self.details["hostnames"]
        if planned.nodes and all(n % size == 0 for n in planned.nodes.values() for size in sizes):
            return [hostnames[name] for name in planned.nodes], ""
        pool = self.details["pools"].get(planned.pool, ())
        note = "its pods do not fit the nodes of the plan: any node of the pool will do"
        return [hostnames[name] for name in pool], note

    def _choose_selector(self) -> tuple[dict[str, str], str]:
        """Return the label that names the nodes of a JobSet, and a note if it names further nodes.

        The node selector of a JobSet can change, and its affinity cannot. One label names one node,
        or all nodes that have its value: the label with the fewest nodes is taken.
        """
        planned, places = self.planned, self.details["places"]
        if self.job.kind != "JobSet" or not planned.gpus:
            return {}, ""
        wanted = set(planned.nodes) or set(self.details["pools"].get(planned.pool, ()))
        pairs = [set(places[name].items()) for name in wanted]
        holders = {
            pair: {name for name, labels in places.items() if pair in labels.items()}
            for pair in (set.intersection(*pairs) if pairs else ())
        }
        if not holders:
            return {}, "no label is common to its nodes: any node will do"
        label, value = min(holders, key=lambda pair: (len(holders[pair]), pair))
        is_exact = holders[label, value] == wanted
        note = f"a JobSet names nodes by one label: any node with {label}={value}"
        return {label: value}, "" if is_exact else note


def our_check(workload: Object | None, details: Object) -> str | None:
    """Return the admission check of a workload that the allocator answers."""
    ours = set(details.get("checks", ()))
    names = (str(check["name"]) for check in field(workload, "status", "admissionChecks") or ())
    return next((name for name in names if name in ours), None)


def _summary(planned: PlannedJob) -> str:
    def holds(gpus: int, pool: str | None) -> str:
        return f"{gpus} GPUs of {pool}" if gpus else "nothing"

    nodes = ", ".join(f"{name}:{n}" for name, n in planned.nodes.items())
    return (
        f"{planned.job_id}: {planned.action}, {holds(planned.previous_gpus, planned.previous_pool)}"
        f" -> {holds(planned.gpus, planned.pool)}{f' on {nodes}' if nodes else ''}"
    )


def _selection(job: FoundJob) -> str:
    """Return the words that select the pods and Jobs of a job."""
    return f"-n {job.namespace} -l {LABELS[job.kind]}={job.name}"


def _wait_for_pods(job: FoundJob) -> str:
    """Return the command that waits for the pods; those that have ended stay where they are."""
    options = "--field-selector=status.phase!=Succeeded,status.phase!=Failed --timeout=10m"
    return _command(f"wait --for=delete pod {_selection(job)} {options}")


def _wait_for_quota(workload: Object) -> str:
    """Return the command without which the workload gets back quota that Kueue gave to others."""
    wait = "wait --for=condition=QuotaReserved=false --timeout=1m"
    return _command(f"{wait} workload {name_of(workload)} -n {namespace_of(workload)}")


def _command(words: str, *more: str) -> str:
    return shlex.join(("kubectl", *words.split(), *more))


def _file(name: str, changes: Sequence[Change], remarks: Sequence[str]) -> str:
    """Return a file: the commands in their order as comments, then the documents."""
    commands = [line for change in changes for line in change.before]
    if any(change.document is not None for change in changes):
        part = "--subresource=status" if name in OF_STATUS else ""
        manager = f"--field-manager={MANAGER}"
        commands.append(
            _command(f"apply --server-side --force-conflicts {manager} {part} -f {name}")
        )
    commands += [line for change in changes for line in change.after]
    head = [f"{name}: {ABOUT[name]}", *(commands or ["nothing to do"]), *remarks]
    parts = [_comment(head)]
    for change in changes:
        body = "" if change.document is None else yaml_text(change.document)
        parts.append("---\n" + _comment(change.comment) + body)
    return "".join(parts)


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


_WORDS = {
    "start": "the plan starts it",
    "grow": "restarted with more GPUs",
    "shrink": "restarted with fewer GPUs",
    "move": "restarted on other nodes",
    "pause": "its GPUs go to others",
    "wait": "it waits",
}


def explain_in_words(planned: PlannedJob) -> str:
    """Return what a plan does with a job, and its reason where the job gets nothing.

    Examples
    --------
    >>> explain_in_words(PlannedJob("a", "wait", reason="quota", detail="4 of 4 GPUs are in use"))
    'it waits (quota: 4 of 4 GPUs are in use)'
    """
    words = _WORDS[planned.action]
    if planned.action not in ("pause", "wait") or planned.reason is None:
        return words
    return f"{words} ({planned.reason}: {planned.detail or ''})".replace(": )", ")")


# begins with a letter, and is no word that some version of YAML takes for another value
_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z][A-Za-z0-9_./-]*", re.I)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return json.dumps(value)


def yaml_text(value: Any, indent: str = "") -> str:
    """Return a value of JSON as a block of YAML, each line with an end.

    Examples
    --------
    >>> print(yaml_text({"spec": {"suspend": True, "args": ["a", "no"]}}), end="")
    spec:
      suspend: true
      args:
        - a
        - "no"
    """
    if isinstance(value, Mapping) and value:
        return "".join(
            _entry(f"{indent}{_scalar(key)}:", inner, indent) for key, inner in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(_item(inner, indent) for inner in value)
    return f"{indent}{_scalar(value)}\n"


def _entry(start: str, value: Any, indent: str) -> str:
    if isinstance(value, Mapping | list) and value:
        return f"{start}\n{yaml_text(value, indent + '  ')}"
    return f"{start} {_scalar(value)}\n"


def _item(value: Any, indent: str) -> str:
    """Return a value as an item of a YAML list: a hyphen stands before its first line."""
    block = yaml_text(value, indent + "  ")
    return f"{indent}- {block[len(indent) + 2 :]}"
