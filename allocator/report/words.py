"""What the numbers say, in sentences made from them: who wins where, by how much, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from allocator.report.measures import BY_KEY, OF_FINISHED, SENTENCE, duration, number, percent
from allocator.report.runs import POOLED, Change, Study

MAIN = "jct_s_mean"


def headline(study: Study) -> list[str]:
    """HTML paragraphs: first who is best where, then each policy against the baseline."""
    out = []
    for workload in study.workloads():
        out += [f"<p class=lead>{text}</p>" for text in (_winners(study, workload),) if text]
        out += [f"<p>{text}</p>" for p in study.policies(workload) if p != study.baseline
                for text in (_policy(study, workload, p),) if text]
    return out


def mean(study: Study, workload: str, load: str, policy: str, key: str) -> float:
    """Mean over the seeds that have a value, nan if none has."""
    values = [v for r in study.of(workload, load, policy) for v in (r.metrics.get(key, math.nan),) if math.isfinite(v)]
    return sum(values) / len(values) if values else math.nan


def complete(study: Study, workload: str, load: str, policy: str) -> bool:
    """Whether the policy finished as many jobs as the best there."""
    done = {p: sum(r.metrics.get("finished", 0.0) for r in study.of(workload, load, p))
            for p in study.policies(workload)}
    return done.get(policy, 0.0) >= max(done.values(), default=0.0)


def best(study: Study, workload: str, load: str, key: str) -> str | None:
    """The policy with the best mean there, None if nobody has one or all have the same. Where a policy left more
    jobs undone than others, it cannot be best in what only finished jobs are asked."""
    side = BY_KEY[key].better
    values = {p: v for p in study.policies(workload) for v in (mean(study, workload, load, p, key),)
              if math.isfinite(v) and (key not in OF_FINISHED or complete(study, workload, load, p))}
    if not side or len(values) < 2 or max(values.values()) == min(values.values()):
        return None
    return max(values, key=lambda p: side * values[p])


def _winners(study: Study, workload: str) -> str:
    policies, loads = study.policies(workload), study.loads(workload)
    if len(policies) == 1:
        return _alone(study, workload, policies[0])
    by: dict[str, list[str]] = {}
    for load in loads:
        winner = best(study, workload, load, MAIN)
        if winner is not None:
            by.setdefault(winner, []).append(load)
    if not by:
        return f"On {escape(workload)} no policy completes jobs sooner than the others."
    parts = []
    for policy, won in by.items():
        runner = [c for load in won for c in (study.change(workload, load, policy, MAIN),)
                  if c is not None and math.isfinite(c.percent)]
        where = f" at load{'s' * (len(won) > 1)} {', '.join(won)}" if won != [""] and len(loads) > 1 else ""
        parts.append(f"<b>{escape(policy)}</b>{where}" + (f" ({_span(runner)})" if runner else ""))
    return f"On {escape(workload)}, jobs are done soonest on average under {'; '.join(parts)}."


def _span(changes: Sequence[Change]) -> str:
    """"25 % to 31 % less time than the baseline"."""
    values = sorted(c.percent for c in changes)
    less = values[-1] <= 0
    ends = list(dict.fromkeys(percent(abs(v) if less else v, sign=not less) for v in (values[-1], values[0])))
    return f"mean completion time {' to '.join(ends)} % {'lower than' if less else 'against'} the baseline's"


def _alone(study: Study, workload: str, policy: str) -> str:
    parts = []
    for load in study.loads(workload):
        runs = study.of(workload, load, policy)
        done, jobs = (sum(r.metrics.get(k, 0.0) for r in runs) for k in ("finished", "jobs"))
        at = f" at load {load}" if load else ""
        words = [f"{number(done, 12)} of {number(jobs, 12)} jobs done{at}"]
        for key, text in ((MAIN, "mean completion time"), ("queue_s_mean", "mean queueing")):
            value = mean(study, workload, load, policy, key)
            if math.isfinite(value):
                words.append(f"{text} {duration(value)}")
        share = mean(study, workload, load, policy, "utilisation")
        if math.isfinite(share):
            words.append(f"utilisation {100 * share:.0f} %")
        parts.append(", ".join(words))
    return f"<b>{escape(policy)}</b> on {escape(workload)}: {'; '.join(parts)}."


def _policy(study: Study, workload: str, policy: str) -> str:
    """One policy against the baseline: where it is better, where it is worse, what stays open."""
    loads = study.loads(workload)
    at = POOLED if any(c.load == POOLED and c.workload == workload for c in study.changes) else loads[0]
    better: list[str] = []
    worse: list[str] = []
    undecided: list[str] = []
    for key in SENTENCE:
        change = study.change(workload, at, policy, key)
        if change is None or not math.isfinite(change.percent):
            continue
        if study.single:
            judged = (change.percent > 0) == (BY_KEY[key].better > 0)
            if abs(change.percent) >= 0.05:
                (better if judged else worse).append(_said(change))
            continue
        {"better": better, "worse": worse}.get(change.verdict, undecided).append(_said(change))
    if not (better or worse or undecided):
        return ""
    where = f", all {len(loads)} loads together" if at == POOLED else f", load {at}" if at else ""
    text = f"<b>{escape(policy)}</b> against {escape(study.baseline)} on {escape(workload)}{where}: "
    parts = [f"{word} {_list(found)}" for word, found in
             (("better in", better), ("worse in", worse), ("undecided:", undecided)) if found]
    return text + "; ".join(parts) + "." + (_exceptions(study, workload, policy, at) if at == POOLED else "")


def _said(change: Change) -> str:
    title = BY_KEY[change.metric].title
    span = f" [{percent(change.low)}, {percent(change.high)}]" if math.isfinite(change.low) else ""
    return f"{title} {percent(change.percent)} %{span}"


def _exceptions(study: Study, workload: str, policy: str, pooled: str) -> str:
    """Loads at which the verdict is the opposite of the pooled one, or clear where the pooled one is open."""
    found = []
    for key in SENTENCE:
        whole = study.change(workload, pooled, policy, key)
        for load in study.loads(workload):
            c = study.change(workload, load, policy, key)
            if c is not None and whole is not None and c.verdict not in ("open", whole.verdict):
                found.append(f"{c.verdict} in {_said(c)} at load {load}")
    return f" Not everywhere alike: {_list(found)}." if found else ""


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
