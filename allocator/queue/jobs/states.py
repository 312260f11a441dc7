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
from functools import partial
from typing import Any

from allocator.queue.errors import Refused
from allocator.queue.holdings import Held

Changes = dict[str, Any]
NOTHING: Changes = {"want_pool": "", "want_gpus": 0, "want_host": "", "want_nodes": ""}
FRESH: Changes = {"failures": 0, "retry_at_s": None}
WAITING, NOW = "waiting", "now"  # stand for the state of a job that waits, and for the time
MOVES: Mapping[str, Mapping[str, Changes]] = {
    "hold": {
        "queued paused held": {"state": "held", **NOTHING},
        "running hold": {"request": "hold"},
    },
    "release": {"held": {"state": WAITING}, "queued paused running hold": {"request": ""}},
    "retry": {
        "failed cancelled": {"state": WAITING, "finished_s": None, "park_reason": "", **FRESH},
        "queued paused running hold": {"park_reason": "", **FRESH},
    },
    "cancel": {
        "queued paused held failed": {"state": "cancelled", "finished_s": NOW, **NOTHING},
        "running hold cancel": {"request": "cancel"},
        "cancelled": {},
    },
}
"""What each command changes, by states; "hold" and "cancel" are those of running jobs of which that
was asked. A command is refused in all other states."""
REFUSED = {"hold": "held", "release": "released", "retry": "retried", "cancel": "cancelled"}
WHY = {
    "done": "it is done",
    "cancelled": 'it is cancelled; "retry" brings it back',
    "failed": 'it is parked; "retry" brings it back',
    "held": 'it is held; "release" it first',
    "cancel": "it is being cancelled",
}


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


def waiting_state(job: Any) -> str:
    """Return the state of the job while it waits for GPUs."""
    return "queued" if job.first_started_s is None else "paused"


def move(verb: str, job: Any, now_s: float) -> Changes:
    """Return what a command changes of a job: nothing if it was given before. Raises Refused."""
    stands_for = {WAITING: waiting_state(job), NOW: now_s}
    for states, changes in MOVES[verb].items():
        if (job.request or job.state) in states.split():
            after = {name: stands_for.get(value, value) for name, value in changes.items()}
            return {name: value for name, value in after.items() if getattr(job, name) != value}
    why = WHY.get(job.request or job.state, f"it is {job.state}")
    raise Refused(f'job "{job.job_id}" cannot be {REFUSED[verb]}: {why}')


VERBS = {verb: partial(move, verb) for verb in MOVES}


def state_after_end(
    job: Held, phase: str, at_s: float, worked: bool, detail: str, retries: Retries
) -> Changes:
    """Return the changes of a job whose open allocation has ended.

    Parameters
    ----------
    job : Held
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
        over = {"state": "done", "finished_s": at_s, "remaining_work": 0.0, "request": ""}
        return {**over, **FRESH, **NOTHING}
    changes: Changes = {"state": waiting_state(job), "request": ""}
    if phase == "failed":
        failures = job.failures + 1
        changes |= {"failures": failures, "retry_at_s": at_s + retries.wait_s(failures)}
        if failures >= retries.most:
            words = f"; the last time: {detail}" if detail else ""
            reason = f"failed {failures} times in a row{words}"
            changes |= {"state": "failed", "retry_at_s": None, "park_reason": reason, **NOTHING}
    elif phase == "stopped" and worked and job.failures:
        changes |= FRESH
    if job.request == "cancel":
        over = {"state": "cancelled", "finished_s": at_s, "park_reason": "", "retry_at_s": None}
        changes |= {**over, **NOTHING}
    elif job.request == "hold" and changes["state"] != "failed":
        changes |= {"state": "held", **NOTHING}
    return changes
