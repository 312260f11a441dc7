"""Tiny rounds in which a job may run on the GPUs of several jobs, and idle ones, and their best
value by trying every plan.

A plan gives each job nothing, GPUs of its own, or GPUs of a set of jobs that hold theirs and no
second job, with idle GPUs for the rest. Speeds, prices and values are those of the second reading
(second_values.py), which shares no code with the product.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from builders import snapshot
from matrix_rounds import Tables, made, pick
from numpy.random import Generator
from second_quotas import rights, usable, use
from second_values import Reading
from second_ways import Rated, Way

from allocator.domain.allocation import Allocation
from allocator.domain.snapshot import Snapshot

Row = Mapping[str, Any]
SOME = (  # features that change what plans bring, and which of them keep the rules
    *("done_before", "deadlines", "weights", "served_before", "restarted_before"),
    *("slow_restarts", "slow_restarts_of_all", "slow_starts", "own_pauses"),
    *("long_rounds", "billed_by_the_hour", "dollar_price", "dollar_prices_of_tenants"),
    *("quotas", "guarantees", "budgets_of_tenants", "weights_of_tenants"),
)
Sets = tuple[frozenset[int], ...]
"""The primary jobs of each job."""


@dataclass
class Given:
    """What each job gets, as (own or second, pool, GPUs), its primary jobs, and its way, work per
    second, dollars per hour, and whether it keeps its GPUs."""

    plan: tuple[Any, ...]
    sets: Sets
    ways: list[Rated | None] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    stays: list[bool] = field(default_factory=list)


class Groups:
    """A round as rows, and its best value over all plans."""

    def __init__(self, config: Row, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        self.config, self.tables = config, tables
        rows = (tables.get(name, []) for name in ("jobs", "pools", "rates", "tenants"))
        self.reading = Reading(*rows, dict(config), tables)
        self.jobs, self.pools = self.reading.jobs, self.reading.at
        number = {j["job_id"]: n for n, j in enumerate(self.jobs)}
        self.before = [
            frozenset(number[name] for name in (j["shared_with"] or "").split("|") if name)
            for j in self.jobs
        ]

    def snapshot(self) -> Snapshot:
        """The round as the product reads it."""
        tables = dict(self.tables)
        jobs, pools, rates = (tables.pop(name) for name in ("jobs", "pools", "rates"))
        return snapshot(jobs, pools, rates, config=self.config, **tables)

    def ways(self, j: int, k: int, pool: str) -> list[Rated]:
        """Ways to run job j on k GPUs of a pool that have the memory, the most speed first."""
        found = self.reading.ways(self.jobs[j], (pool, k))
        return [way for way in found if way[1] <= self.pools[pool]["memory_gb"]]

    def values(self, given: Given) -> list[float]:
        """Value of what a plan brings to each job."""
        return [self._value(given, j) for j in range(len(self.jobs))]

    def _value(self, given: Given, j: int) -> float:
        if given.plan[j] is None:
            return 0.0
        (_, *got), job, r = given.plan[j], self.jobs[j], self.reading
        place = (got[0], got[1])
        paid = 1 - sum(given.plan[h][2] for h in given.sets[j]) / place[1]
        pause = 0.0 if given.stays[j] else r.lost(job, place)
        way = Way(place, given.speed[j], pause, given.stays[j], paid)
        return float(r.once((j, way), lambda: r.valued(job, way)))

    def drafts(self) -> Iterator[tuple[tuple[Any, ...], Sets]]:
        """Everything that might be a plan: what each job gets, and its primary jobs."""
        roles = [
            [None]
            + [
                (kind, p, k)
                for p in self.pools
                for k in (1, 2, 4)
                if j["min_gpus"] <= k <= j["max_gpus"] and k <= self.pools[p]["gpus"]
                for kind in ("own", "second")
            ]
            for j in self.jobs
        ]
        for plan in itertools.product(*roles):
            for sets in itertools.product(*(self._choices(plan, g) for g in range(len(plan)))):
                if len(frozenset().union(*sets)) == sum(map(len, sets)):
                    yield plan, sets

    def allocation(self, given: Given) -> Allocation:
        """The plan in the words of the product."""
        number = {p: n for n, p in enumerate(self.pools)}
        second = {h: g for g, members in enumerate(given.sets) for h in members}
        return Allocation(
            pool=np.array([-1 if role is None else number[role[1]] for role in given.plan]),
            gpus=np.array([0 if role is None else role[2] for role in given.plan]),
            row=np.array([-1 if way is None else way[2] for way in given.ways]),
            primary=np.array([min(members, default=-1) for members in given.sets]),
            shared_by=np.array([second.get(h, -1) for h in range(len(given.plan))]),
        )

    def _choices(self, plan: tuple[Any, ...], g: int) -> list[frozenset[int]]:
        """The sets of jobs that may be the primary jobs of a job."""
        if plan[g] is None or plan[g][0] == "own":
            return [frozenset()]
        _, pool, k = plan[g]
        able = [h for h, role in enumerate(plan) if role and role[:2] == ("own", pool)]
        most = self.config["max_primaries"]
        return [
            frozenset(members)
            for n in range(1, most + 1)
            for members in itertools.combinations(able, n)
            # idle GPUs, too, are for jobs that may have several primary jobs
            if (k if most == 1 else 0) <= sum(plan[h][2] for h in members) <= k
        ]

    def given(self, plan: tuple[Any, ...], sets: Sets, broken: bool = False) -> Given | None:
        """What a plan brings, None if it breaks a rule or is none that is offered. `broken`: also
        if it breaks a rule, each job whose pair is not possible in its fastest way."""
        second = {h: g for g, members in enumerate(sets) for h in members}
        used, gets = dict.fromkeys(self.pools, 0), dict[str, tuple[str, int]]()
        out, keeps = Given(plan, sets), True
        for j, role in enumerate(plan):
            way, speed, stays, cost = None, 0.0, False, 0.0
            if role is not None:
                _, pool, k = role
                held = k - sum(plan[h][2] for h in sets[j])
                used[pool] += held
                keeps = keeps and used[pool] <= self.pools[pool]["gpus"]
                if not (keeps or broken):
                    return None
                found, offered = (
                    self._way(plan, sets, second, j),
                    self._stays(plan, sets, second, j),
                )
                fastest = self.ways(j, k, pool)[:1] if broken else []
                if offered is None or not (found or fastest):
                    return None
                keeps, stays = keeps and found is not None, offered
                way, speed = found or (fastest[0], 0.0)
                cost = held * self.reading.price(self.jobs[j], (pool, k))
                gets[self.jobs[j]["job_id"]] = (pool, held)
            out.ways.append(way)
            out.speed.append(speed)
            out.cost.append(cost)
            out.stays.append(stays)
        return out if broken or (keeps and self._keeps_rules(out, gets)) else None

    def _keeps_rules(self, given: Given, gets: dict[str, tuple[str, int]]) -> bool:
        """Whether a plan keeps the rules about changes, money and tenants."""
        r = self.reading
        left = [j for j, stays in enumerate(given.stays) if self._runs(j) and not stays]
        if any(not self.jobs[j]["preemptible"] for j in left):
            return False
        dear = sum(given.cost) > self.config.get("budget_per_hour", np.inf) + 1e-9
        if dear or len(left) > self.config.get("max_changes", np.inf):
            return False
        if any(not usable(r, right) <= use(r, gets, right) <= right.most for right in rights(r)):
            return False
        spent = dict.fromkeys(r.owner, 0.0)
        for j, c in zip(self.jobs, given.cost, strict=True):
            spent[j["tenant"]] += c
        return all(spent[name] <= t["budget_per_hour"] + 1e-9 for name, t in r.owner.items())

    def _runs(self, j: int) -> bool:
        return bool(self.jobs[j]["state"] == "running")

    def _way(
        self, plan: tuple[Any, ...], sets: Sets, second: Mapping[int, int], j: int
    ) -> tuple[Rated, float] | None:
        """Way and work per second of job j, None where a pair is not possible."""
        _, pool, k = plan[j]
        if j in second:
            pair = self._pair(plan, j, second[j])
            return None if pair is None else (pair[0], pair[0][0] / pair[2][0])
        if not sets[j]:
            own = self.ways(j, k, pool)
            return (own[0], own[0][0]) if own else None
        pairs = [self._pair(plan, h, j) for h in sets[j]]
        if None in pairs:
            return None
        least = min((pair[1] for pair in pairs if pair), key=lambda way: way[1])
        return least, least[0] / max([1.0, *(pair[2][1] for pair in pairs if pair)])

    def _pair(self, plan: tuple[Any, ...], h: int, g: int) -> Any:
        """Ways and slowdowns of job g next to its primary job h, None where it may not be there."""
        _, pool, k = plan[h]
        first, second, sharing = self.jobs[h], self.jobs[g], self.pools[pool]["sharing"]
        if sharing == "none" or (sharing == "best_effort" and not second["best_effort"]):
            return None
        if sharing == "tenant" and first["tenant"] != second["tenant"]:
            return None
        return self.reading.once(
            ("pair", h, k, g, plan[g][2], pool),
            lambda: self.reading.colocated_ways(first, second, (pool, k), plan[g][2]),
        )

    def _stays(
        self, plan: tuple[Any, ...], sets: Sets, second: Mapping[int, int], j: int
    ) -> bool | None:
        """Whether job j keeps its GPUs; None if a plan with such a move is not offered."""
        job, (_, pool, k) = self.jobs[j], plan[j]
        if not self._runs(j) or (job["pool"], job["gpus"]) != (pool, k):
            return False
        same = {h for h in self.before[j] if plan[h] == ("own", pool, self.jobs[h]["gpus"])}
        if not sets[j]:
            # who leaves its primary jobs for other GPUs of the pool, as many, has no second job
            return None if same and j in second else not same
        if any(self.before[h] == {j} and plan[h][2] == self.jobs[h]["gpus"] == k for h in sets[j]):
            return True  # two jobs on the same GPUs have changed places
        if not sets[j] <= same:
            return False
        return True if sets[j] == same else None


def group_round(seed: int, jobs: int = 4) -> Groups:
    """A random tiny round; in most a job runs on the GPUs of one or two others and idle ones."""
    rng = np.random.default_rng(seed)
    pool: dict[str, Any] = {"pool": "p0", "gpu_type": "A", "price_per_gpu_hour": 1.0}
    pool |= {"gpus": int(rng.integers(3, 7)), "memory_gb": 10.0, "sharing": "any"}
    rates = [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": fast * k**0.8 * speed}
        | {"memory_gb": round(need * share, 2), "accumulation": passes, "batch_size": 64}
        for m, fast, need in (("m", *rng.uniform([0.5, 3.0], [2.0, 7.0]).tolist()), ("n", 1.0, 5.0))
        for k in (1, 2, 4)
        for passes, speed, share in ((1, 1.0, 1.0), (2, 0.93, 0.6), (4, 0.85, 0.4))
    ]
    slow = [
        {"model_a": a, "model_b": b, "gpu_type": "A", "gpus": k}
        | {"slowdown_a": x, "slowdown_b": x if a == b else y}
        for a, b in ("mm", "mn", "nn")
        for k in (1, 4)
        for x, y in [rng.uniform(1, 1.6, 2).tolist()]
    ]
    rows: list[dict[str, Any]] = []
    for n in range(jobs):
        low, high = sorted(int(k) for k in rng.choice([1, 2, 4], 2))
        rows.append(
            {"job_id": f"j{n}", "model": str(rng.choice(["m", "n"])), "min_gpus": low}
            | {"max_gpus": high, "remaining_work": float(rng.uniform(200, 3000))}
            | {"weight": float(rng.integers(1, 4)), "submitted_s": float(rng.integers(0, 100))}
        )
    config: dict[str, Any] = {"interval_s": 300, "restart_s": 60, "max_primaries": 3}
    if rng.random() < 0.5:
        config["budget_per_hour"] = float(rng.integers(2, 6))
    if rng.random() < 0.9:
        several = min(2, int(rng.integers(1, 4)))
        for n, j in enumerate(rows[: several + 1]):
            gpus = 1 if n else 2 if pool["gpus"] < 4 else 4
            j |= {"state": "running", "pool": "p0", "gpus": gpus, "model": "m"}
            j |= {"min_gpus": min(j["min_gpus"], gpus), "max_gpus": max(j["max_gpus"], gpus)}
        rows[0]["shared_with"] = "|".join(f"j{n}" for n in range(1, several + 1))
        if rng.random() < 0.3:
            config["max_changes"] = int(rng.integers(1, 3))
    return Groups(config, {"jobs": rows, "pools": [pool], "rates": rates, "sharing": slow})


def crossed_round(seed: int, objective: str) -> Groups:
    """Such a round of three jobs under an objective, with two pools, best-effort jobs, isolation,
    little memory and three features of the matrix, and in some only pairs, firm ones and on spot
    GPUs too."""
    round_, rng = group_round(seed, 3), np.random.default_rng([seed, 17])
    pool = round_.tables["pools"][0] | {"memory_gb": pick(rng, 4.5, 7.0, 10.0, 14.0)}
    pool |= {"isolation": pick(rng, None, 1.0, 1.2), "price_per_gb_hour": pick(rng, 0.0, 0.1)}
    other = pool | {"pool": "p1", "gpus": pick(rng, 0, 0, 2), "price_per_gpu_hour": 0.5}
    for p in (pool, other):
        p["sharing"] = pick(rng, "any", "any", "best_effort", "tenant")
    jobs = [j | {"best_effort": bool(rng.random() < 0.5)} for j in round_.tables["jobs"]]
    config = {**round_.config, "now_s": 1000.0, "objective": objective}
    further = {"sharing": round_.tables["sharing"]}
    crossed = Tables(jobs, [pool, other], round_.tables["rates"], [], config, further)
    for name in rng.choice(SOME, 3, replace=False).tolist():
        crossed = made(name, seed, crossed)
    tables = {"jobs": crossed.jobs, "pools": crossed.pools, "rates": crossed.rates}
    tables |= crossed.further | ({"tenants": crossed.tenants} if crossed.tenants else {})
    if rng.random() < 0.3:
        _allow_pairs_only(rng, crossed.config, tables)
    return Groups(crossed.config, tables)


def _allow_pairs_only(rng: Generator, config: dict[str, Any], tables: dict[str, Any]) -> None:
    """Let no job have several primary jobs; spot GPUs, checkpoints and firm jobs are then allowed,
    and each job that ran on the GPUs of others runs on those of the first, if they are as many."""
    config["max_primaries"] = 1
    first, second = tables["jobs"][1], tables["jobs"][0]
    if second.pop("shared_with", ""):
        first |= {"gpus": second["gpus"], "max_gpus": max(first["max_gpus"], second["gpus"])}
        second["shared_with"] = "j1"
    for p in tables["pools"]:
        p["gpus"] = max(p["gpus"], 5) if p["gpus"] else 0
        if rng.random() < 0.4:
            p |= {"market": "spot", "revocations_per_gpu_hour": 0.2}
    for j in tables["jobs"]:
        if rng.random() < 0.4:
            j |= {"checkpoint_s": 5.0, "checkpoint_every_s": float(rng.choice([100, 1000]))}
        is_limited = "tenants" in tables or "budget_per_hour" in config
        j["preemptible"] = j["best_effort"] or is_limited or rng.random() < 0.7
