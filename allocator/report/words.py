"""Sentences about the results: which policy is best where, by how much, and at which price."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from allocator.report.measures import (
    BY_KEY,
    OF_FINISHED,
    SENTENCE,
    duration,
    interval,
    number,
    percent,
)
from allocator.report.runs import POOLED, MetricChange, Study

MAIN = "jct_s_mean"
ELSEWHERE = ("queue_s_mean", "efficiency_mean", "jct_s_p99", "makespan_s", "ftf_max")


def headline(study: Study, workload: str) -> Markup:
    """Return HTML: which policy completes jobs soonest, where, by how much, and at which price."""
    policies = study.policies(workload)
    loads = study.loads(workload)
    if len(policies) == 1:
        return Markup(_compare_single(study, workload, policies[0]))
    won: dict[str, list[str]] = {}
    for load in loads:
        winner = best(study, workload, load, MAIN)
        if winner is not None:
            won.setdefault(winner, []).append(load)
    if not won:
        return Markup(f"On {escape(workload)} no policy completes jobs sooner than the others.")
    parts = [
        f"<b>{escape(policy)}</b>{_where(study, workload, policy, where)}"
        for policy, where in won.items()
    ]
    text = f"On {escape(workload)} jobs are done soonest, on average, under {'; '.join(parts)}."
    return Markup(
        text
        + "".join(_price(study, workload, p) for p in won if p != study.baseline)
        + _others(study, workload)
    )


def compare_policies(study: Study, workload: str) -> list[Markup]:
    """Return HTML, one text per policy: where it is better or worse than the baseline."""
    return [
        Markup(text)
        for p in study.policies(workload)
        if p != study.baseline
        for text in (_policy(study, workload, p),)
        if text
    ]


def complete(study: Study, workload: str, load: str, policy: str) -> bool:
    """Return whether the policy finished as many jobs as the best policy at that load."""
    done = {
        p: sum(r.metrics.get("finished", 0.0) for r in study.of(workload, load, p))
        for p in study.policies(workload)
    }
    return done.get(policy, 0.0) >= max(done.values(), default=0.0)


def best(study: Study, workload: str, load: str, key: str) -> str | None:
    """Return the policy with the best mean at that load.

    None if no policy has a mean, or all have the same. Some metrics count finished jobs only. In
    these, a policy that left more jobs unfinished than others cannot be best.
    """
    side = BY_KEY[key].better
    values = {
        p: v
        for p in study.policies(workload)
        for v in (study.mean(workload, load, p, key),)
        if math.isfinite(v) and (key not in OF_FINISHED or complete(study, workload, load, p))
    }
    if not side or len(values) < 2 or max(values.values()) == min(values.values()):
        return None
    return max(values, key=lambda p: side * values[p])


def _where(study: Study, workload: str, policy: str, loads: Sequence[str]) -> str:
    """Return text such as " at load 0.3 (−16 % against greedy) and 0.36 (−33 %)"."""
    said: list[str] = []
    for load in loads:
        c = study.change(workload, load, policy, MAIN)
        words = ""
        if c is not None and math.isfinite(c.percent):
            undecided = ", undecided" if c.verdict == "open" and not study.single else ""
            ground = f" against {escape(study.baseline)}" if not said else ""
            span = f" {interval(c.low, c.high)}" if math.isfinite(c.low) else ""
            words = f" ({percent(c.percent)} %{span}{ground}{undecided})"
        said.append(f"{escape(load)}{words}")
    return (" at load " if loads != [""] else "") + _list(said)


def _price(study: Study, workload: str, policy: str) -> str:
    """Return in which metrics the best policy is worse."""
    lost = [
        _describe_change(c)
        for c in _changes(study, workload, policy)
        if _verdict(study, c) == "worse"
    ]
    return f" The price, for {escape(policy)}: {_list(lost)}." if lost else ""


def _others(study: Study, workload: str) -> str:
    """Return which policies are best in other metrics than completion time."""
    parts = []
    loads = study.loads(workload)
    for key in ELSEWHERE:
        ahead: dict[str, list[str]] = {}
        for load in loads:
            leader = best(study, workload, load, key)
            if leader is not None and leader != best(study, workload, load, MAIN):
                ahead.setdefault(leader, []).append(load)
        names = [
            escape(p) + (f" at load {_list(where)}" if len(where) < len(loads) else "")
            for p, where in ahead.items()
        ]
        if names:
            parts.append(f"{BY_KEY[key].title} ({', '.join(names)})")
    return f" Others have better means in {_list(parts)}." if parts else ""


def _changes(study: Study, workload: str, policy: str) -> list[MetricChange]:
    """Return the changes that the sentences describe.

    If there are several loads, they are those over all loads together. Changes of metrics that are
    always 0, such as dollars if GPUs have no price, are left out.
    """
    at = _overall_load(study, workload)
    found = (study.change(workload, at, policy, key) for key in SENTENCE)
    return [
        c
        for c in found
        if c is not None and math.isfinite(c.percent) and (c.percent, c.low, c.high) != (0, 0, 0)
    ]


def _overall_load(study: Study, workload: str) -> str:
    pooled = any(c.load == POOLED and c.workload == workload for c in study.changes)
    return POOLED if pooled else study.loads(workload)[0]


def _verdict(study: Study, change: MetricChange) -> str:
    """Return better, worse or open.

    For a single simulation it is the direction of the change, if that is more than rounding.
    """
    if not study.single:
        return change.verdict
    if abs(change.percent) < 0.05:
        return "same"
    return "better" if (change.percent > 0) == (BY_KEY[change.metric].better > 0) else "worse"


def _compare_single(study: Study, workload: str, policy: str) -> str:
    parts = []
    for load in study.loads(workload):
        runs = study.of(workload, load, policy)
        done, jobs = (sum(r.metrics.get(k, 0.0) for r in runs) for k in ("finished", "jobs"))
        at = f" at load {load}" if load else ""
        words = [f"{number(done, 12)} of {number(jobs, 12)} jobs done{at}"]
        for key, text in ((MAIN, "mean completion time"), ("queue_s_mean", "mean queueing")):
            value = study.mean(workload, load, policy, key)
            if math.isfinite(value):
                words.append(f"{text} {duration(value)}")
        share = study.mean(workload, load, policy, "utilisation")
        if math.isfinite(share):
            words.append(f"utilisation {100 * share:.0f} %")
        parts.append(", ".join(words))
    return f"<b>{escape(policy)}</b> on {escape(workload)}: {'; '.join(parts)}."


def _policy(study: Study, workload: str, policy: str) -> str:
    """Return one policy against the baseline: where it is better, worse or undecided."""
    at = _overall_load(study, workload)
    by: dict[str, list[str]] = {}
    for change in _changes(study, workload, policy):
        by.setdefault(_verdict(study, change), []).append(_describe_change(change))
    where = (
        f", {study.together(workload)} together" if at == POOLED else f", load {at}" if at else ""
    )
    parts = [
        f"{words} {_list(by[verdict])}"
        for verdict, words in (
            ("better", "better in"),
            ("worse", "worse in"),
            ("open", "undecided:"),
        )
        if verdict in by
    ]
    if not parts:
        return ""
    return (
        f"<b>{escape(policy)}</b> against {escape(study.baseline)}{where}: {'; '.join(parts)}."
        + (_exceptions(study, workload, policy, at) if at == POOLED else "")
    )


def _describe_change(change: MetricChange) -> str:
    title = BY_KEY[change.metric].title
    span = f" {interval(change.low, change.high)}" if math.isfinite(change.low) else ""
    return f"{title} {percent(change.percent)} %{span}"


def _exceptions(study: Study, workload: str, policy: str, pooled: str) -> str:
    """Return the loads at which the verdict differs from the pooled one.

    They have the opposite verdict, or a clear one where the pooled one is open.
    """
    found = []
    for key in SENTENCE:
        whole = study.change(workload, pooled, policy, key)
        for load in study.loads(workload):
            c = study.change(workload, load, policy, key)
            if c is not None and whole is not None and c.verdict not in ("open", whole.verdict):
                found.append(f"{c.verdict} in {_describe_change(c)} at load {load}")
    return f" Not everywhere alike: {_list(found)}." if found else ""


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
