"""Sentences about the results: which policy is best where, by how much, and at which price."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from allocator.domain.findings import join_words
from allocator.report.measures import BY_KEY, OF_FINISHED, SENTENCE, duration, number
from allocator.report.runs import POOLED, MetricChange, Study

MAIN = "jct_s_mean"
ELSEWHERE = ("queue_s_mean", "efficiency_mean", "jct_s_p99", "makespan_s", "ftf_max")
VERDICTS = {"better": "better in", "worse": "worse in", "open": "undecided:"}


def headline(work: Study) -> Markup:
    """Return HTML: which policy completes jobs soonest, where, by how much, and at which price."""
    if len(work.policies) == 1:
        return Markup(_describe_single(work, work.policies[0]))
    won = _list_winners(work, MAIN)
    if not won:
        return Markup(f"On {escape(work.name)} no policy completes jobs sooner than the others.")
    parts = [f"<b>{escape(policy)}</b>{_where(work, policy, at)}" for policy, at in won.items()]
    text = f"On {escape(work.name)} jobs are done soonest, on average, under {'; '.join(parts)}."
    for policy in won:
        lost = [_describe(c) for c in _list_changes(work, policy) if _judge(work, c) == "worse"]
        text += f" The price, for {escape(policy)}: {join_words(lost)}." if lost else ""
    return Markup(text + _describe_others(work))


def compare_policies(work: Study) -> Iterator[Markup]:
    """Yield HTML, one text per policy: where it is better or worse than the baseline."""
    at = _find_overall_load(work)
    where = f", {work.together} together" if at == POOLED else f", load {at}" if at else ""
    for policy in work.policies:
        by = defaultdict[str, list[str]](list)
        for change in _list_changes(work, policy):
            by[_judge(work, change)].append(_describe(change))
        parts = [
            f"{words} {join_words(by[verdict])}"
            for verdict, words in VERDICTS.items()
            if verdict in by
        ]
        if parts:
            text = f"<b>{escape(policy)}</b> against {escape(work.baseline)}{where}: "
            yield Markup(f"{text}{'; '.join(parts)}.{_describe_exceptions(work, policy)}")


def is_complete(work: Study, load: str, policy: str) -> bool:
    """Return whether the policy finished as many jobs as the best policy at that load."""
    done = {p: work.sum(load, p, "finished") for p in work.policies}
    return done.get(policy, 0.0) >= max(done.values(), default=0.0)


def find_best(work: Study, load: str, key: str) -> str | None:
    """Return the policy with the best mean at that load.

    None if no policy has a mean, or all have the same. Some metrics count finished jobs only. In
    these, a policy that left more jobs unfinished than others cannot be best.
    """
    side = BY_KEY[key].better
    means = {policy: work.mean(load, policy, key) for policy in work.policies}
    values = {
        policy: mean
        for policy, mean in means.items()
        if math.isfinite(mean) and (key not in OF_FINISHED or is_complete(work, load, policy))
    }
    if not side or len(values) < 2 or max(values.values()) == min(values.values()):
        return None
    return max(values, key=lambda policy: side * values[policy])


def _list_winners(work: Study, key: str) -> dict[str, list[str]]:
    """Return the loads at which each policy has the best mean."""
    won = defaultdict[str, list[str]](list)
    for load in work.loads:
        if (best := find_best(work, load, key)) is not None:
            won[best].append(load)
    return won


def _where(work: Study, policy: str, loads: Sequence[str]) -> str:
    """Return text such as " at load 0.3 (−16 % against greedy) and 0.36 (−33 %)"."""
    parts: list[str] = []
    for load in loads:
        change = work.change(load, policy, MAIN)
        words = ""
        if change is not None:
            undecided = ", undecided" * (change.verdict == "open" and not work.single)
            ground = f" against {escape(work.baseline)}" if not parts else ""
            words = f" ({change.words}{ground}{undecided})"
        parts.append(f"{escape(load)}{words}")
    return (" at load " if loads != [""] else "") + join_words(parts)


def _describe_others(work: Study) -> str:
    """Return which policies are best in other metrics than completion time."""
    parts = []
    first = _list_winners(work, MAIN)
    for key in ELSEWHERE:
        ahead = {
            policy: others
            for policy, loads in _list_winners(work, key).items()
            if (others := [load for load in loads if load not in first.get(policy, ())])
        }
        names = [
            escape(policy)
            + (f" at load {join_words(where)}" if len(where) < len(work.loads) else "")
            for policy, where in ahead.items()
        ]
        if names:
            parts.append(f"{BY_KEY[key].title} ({', '.join(names)})")
    return f" Others have better means in {join_words(parts)}." if parts else ""


def _list_changes(work: Study, policy: str) -> list[MetricChange]:
    """Return the changes that the sentences describe.

    If there are several loads, they are those over all loads together. Changes of metrics that are
    always 0, such as dollars if GPUs have no price, are left out.
    """
    at = _find_overall_load(work)
    changes = (work.change(at, policy, key) for key in SENTENCE)
    return [c for c in changes if c is not None and (c.percent, c.low, c.high) != (0, 0, 0)]


def _find_overall_load(work: Study) -> str:
    return POOLED if work.is_pooled else work.loads[0]


def _judge(work: Study, change: MetricChange) -> str:
    """Return better, worse or open.

    For a single simulation it is the direction of the change, if that is more than rounding.
    """
    if not work.single:
        return change.verdict
    if abs(change.percent) < 0.05:
        return "same"
    return "better" if (change.percent > 0) == (BY_KEY[change.metric].better > 0) else "worse"


def _describe_single(work: Study, policy: str) -> str:
    parts = []
    for load in work.loads:
        done, jobs = (work.sum(load, policy, key) for key in ("finished", "jobs"))
        at = f" at load {load}" if load else ""
        words = [f"{number(done, 12)} of {number(jobs, 12)} jobs done{at}"]
        for key, text in ((MAIN, "mean completion time"), ("queue_s_mean", "mean queueing")):
            if math.isfinite(value := work.mean(load, policy, key)):
                words.append(f"{text} {duration(value)}")
        if math.isfinite(share := work.mean(load, policy, "utilisation")):
            words.append(f"utilisation {100 * share:.0f} %")
        parts.append(", ".join(words))
    return f"<b>{escape(policy)}</b> on {escape(work.name)}: {'; '.join(parts)}."


def _describe(change: MetricChange) -> str:
    return f"{BY_KEY[change.metric].title} {change.words}"


def _describe_exceptions(work: Study, policy: str) -> str:
    """Return the loads at which the verdict differs from that of all loads together.

    They have the opposite verdict, or a clear one where the pooled one is open.
    """
    exceptions = [
        f"{change.verdict} in {_describe(change)} at load {load}"
        for key in SENTENCE
        for load in work.loads
        if (whole := work.change(POOLED, policy, key))
        and (change := work.change(load, policy, key))
        and change.verdict not in ("open", whole.verdict)
    ]
    return f" Not everywhere alike: {join_words(exceptions)}." if exceptions else ""
