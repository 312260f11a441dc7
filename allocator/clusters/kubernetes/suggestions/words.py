"""Why a job starts, stops or waits, in the words of Kueue's conditions."""

from __future__ import annotations

from allocator.clusters.adapter import PlannedJob

# reason of a plan -> the condition of Kueue that says the same
_WAITS = {
    "held": "QuotaReserved=False, Inadmissible",
    "no_matching_gpu_type": "QuotaReserved=False, Inadmissible",
    "exceeds_cluster": "QuotaReserved=False, Inadmissible",
    "exceeds_quota": "QuotaReserved=False, Pending: above the quota of its ClusterQueue",
    "quota": "QuotaReserved=False, Pending: insufficient unused quota",
    "capacity": "QuotaReserved=False, Pending: insufficient free GPUs",
    "fragmented": "QuotaReserved=False, Pending: no nodes hold its pods together",
    "outranked": "QuotaReserved=False, Pending: others make better use of the GPUs",
    "budget": "QuotaReserved=False, Pending: above the budget",
}
_CHANGES = {
    "start": "QuotaReserved=True, Admitted=True",
    "grow": "Evicted=True, Preempted: restarted with more GPUs",
    "shrink": "Evicted=True, Preempted: restarted with fewer GPUs",
    "move": "Evicted=True, Preempted: restarted on other nodes",
    "pause": "Evicted=True, Preempted: its GPUs go to others",
}


def explain_in_words(planned: PlannedJob) -> str:
    """Return what Kueue would say about what a plan gives a job.

    Examples
    --------
    >>> explain_in_words(PlannedJob("a", "wait", reason="quota", detail="4 of 4 GPUs are in use"))
    'QuotaReserved=False, Pending: insufficient unused quota (quota: 4 of 4 GPUs are in use)'
    """
    words = _CHANGES.get(planned.action) or _WAITS.get(
        planned.reason or "", "QuotaReserved=False, Pending"
    )
    if planned.action not in ("pause", "wait") or planned.reason is None:
        return words
    return f"{words} ({planned.reason}: {planned.detail or ''})".replace(": )", ")")
