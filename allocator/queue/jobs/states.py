"""The life of a job: what each command and each end of an allocation changes, as pure functions.

    queued      the job has never run
    running     an allocation of the job is open
    paused      the job has run and holds nothing
    held        its owner holds it back; it gets nothing
    done        all its work is done
    cancelled   its owner cancelled it; "retry" brings it back
    failed      it failed too often and is parked; "retry" brings it back

A job with an open allocation stays "running" until the end of the allocation is known. What its
owner asks for in the meantime is in `request` ("hold", "cancel") and takes effect then. So a job is
in one state at any time, and a job in any state other than running holds no GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from allocator.queue.errors import Refused

Changes = dict[str, Any]
NOTHING: Mapping[str, Any] = {
    "want_pool": "",
    "want_gpus": 0,
    "want_host": "",
    "want_nodes": "",
}


class JobFacts(Protocol):
    """The facts about a job that decide its next state."""

    @property
    def job_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def request(self) -> str: ...
    @property
    def first_started_s(self) -> float | None: ...
    @property
    def failures(self) -> int: ...
    @property
    def retry_at_s(self) -> float | None: ...


@dataclass(frozen=True)
class Retries:
    """The pauses after failures.

    After the n-th failure in a row a job waits first_s x factor^(n-1) seconds, at most most_s.
    After `most` failures in a row it is parked. An allocation that did some work and stopped as
    ordered ends the row.
    """

    most: int = 5
    first_s: float = 30.0
    factor: float = 2.0
    most_s: float = 3600.0

    def wait_s(self, failures: int) -> float:
        """Return the seconds between this failure in a row (1, 2 ...) and the next try."""
        return float(min(self.most_s, self.first_s * self.factor ** min(failures - 1, 60)))


def waiting_state(job: JobFacts) -> str:
    """Return the state of the job while it waits for GPUs."""
    return "queued" if job.first_started_s is None else "paused"


def hold(job: JobFacts, _now_s: float) -> Changes:
    """Hold a job back; a running job is stopped first."""
    if job.state == "held" or job.request == "hold":
        return {}
    if job.state == "running" and job.request == "":
        return {"request": "hold"}
    if job.state in ("queued", "paused"):
        return {"state": "held", **NOTHING}
    raise _refuse(job, "held")


def release(job: JobFacts, _now_s: float) -> Changes:
    """Undo hold."""
    if job.state == "held":
        return {"state": waiting_state(job)}
    if job.request == "hold":
        return {"request": ""}
    if job.state in ("queued", "paused") or (job.state == "running" and job.request == ""):
        return {}
    raise _refuse(job, "released")


def cancel(job: JobFacts, now_s: float) -> Changes:
    """End a job; a running job is stopped first."""
    if job.state == "cancelled" or job.request == "cancel":
        return {}
    if job.state == "running":
        return {"request": "cancel"}
    if job.state in ("queued", "paused", "held", "failed"):
        return {"state": "cancelled", "finished_s": now_s, **NOTHING}
    raise _refuse(job, "cancelled")


def retry(job: JobFacts, _now_s: float) -> Changes:
    """Bring a parked or cancelled job back, or end the waiting time of one that failed."""
    fresh: Changes = {"failures": 0, "retry_at_s": None, "park_reason": ""}
    if job.state in ("failed", "cancelled"):
        return {"state": waiting_state(job), "finished_s": None, **fresh}
    if job.state in ("queued", "paused") or (job.state == "running" and job.request != "cancel"):
        return fresh if job.failures or job.retry_at_s is not None else {}
    raise _refuse(job, "retried")


VERBS = {"hold": hold, "release": release, "retry": retry, "cancel": cancel}


def state_after_end(
    job: JobFacts, phase: str, at_s: float, worked: bool, detail: str, retries: Retries
) -> Changes:
    """Return the changes of a job whose open allocation has ended.

    Parameters
    ----------
    job : JobFacts
        The job before the end.
    phase : str
        How the allocation ended: stopped, finished, failed or lost. A lost machine does not count
        as a failure of the job.
    at_s : float
        Time of the end in seconds.
    worked : bool
        The allocation did some work.
    detail : str
        Reason of the end, for a parked job.
    retries : Retries
        The pauses after failures.
    """
    if phase == "finished":
        return {
            "state": "done",
            "finished_s": at_s,
            "remaining_work": 0.0,
            "request": "",
            "failures": 0,
            "retry_at_s": None,
            **NOTHING,
        }
    changes: Changes = {"state": waiting_state(job), "request": ""}
    if phase == "failed":
        failures = job.failures + 1
        changes["failures"] = failures
        if failures >= retries.most:
            changes |= {
                "state": "failed",
                "retry_at_s": None,
                "park_reason": (
                    f"failed {failures} times in a row"
                    + (f"; the last time: {detail}" if detail else "")
                ),
                **NOTHING,
            }
        else:
            changes["retry_at_s"] = at_s + retries.wait_s(failures)
    elif phase == "stopped" and worked and job.failures:
        changes |= {"failures": 0, "retry_at_s": None}
    if job.request == "cancel":
        changes |= {
            "state": "cancelled",
            "finished_s": at_s,
            "park_reason": "",
            "retry_at_s": None,
            **NOTHING,
        }
    elif job.request == "hold" and changes["state"] != "failed":
        changes |= {"state": "held", **NOTHING}
    return changes


def _refuse(job: JobFacts, word: str) -> Refused:
    why = {
        "done": "it is done",
        "cancelled": 'it is cancelled; "retry" brings it back',
        "failed": 'it is parked; "retry" brings it back',
        "held": 'it is held; "release" it first',
    }
    state = (
        "it is being cancelled"
        if job.request == "cancel"
        else why.get(job.state, f"it is {job.state}")
    )
    return Refused(f'job "{job.job_id}" cannot be {word}: {state}')
