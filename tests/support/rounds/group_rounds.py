"""Tiny rounds in which a job may run on the GPUs of several jobs, and idle ones, and their best
value by trying every plan.

The oracle reads rows and shares no code with the product. A plan gives each job nothing, GPUs of
its own, or GPUs of a set of jobs that hold theirs and no second job, with idle GPUs for the rest.
`Groups.plans` lists the legal plans under any objective; `Groups.best` values them by progress.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from builders import snapshot

from allocator.domain.allocation import Allocation
from allocator.domain.snapshot import Snapshot

Row = Mapping[str, Any]
Way = tuple[float, float, int]
"""Work per second alone, GB of each GPU, row of the rates."""
Sets = tuple[frozenset[int], ...]
"""The primary jobs of each job."""


@dataclass(frozen=True)
class Given:
    """A plan that keeps the rules: what each job gets, as (own or second, pool, GPUs), its primary
    jobs, and its way, work per second, dollars per hour, and whether it keeps its GPUs."""

    plan: tuple[Any, ...]
    sets: Sets
    ways: list[Way | None]
    speed: list[float]
    cost: list[float]
    stays: list[bool]


class Groups:
    """A round as rows, and its best value over all plans."""

    def __init__(self, config: Row, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        self.config, self.tables = config, tables
        self.jobs, self.pools = tables["jobs"], {p["pool"]: p for p in tables["pools"]}
        self.slow = {}
        for r in tables["sharing"]:
            self.slow[r["model_a"], r["model_b"], r["gpus"]] = r["slowdown_a"]
            self.slow[r["model_b"], r["model_a"], r["gpus"]] = r["slowdown_b"]
        number = {j["job_id"]: n for n, j in enumerate(self.jobs)}
        self.before = [
            frozenset(number[name] for name in (j.get("shared_with") or "").split("|") if name)
            for j in self.jobs
        ]

    def snapshot(self) -> Snapshot:
        """The round as the product reads it."""
        tables = dict(self.tables)
        jobs, pools, rates = (tables.pop(name) for name in ("jobs", "pools", "rates"))
        return snapshot(jobs, pools, rates, config=self.config, **tables)

    def ways(self, j: int, k: int, pool: str) -> list[Way]:
        """Ways to run job j on k GPUs of a pool that have the memory, the most speed first."""
        return [
            (r["work_per_s"], r["memory_gb"], n)
            for n, r in enumerate(self.tables["rates"])
            if (r["model"], r["gpus"]) == (self.model(j), k)
            and r["memory_gb"] <= self.pools[pool]["memory_gb"]
        ]

    def model(self, j: int) -> str:
        return str(self.jobs[j]["model"])

    def is_best_effort(self, j: int) -> bool:
        return bool(self.jobs[j].get("best_effort"))

    def pair(self, h: int, k_h: int, g: int, k_g: int, pool: str) -> tuple[Way, Way] | None:
        """The ways of two jobs that lose least speed, of those that fit into the memory."""
        place = self.pools[pool]
        if place["sharing"] == "none" or (
            place["sharing"] == "best_effort" and not self.is_best_effort(g)
        ):
            return None
        xi = self.slowdowns(h, g, k_h, pool)
        if xi is None:
            return None
        both = [
            (a, b)
            for a in self.ways(h, k_h, pool)
            for b in self.ways(g, k_g, pool)
            if a[1] + b[1] <= place["memory_gb"] + 1e-12
        ]
        if not both:
            return None
        most_h, most_g = self.ways(h, k_h, pool)[0][0], self.ways(g, k_g, pool)[0][0]
        return max(
            both,
            key=lambda w: (
                round(w[0][0] / most_h / xi[0] + w[1][0] / most_g / xi[1], 12),
                w[0][0],
                -w[0][1] - w[1][1],
            ),
        )

    def slowdowns(self, h: int, g: int, gpus: int, pool: str) -> tuple[float, float] | None:
        """Slowdowns of two jobs next to each other on so many GPUs, None = not possible.

        A pool that isolates slows a guaranteed job next to a best-effort one by `isolation` at
        most; of its relative speed the other job loses what that saves.
        """
        if (self.model(h), self.model(g), 1) not in self.slow:
            return None
        one, other = self.xi(h, g, gpus), self.xi(g, h, gpus)
        most = self.pools[pool].get("isolation") or np.inf
        if self.is_best_effort(h) == self.is_best_effort(g):
            return one, other
        guaranteed, free = (other, one) if self.is_best_effort(h) else (one, other)
        if guaranteed > most:
            left = 1 / free + 1 / guaranteed - 1 / most
            if left <= 0:
                return None
            guaranteed, free = most, 1 / left
        return (free, guaranteed) if self.is_best_effort(h) else (guaranteed, free)

    def xi(self, j: int, other: int, gpus: int) -> float:
        """Slowdown of job j next to the other on so many GPUs, linear between 1 and 4."""
        one, four = (self.slow[self.model(j), self.model(other), n] for n in (1, 4))
        return float(one + (four - one) * (min(gpus, 4) - 1) / 3)

    def best(self) -> float:
        """Value of the best plan by progress."""
        return max(self._progress(given) for given in self.plans())

    def plans(self) -> Iterator[Given]:
        """Every plan that keeps the rules."""
        for plan, sets in self.drafts():
            given = self.given(plan, sets)
            if given is not None:
                yield given

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
            for sets in self._sets(plan, 0, frozenset()):
                yield plan, sets

    def allocation(self, plan: tuple[Any, ...], sets: Sets, ways: list[Way | None]) -> Allocation:
        """The plan in the words of the product."""
        number = {p: n for n, p in enumerate(self.pools)}
        second = {h: g for g, members in enumerate(sets) for h in members}
        return Allocation(
            pool=np.array([-1 if role is None else number[role[1]] for role in plan]),
            gpus=np.array([0 if role is None else role[2] for role in plan]),
            row=np.array([-1 if way is None else way[2] for way in ways]),
            primary=np.array([min(members, default=-1) for members in sets]),
            shared_by=np.array([second.get(h, -1) for h in range(len(plan))]),
        )

    def _sets(self, plan: tuple[Any, ...], g: int, taken: frozenset[int]) -> Iterator[Sets]:
        """Every way to give each second job its primary jobs."""
        if g == len(plan):
            yield ()
            return
        if plan[g] is None or plan[g][0] == "own":
            for rest in self._sets(plan, g + 1, taken):
                yield (frozenset(), *rest)
            return
        _, pool, k = plan[g]
        able = [
            h
            for h, role in enumerate(plan)
            if role is not None and role[:2] == ("own", pool) and h not in taken and role[2] <= k
        ]
        for n in range(1, self.config["max_primaries"] + 1):
            for members in itertools.combinations(able, n):
                if sum(plan[h][2] for h in members) <= k:
                    for rest in self._sets(plan, g + 1, taken | set(members)):
                        yield (frozenset(members), *rest)

    def given(self, plan: tuple[Any, ...], sets: Sets) -> Given | None:
        """What a plan brings, None if it breaks a rule or is none that is offered."""
        second = {h: g for g, members in enumerate(sets) for h in members}
        used: dict[str, int] = dict.fromkeys(self.pools, 0)
        out = Given(plan, sets, [], [], [], [])
        own: list[int] = []
        for j, role in enumerate(plan):
            held, way, speed, stays = 0, None, 0.0, False
            cost = 0.0
            if role is not None:
                _, pool, k = role
                held = k - sum(plan[h][2] for h in sets[j])
                used[pool] += held
                if used[pool] > self.pools[pool]["gpus"]:
                    return None
                found, offered = (
                    self._way(plan, sets, second, j),
                    self._stays(plan, sets, second, j),
                )
                if found is None or offered is None:
                    return None
                (way, speed), stays = found, offered
                cost = held * self._price(j, k, pool)
            own.append(held)
            out.ways.append(way)
            out.speed.append(speed)
            out.cost.append(cost)
            out.stays.append(stays)
        changed = sum(self._runs(j) and not stays for j, stays in enumerate(out.stays))
        dear = sum(out.cost) > self.config.get("budget_per_hour", np.inf) + 1e-9
        if dear or changed > self.config.get("max_changes", np.inf):
            return None
        for t in self.tables.get("tenants", ()):
            mine = [j for j, job in enumerate(self.jobs) if job["tenant"] == t["tenant"]]
            if sum(own[j] for j in mine) > t.get("max_gpus", np.inf):
                return None
            if sum(out.cost[j] for j in mine) > t.get("budget_per_hour", np.inf) + 1e-9:
                return None
        return out

    def forbidden(self, plan: tuple[Any, ...], sets: Sets) -> Allocation | None:
        """A plan that `given` refuses, in the words of the product; each job in its fastest way.

        None where it keeps the rules and is only not offered, or where no way exists.
        """
        second = {h: g for g, members in enumerate(sets) for h in members}
        some = [j for j, role in enumerate(plan) if role is not None]
        if any(self._stays(plan, sets, second, j) is None for j in some):
            return None
        if not all(self.ways(j, plan[j][2], plan[j][1]) for j in some):
            return None
        ways: list[Way | None] = [None] * len(plan)
        for j in some:
            found = self._way(plan, sets, second, j)
            ways[j] = self.ways(j, plan[j][2], plan[j][1])[0] if found is None else found[0]
        return self.allocation(plan, sets, ways)

    def _price(self, j: int, k: int, pool: str) -> float:
        """Dollars per hour of each GPU, with the memory that the job needs alone."""
        place = self.pools[pool]
        gb = self.ways(j, k, pool)[0][1]
        return float(
            place.get("price_per_gpu_hour", 0.0) + place.get("price_per_gb_hour", 0.0) * gb
        )

    def _progress(self, given: Given) -> float:
        """Value of a plan by progress: weighted shares of what is left."""
        total = 0.0
        for j, job in enumerate(self.jobs):
            moves = self._runs(j) and not given.stays[j]
            works = self.config["interval_s"] - (self.config["restart_s"] if moves else 0.0)
            done = given.speed[j] * max(0.0, works)
            total += job.get("weight", 1.0) * min(1.0, done / job["remaining_work"])
        return total

    def _runs(self, j: int) -> bool:
        return self.jobs[j].get("state") == "running"

    def _way(
        self, plan: tuple[Any, ...], sets: Sets, second: Mapping[int, int], j: int
    ) -> tuple[Way, float] | None:
        """Way and work per second of job j, None where a pair is not possible."""
        _, pool, k = plan[j]
        if j in second:
            g = second[j]
            ways, xi = self.pair(j, k, g, plan[g][2], pool), self.slowdowns(j, g, k, pool)
            return None if ways is None or xi is None else (ways[0], ways[0][0] / xi[0])
        own = self.ways(j, k, pool)
        if not sets[j]:
            return (own[0], own[0][0]) if own else None
        found, slowest = [], 1.0
        for h in sorted(sets[j]):
            ways = self.pair(h, plan[h][2], j, k, pool)
            xi = self.slowdowns(h, j, plan[h][2], pool)
            if ways is None or xi is None:
                return None
            found.append(ways[1])
            slowest = max(slowest, xi[1])
        least = min(found, key=lambda way: way[1])
        return least, least[0] / slowest

    def _stays(
        self,
        plan: tuple[Any, ...],
        sets: Sets,
        second: Mapping[int, int],
        j: int,
    ) -> bool | None:
        """Whether job j keeps its GPUs; None if a plan with such a move is not offered."""
        job, (_, pool, k) = self.jobs[j], plan[j]
        if not self._runs(j) or (job["pool"], job["gpus"]) != (pool, k):
            return False
        same = {h for h in self.before[j] if plan[h] == ("own", pool, self.jobs[h]["gpus"])}
        if not sets[j]:
            # who leaves its primary jobs for other GPUs of the pool, as many, has no second job
            return None if same and j in second else not same
        if not sets[j] <= same:
            return False
        return True if sets[j] == same else None


def group_round(seed: int, jobs: int = 4) -> Groups:
    """A random tiny round; in most a job runs on the GPUs of one or two others and idle ones."""
    rng = np.random.default_rng(seed)
    pool = {"gpus": int(rng.integers(3, 7)), "memory_gb": 10.0, "sharing": "any"}
    pool |= {"pool": "p0", "gpu_type": "A", "price_per_gpu_hour": 1.0}
    speeds = {m: float(rng.uniform(0.5, 2.0)) for m in "mn"}
    needs = {m: float(rng.uniform(3.0, 7.0)) for m in "mn"}
    rates = [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": speeds[m] * k**0.8 * speed}
        | {"memory_gb": round(needs[m] * share, 2), "accumulation": passes, "batch_size": 64}
        for m in "mn"
        for k in (1, 2, 4)
        for passes, speed, share in ((1, 1.0, 1.0), (2, 0.93, 0.6), (4, 0.85, 0.4))
    ]
    slow = [
        {"model_a": a, "model_b": b, "gpu_type": "A", "gpus": k}
        | {"slowdown_a": float(x := rng.uniform(1, 1.7)), "slowdown_b": x if a == b else y}
        for a, b in ("mm", "mn", "nn")
        for k in (1, 4)
        for y in [float(rng.uniform(1, 1.7))]
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
    if rng.random() < 0.7:
        _start(rng, rows, pool)
        if rng.random() < 0.3:
            config["max_changes"] = int(rng.integers(1, 3))
    return Groups(config, {"jobs": rows, "pools": [pool], "rates": rates, "sharing": slow})


def crossed_round(seed: int, objective: str, jobs: int = 3) -> Groups:
    """Such a round under an objective, with larger slowdowns, best-effort jobs, isolation, little
    memory, prices of memory, money in the objective, deadlines, ages, limits of tenants, and at
    times a second pool that may not share."""
    round_ = group_round(seed, jobs)
    rng = np.random.default_rng([seed, 17])
    config, (pool, *_) = dict(round_.config), round_.tables["pools"]
    config |= {"now_s": 1000.0, "objective": objective}
    if rng.random() < 0.4:
        config["dollar_price"] = float(rng.choice([0.01, 0.3]))
    pool = dict(pool)
    pool["memory_gb"] = float(rng.choice([4.5, 7.0, 10.0, 14.0]))
    if rng.random() < 0.5:
        pool["price_per_gb_hour"] = float(rng.choice([0.05, 0.4]))
        if "budget_per_hour" in config:
            config["budget_per_hour"] *= 1 + 5 * pool["price_per_gb_hour"]
    if rng.random() < 0.5:
        pool["isolation"] = float(rng.choice([1.0, 1.2]))
    pool["sharing"] = str(rng.choice(["any", "any", "best_effort"]))
    pools = [pool]
    if rng.random() < 0.3:
        pools.append(pool | {"pool": "p1", "gpus": 2, "price_per_gpu_hour": 0.5, "sharing": "none"})
    rows = [dict(j) for j in round_.jobs]
    for j in rows:
        j |= {"total_work": j["remaining_work"] * float(rng.choice([1.0, 2.0]))}
        j |= {"submitted_s": float(rng.integers(0, 1000)), "best_effort": bool(rng.random() < 0.5)}
        if rng.random() < 0.4:
            j["deadline_s"] = float(rng.choice([1500, 5000, 20_000]))
        if j["best_effort"] and rng.random() < 0.3:
            j["remaining_work"] *= 0.1
    stretch = float(rng.choice([1.0, 2.0]))
    slow = [
        r | {s: 1 + stretch * (r[s] - 1) for s in ("slowdown_a", "slowdown_b")}
        for r in round_.tables["sharing"]
    ]
    tables = {"jobs": rows, "pools": pools, "rates": round_.tables["rates"], "sharing": slow}
    if "max_changes" not in config and rng.random() < 0.5:
        tables["tenants"] = [{"tenant": "x", "max_gpus": int(rng.integers(0, 5))}]
        tables["tenants"] += [{"tenant": "y", "budget_per_hour": float(rng.integers(1, 6))}]
        for j in rows:
            j["tenant"] = str(rng.choice(["x", "y"]))
    return Groups(config, tables)


def _start(rng: np.random.Generator, rows: list[dict[str, Any]], pool: Row) -> None:
    """Let the first job run on the GPUs of the next one or two jobs, and on idle GPUs."""
    several = int(rng.integers(1, 3))
    size = 2 if pool["gpus"] < 4 else 4
    for n in range(several + 1):
        gpus = size if n == 0 else 1
        rows[n] |= {"state": "running", "pool": "p0", "gpus": gpus}
        rows[n] |= {"min_gpus": min(rows[n]["min_gpus"], gpus)}
        rows[n] |= {"max_gpus": max(rows[n]["max_gpus"], gpus)}
        rows[n] |= {"model": "m"}
    rows[0]["shared_with"] = "|".join(f"j{n}" for n in range(1, several + 1))
    if several == 1 and size == 1:
        del rows[0]["shared_with"]
