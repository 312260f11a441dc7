"""What the looks of a record add up to."""

from collections import Counter
from collections.abc import Iterable

from allocator.bench.shadow.judging import SAME
from allocator.bench.shadow.record import FAULT, GAP, ROUND, Look
from allocator.errors import UsageError
from allocator.objects import Json

LONGEST = 2.0  # intervals that a look stands for at most
NAMED = 5  # jobs that are named
HOUR_S = 3600.0


def summarise(looks: Iterable[Look]) -> Json:
    """Return what the looks add up to, as JSON values. Raises UsageError if there are none.

    Each look stands for the time until the next one, at most LONGEST intervals, the last one for
    its interval. `rounds`, `gaps` and `faults` count looks; hours are those of rounds.
    """
    seen = list(looks)
    if not seen:
        raise UsageError("the record has no look yet")
    after = [look.at_s for look in seen[1:]] + [seen[-1].at_s + seen[-1].every_s]
    rows = [
        _row(look, max(0.0, min(until - look.at_s, LONGEST * look.every_s)) / HOUR_S)
        for look, until in zip(seen, after, strict=True)
    ]
    kinds = Counter(look.kind for look in seen)
    rounds = [row for row in rows if row["kind"] == ROUND]
    regretted = [r for r in rounds if r["regret"] > SAME * abs(r["value"])]
    waited: Counter[str] = Counter()
    for row in rounds:
        waited.update(dict.fromkeys(row["passed_over"], row["hours"]))

    def add_up(name: str, by_hours: bool = False) -> float:
        """Return the sum of a figure over all rounds, as it is or for the hours that it stood."""
        chosen = (row for row in rounds if row[name])
        return float(sum(row[name] * (row["hours"] if by_hours else 1) for row in chosen))

    def percent_above(name: str) -> float | None:
        """Return by how much a sum is above that of the cluster; None if that is not above 0."""
        worth = add_up("cluster_value")
        return 100.0 * (add_up(name) - worth) / worth if worth > 0 else None

    hours, jobs = add_up("hours"), max(1, add_up("jobs"))
    has_price = any(row["usable_per_hour"] is not None for row in rounds)
    return {
        "cluster": seen[0].cluster,
        "from_s": seen[0].at_s,
        "to_s": after[-1],
        "every_s": seen[-1].every_s,
        "rounds": kinds[ROUND],
        "gaps": kinds[GAP],
        "faults": kinds[FAULT],
        "hours": hours,
        "unseen_hours": max(0.0, round((after[-1] - seen[0].at_s) / HOUR_S - hours, 9)),
        **{f"{name}_gpu_hours": add_up(name, True) for name in ("gpus", "used", "usable")},
        "usable_dollars": add_up("usable_per_hour", True) if has_price else None,
        "passed_over": len(waited),
        "passed_over_hours": sum(waited.values()),
        "longest_passed_over": dict(waited.most_common(NAMED)),
        "regretted": len(regretted),
        "regret_percent": percent_above("value"),
        "bound_percent": percent_above("bound"),
        "broken": sum(bool(row["broken"]) for row in rounds),
        "rigid_percent": 100.0 * add_up("rigid") / jobs,
        "assumed_percent": 100.0 * add_up("assumed") / jobs,
        "policies": sorted({f"{row['policy']}, objective {row['objective']}" for row in rounds}),
        "looks": rows,
    }


def _row(look: Look, hours: float) -> Json:
    """Return a look with the hours that it stands for; a round with its figures and its regret."""
    row: Json = {
        "number": look.number,
        "at_s": look.at_s,
        "kind": look.kind,
        "hours": hours,
    }
    if look.kind != ROUND:
        return row | {"why": look.said}
    value, bound = (look.said[name] - look.said["cluster_value"] for name in ("value", "bound"))
    return {**row, **look.said, "regret": value, "regret_bound": bound}
