"""One job in plain words: where it stands, why, what would help, and when it may start.

llm-tune waits: the budget of 18 $/h goes to jobs of more value. It would get 4 x a100
with 2.90 $/h more. Expected start: in about 35 min (when vgg-2 and bert-1 end).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from allocator.domain.findings import join_words
from allocator.engine.advice.change import VerifiedChange
from allocator.engine.advice.start import StartEstimate
from allocator.engine.expected_words import format_duration
from allocator.engine.reasons import parse_lacks

WHY = {
    "no_matching_gpu_type": "no pool has a GPU type that it may use and that it has a speed for",
    "exceeds_cluster": "no pool can hold a size that it may have",
    "exceeds_quota": 'every size that it could use is above the limits of tenant "{tenant}"',
    "protected": "the GPUs that it could use are held by jobs that may not be moved",
    "budget": "the budget of {budget:g} $/h goes to jobs of more value",
    "quota": 'what tenant "{tenant}" may have goes to its jobs of more value',
    "capacity": "the GPUs that are left are too few for any size that it may have",
    "fragmented": "the GPUs that are left are on too many nodes",
    "not_evaluated": "the policy {policy} does not give it more",
}
LIMITS = {
    "budget": "the budget of {budget:g} $/h",
    "quota": 'what tenant "{tenant}" may have',
    "GPUs": "the GPUs",
    "max_changes": "the changes that max_changes allows",
}
FIRST = {"budget": ("budget",), "quota": ("quota",), "capacity": ("capacity",)}


def summary(
    got: Mapping[str, Any],
    policy: str,
    budget: float,
    changes: Sequence[VerifiedChange],
    start: StartEstimate | None,
) -> str:
    """Return the first line of an explanation.

    Parameters
    ----------
    got : mapping
        The job's entry of the plan.
    policy : str
        Policy that decided.
    budget : float
        US dollars per hour of the round, inf = none.
    changes : sequence of VerifiedChange
        Verified changes that give the job more.
    start : StartEstimate or None
        The estimate for a job that got nothing, None = not known.
    """
    code = got["reason"]
    if code is None:
        return describe_outcome(got, policy, budget)
    sentences = [describe_outcome(got, policy, budget), _describe_change(code, changes)]
    if not got["pool"]:
        sentences.append(f"Expected start: {_describe_start(start)}.")
    return " ".join(filter(None, sentences))


def describe_outcome(got: Mapping[str, Any], policy: str, budget: float) -> str:
    """Return in one sentence what a plan gives a job, and why not more.

    The parameters are those of `summary`.
    """
    why = "it has all it can use" if got["pool"] else "it needs nothing"
    if got["reason"] is not None:
        why = _describe_reason(got, policy, budget)
    return f"{_describe_allocation(got)}: {why}."


def _describe_allocation(got: Mapping[str, Any]) -> str:
    job = got["job_id"]
    colocated = f" next to {got['shared_with']}" if got["shared_with"] else ""
    if not got["pool"]:
        if got["reason"] == "held" and not got["detail"].startswith("waits"):
            return f"{job} is on hold"
        return f"{job} is paused" if got["action"] == "pause" else f"{job} waits"
    to = {"start": " on", "keep": ""}.get(got["action"], " to")
    return f"{job} {got['action']}s{to} {got['gpus']} x {got['pool']}{colocated}"


def _describe_reason(got: Mapping[str, Any], policy: str, budget: float) -> str:
    code: str = got["reason"]
    words = {"tenant": got["tenant"], "budget": budget, "policy": policy}
    more = "it could use more, but " if got["pool"] else ""
    if code == "held":
        waits = got["detail"].startswith("waits")
        return f"it {got['detail']}, not done yet" if waits else "nobody has released it"
    if code != "outranked":
        return more + WHY[code].format(**words)
    limits = parse_lacks(got["detail"])
    if not limits and "no work" in got["detail"]:
        return f"{more}{got['detail']}"
    what = [LIMITS[name].format(**words) for name in limits] or ["what it needs"]
    goes = "go" if len(what) > 1 or limits in (("GPUs",), ("max_changes",)) else "goes"
    return f"{more}{join_words(what)} {goes} to jobs of more value"


def _describe_change(code: str, changes: Sequence[VerifiedChange]) -> str:
    if not changes:
        return "No single change was found that helps it."
    kinds = FIRST.get(code, ())
    change = min(changes, key=lambda c: c.kind not in kinds)
    colocated = f" next to {change.shared_with}" if change.shared_with else ""
    if change.kind == "release":
        return f"Released, it would get {change.gpus} x {change.pool}{colocated}."
    return f"It would get {change.gpus} x {change.pool}{colocated} with {_describe_values(change)}."


def _describe_values(change: VerifiedChange) -> str:
    if change.kind == "budget" and len(change.values) == 1:
        (new,), (old,) = change.values.values(), change.before.values()
        try:
            return f"{float(new) - float(old):.2f} $/h more"
        except ValueError:
            pass
    return change.what


def _describe_start(start: StartEstimate | None) -> str:
    if start is None:
        return "not known"
    names = list(start.after)
    who = " and ".join(names) if len(names) <= 2 else f"{names[-1]} and {len(names) - 1} others"
    begin = (
        f"in about {format_duration(start.in_s)} (when {who} end{'s' if len(names) == 1 else ''}),"
    )
    if math.isnan(start.range_s[0]):
        return f"{begin} if jobs take as long as is assumed of them"
    low, high = map(format_duration, start.range_s)
    return f"{begin} {low} to {high} in 90 % of cases"
