"""The tree of tenants and quotas.csv read a second time, by exhaustive search (R63 to R66)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from second_reading import Row, Rules

Gets = dict[str, tuple[str, int]]


@dataclass(frozen=True)
class Right:
    """A row of tenants.csv or quotas.csv; what: GPU type, pool, or "" for all."""

    number: int
    tenant: str
    what: tuple[str, str]
    pools: frozenset[str]
    most: float
    promised: int
    reserve: int


def rights(r: Rules) -> list[Right]:
    """All rows, those of tenants.csv first."""
    every = frozenset(r.at)
    paid = {t["tenant"]: gpus_paid(r, t["tenant"]) for t in r.tenants}
    spent = {
        t["tenant"]
        for t in r.tenants
        if any(is_below(r, t["tenant"], top) and gpus[1] for top, gpus in paid.items())
    }
    found = [(t, ("", ""), every, 0) for t in r.tenants]
    for row in r.table("quotas"):
        what = (row.get("gpu_type") or "", row.get("pool") or "")
        pools = frozenset(
            p["pool"]
            for p in r.pools
            if what[0] in ("", p["gpu_type"]) and what[1] in ("", p["pool"])
        )
        promised, lent = row.get("guaranteed_gpus") or 0, row.get("lend_gpus")
        promised = 0 if row["tenant"] in spent else promised
        found.append((row, what, pools, 0 if lent is None else max(0, promised - lent)))
    return [
        Right(
            n,
            row["tenant"],
            what,
            pools,
            min(
                math.inf if row.get("max_gpus") is None else row["max_gpus"],
                paid[row["tenant"]][0] if n < len(r.tenants) else math.inf,
            ),
            0 if row["tenant"] in spent else row.get("guaranteed_gpus") or 0,
            reserve,
        )
        for n, (row, what, pools, reserve) in enumerate(found)
    ]


def gpus_paid(r: Rules, tenant: str) -> tuple[float, bool]:
    """GPUs that the GPU-hours left of a tenant pay for in this round, and whether its guarantees
    end with them."""
    row = r.owner[tenant]
    if row["gpu_hours_per_month"] == math.inf:
        return math.inf, False
    left_s = 3600 * (row["gpu_hours_per_month"] - row["gpu_hours_used"])
    paid = 0
    while (paid + 1) * r.config["interval_s"] <= left_s + 1e-6:
        paid += 1
    stay = sum(
        j["gpus"]
        for j in r.jobs
        if j["state"] == "running"
        and not j["shared_with"]
        and is_below(r, j["tenant"], tenant)
        and (not j["preemptible"] or j["resizes_left"] == 0 or r.config["max_changes"] < 10**9)
    )
    promises = [*r.tenants, *r.table("quotas")]
    promised = sum(
        row.get("guaranteed_gpus") or 0 for row in promises if is_below(r, row["tenant"], tenant)
    )
    return max(paid, stay), paid < stay + promised


def keeps_most_jobs(r: Rules, gets: Gets) -> bool:
    """Whether no tenant runs more of its own jobs than it may, or than stay in any case."""
    for t in r.tenants:
        mine = [j for j in r.jobs if j["tenant"] == t["tenant"]]
        stay = [j for j in mine if j["state"] == "running"]
        if r.config["max_changes"] >= 10**9:
            stay = [j for j in stay if r.tied(j)]
        most = t["max_jobs"]
        if most is not None and sum(j["job_id"] in gets for j in mine) > max(most, len(stay)):
            return False
    return True


def is_below(r: Rules, tenant: str | None, top: str) -> bool:
    """Whether a tenant is `top` or below it."""
    while tenant is not None and tenant != top:
        tenant = r.owner[tenant].get("parent")
    return tenant == top


def use(r: Rules, gets: Gets, right: Right) -> int:
    """GPUs that count for a row."""
    return sum(
        k
        for n, (q, k) in gets.items()
        if q in right.pools and is_below(r, r.by[n]["tenant"], right.tenant)
    )


def usable(r: Rules, right: Right) -> int:
    """What a guarantee amounts to."""
    return int(r.once(("usable", right.number), lambda: _usable(r, right)))


def _usable(r: Rules, right: Right) -> int:
    if not right.promised:
        return 0
    mine = [j for j in r.jobs if is_below(r, j["tenant"], right.tenant)]
    inner = [
        other
        for other in rights(r)
        if other.number != right.number and is_below(r, other.tenant, right.tenant)
    ]
    best = 0
    for pick in itertools.product(
        *([None, *(o for o in r.options(j) if o[0] in right.pools)] for j in mine)
    ):
        gets = {j["job_id"]: o for j, o in zip(mine, pick, strict=True) if o}
        total = sum(k for _, k in gets.values())
        if (
            best < total <= right.promised
            and keeps_most_jobs(r, gets)
            and all(use(r, gets, other) <= other.most for other in inner)
            and all(
                sum(k for q, k in gets.values() if q == p["pool"]) <= p["gpus"] for p in r.pools
            )
        ):
            best = total
    return best


def keeps_quotas(r: Rules, gets: Gets) -> bool:
    """Whether a plan keeps limits and guarantees."""
    if not keeps_most_jobs(r, gets):
        return False
    if any(not usable(r, right) <= use(r, gets, right) <= right.most for right in rights(r)):
        return False
    for t in r.tenants:
        cost = sum(
            o[1] * r.price(r.by[n], o)
            for n, o in gets.items()
            if is_below(r, r.by[n]["tenant"], t["tenant"])
        )
        if cost > t["budget_per_hour"] + 1e-7:
            return False
    return True


def taken(r: Rules, gets: Gets) -> tuple[int, ...]:
    """GPUs that a plan takes of what is not lent of each set of pools, in the order of the sets."""
    every = r.once("rights", lambda: rights(r))
    out = []
    for what in sorted({right.what: None for right in every}, key=any):
        some = [right for right in every if right.what == what]
        if any(right.reserve for right in some):
            size = sum(r.at[p]["gpus"] for p in some[0].pools)
            kept = r.once(("kept", what), lambda some=some: _kept(r, None, some))
            held = sum(k for q, k in gets.values() if q in some[0].pools)
            out.append(max(0, held - max(0, size - kept)))
    return tuple(out)


def leaves_reserves(r: Rules, gets: Gets) -> bool:
    """Whether a plan takes no more of what is not lent than the plan that takes least."""
    mine = taken(r, gets)
    if not any(mine):
        return True
    least = r.once("least taken", lambda: min(taken(r, plan) for plan in r.plans(leaves=False)))
    return all(a <= b for a, b in zip(mine, least, strict=True))


def leaves_requested(r: Any, gets: Gets) -> bool:
    """Whether others leave what reservations.csv keeps, in this round and when one begins."""
    soon = r.now + r.config["interval_s"]
    rows = [
        x
        | {
            "at_s": r.now if x["at_s"] <= soon else x["at_s"],
            "for": x.get("job_id") or x.get("tenant"),
        }
        for x in r.table("reservations")
        if x.get("until_s", math.inf) > r.now and (not x.get("job_id") or x["job_id"] in r.by)
    ]
    for pool, at in {(x["pool"], x["at_s"]) for x in rows}:
        kept: Counter[Any] = Counter()
        for x in rows:
            if x["pool"] == pool and x["at_s"] <= at < x.get("until_s", math.inf):
                kept[x["for"]] += x["gpus"]
        lines = {n: [n, *_line(r, j["tenant"])] for n, j in r.by.items()}
        whose = {n: next((x for x in line if x in kept), "others") for n, line in lines.items()}
        held, stays = Counter[Any](), Counter[Any]()
        stay = [n for n, j in r.by.items() if r.config["max_changes"] < 1e9 or j in r.fixed(pool)]
        for n, j in r.by.items():
            now, alone = r.held(j), j.get("shared_with") not in stay
            if n in stay and alone and now in r.options(j) and _lasts(r, j, now, pool, at):
                stays[whose[n]] += now[1]
            if _lasts(r, j, gets.get(n), pool, at):
                held[whose[n]] += gets[n][1]
        holders = {x for x in kept if x in whose.values()}
        for size in range(len(holders) + 1):
            for own in itertools.combinations(holders, size):
                least = sum(k for x, k in kept.items() if x in own or x not in holders)
                taken, bound = (sum(c.values()) - sum(c[x] for x in own) for c in (held, stays))
                if least and taken > max(r.at[pool]["gpus"] - least, bound):
                    return False
    return True


def _lasts(r: Any, j: Row, got: Any, pool: str, at: float) -> bool:
    """Whether a job with that option needs GPUs of the pool at a time."""
    if got is None or got[0] != pool:
        return False
    way = r.way(j, got)
    end_s = way.pause + j["remaining_work"] / way.rate
    if j["preemptible"]:
        move_s = j["restart_s"] + r.at[pool]["startup_s"]
        end_s = 0.0 if way.kept else min(end_s, way.pause + r.config["interval_s"] + move_s)
    return bool(at == r.now or end_s > (at - r.now) * (1 + 1e-9))


def _line(r: Rules, tenant: str | None) -> Iterator[str]:
    while tenant:
        yield tenant
        tenant = r.owner[tenant].get("parent")


def _kept(r: Rules, above: str | None, some: list[Right]) -> int:
    """H of the tenants below one, or of those at the top."""
    kept = 0
    for t in r.tenants:
        if t.get("parent") == above:
            own = [right for right in some if right.tenant == t["tenant"]]
            reserves = (right.reserve - usable(r, right) for right in own)
            kept += max([_kept(r, t["tenant"], some), 0, *reserves])
    return kept
