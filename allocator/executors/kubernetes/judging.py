"""What became of an allocation, from its Job and its pods; a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.clusters.kubernetes.nodes import gpus_of_pod, is_over
from allocator.clusters.kubernetes.objects import Object, conditions, field, is_true, name_of
from allocator.executors.report import parse
from allocator.loop.executor import Order, Phase

# reasons of pods that the cluster ended, not the job itself
LOST_REASONS = ("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting")
FULL_MESSAGE = 400


@dataclass(frozen=True)
class Verdict:
    """What became of an allocation.

    Parameters
    ----------
    phase : Phase
        What became of it.
    work : float
        Work that is safe, counted from the very first start of the job; 0 if nothing said so.
    detail : str
        A message for users.
    """

    phase: Phase
    work: float = 0.0
    detail: str = ""


def judge(
    order: Order, is_stopping: bool, job: Object | None, pods: Sequence[Object], base: float = 0.0
) -> Verdict:
    """Return what became of an allocation whose Job was seen once.

    As long as a pod may run, the allocation runs, whatever happened to its Job.

    Parameters
    ----------
    order : Order
        The allocation.
    is_stopping : bool
        Whether it was ordered to stop.
    job : mapping, optional
        The Job; None: it is gone.
    pods : sequence of mapping
        Its pods, those included whose Job is gone.
    base : float
        Work of the job that was safe before.
    """
    alive = [pod for pod in pods if not is_over(pod)]
    # the last words of its pods
    reports = (parse(str(ended.get("message", ""))) for pod in pods for ended in _containers(pod))
    work = max((report.safe for report in reports if report), default=0.0)
    if alive:
        return Verdict(Phase.RUNNING, work, _where(order, alive))
    has_ended = job is not None and (is_true(job, "Complete") or is_true(job, "Failed"))
    is_leaving = job is None or field(job, "metadata", "deletionTimestamp") is not None
    if job is not None and not has_ended and not is_leaving:
        return Verdict(Phase.RUNNING, work, "its pods are not there yet")
    has_succeeded = bool(pods) and all(field(pod, "status", "phase") == "Succeeded" for pod in pods)
    has_done_all = work >= base + order.remaining_work
    if job is not None and is_true(job, "Complete"):
        return Verdict(Phase.FINISHED, max(work, base + order.remaining_work), "")
    if is_stopping and has_succeeded and has_done_all:
        return Verdict(Phase.FINISHED, work, "")
    if is_stopping:
        return Verdict(Phase.STOPPED, work, "")
    detail = _why(job, pods)
    was_taken = any(
        field(pod, "status", "reason") in LOST_REASONS or is_true(pod, "DisruptionTarget")
        for pod in pods
    )
    if was_taken or not has_ended:
        return Verdict(Phase.LOST, work, detail or "its Job was deleted, and not by the allocator")
    return Verdict(Phase.FAILED, work, detail)


def difference(wanted: Object, answer: Object) -> str:
    """Return how a Job differs from what was asked for, "" if its GPUs are as asked."""

    def gpus(job: Object) -> dict[str, int]:
        pods = int(field(job, "spec", "parallelism") or 0)
        each = gpus_of_pod(field(job, "spec", "template", "spec"))
        return {name: pods * n for name, n in each.items()}

    asked, got = gpus(wanted), gpus(answer)
    return "" if asked == got else f"asked for {asked}, and the cluster made it {got}"


def _containers(pod: Object) -> Iterable[Object]:
    statuses = field(pod, "status", "containerStatuses") or ()
    for status in (*statuses, *(field(pod, "status", "initContainerStatuses") or ())):
        ended = field(status, "state", "terminated") or field(status, "lastState", "terminated")
        if ended is not None:
            yield ended


def _where(order: Order, alive: Sequence[Object]) -> str:
    """Return where the pods are, if that is not what the plan said."""
    waiting = [pod for pod in alive if not field(pod, "spec", "nodeName")]
    if waiting:
        scheduled = conditions(waiting[0]).get("PodScheduled", {})
        return f"{len(waiting)} of its pods wait: {scheduled.get('message', 'not scheduled yet')}"
    machines = {str(field(pod, "spec", "nodeName")) for pod in alive}
    planned = {part.node.partition("/")[0] for part in order.nodes}
    if planned and machines - planned:
        return f"runs on {', '.join(sorted(machines))}, not on {', '.join(sorted(planned))}"
    return ""


def _why(job: Object | None, pods: Sequence[Object]) -> str:
    for pod in pods:
        message = field(pod, "status", "message") or field(pod, "status", "reason")
        codes = [
            f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode')}"
            for ended in _containers(pod)
            if ended.get("exitCode")
        ]
        if message or codes:
            return f"{name_of(pod)}: {message or codes[0]}"[:FULL_MESSAGE]
    return str(conditions(job or {}).get("Failed", {}).get("message", ""))[:FULL_MESSAGE]
