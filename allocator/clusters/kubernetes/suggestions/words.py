"""Why a job starts, stops or waits, in plain words."""

from __future__ import annotations

from allocator.clusters.adapter import PlannedJob

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
