"""Tiny rounds in which a job may run on the GPUs of several jobs, and idle ones, and their best
value by trying every plan.

The oracle reads rows and shares no code with the product. A plan gives each job nothing, GPUs of
its own, or GPUs of a set of jobs that hold theirs and no second job, with idle GPUs for the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from builders import snapshot

from allocator.domain.snapshot import Snapshot

Row = Mapping[str, Any]
Way = tuple[float, float]
"""Work per second alone, GB of each GPU."""


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

    def ways(self, j: int, k: int) -> list[Way]:
        """Ways to run job j on k GPUs, the most speed first."""
        rows = [r for r in self.tables["rates"] if (r["model"], r["gpus"]) == (self.model(j), k)]
        return [(r["work_per_s"], r["memory_gb"]) for r in rows]

    def model(self, j: int) -> str:
        return str(self.jobs[j]["model"])

    def pair(self, h: int, k_h: int, g: int, k_g: int, pool: str) -> tuple[Way, Way] | None:
        """The ways of two jobs that lose least speed, of those that fit into the memory."""
        if (self.model(h), self.model(g), 1) not in self.slow:
            return None
        memory_gb = self.pools[pool]["memory_gb"]
        both = [
            (a, b)
            for a in self.ways(h, k_h)
            for b in self.ways(g, k_g)
            if a[1] + b[1] <= memory_gb + 1e-12
        ]
        xi_h, xi_g = self.xi(h, g, k_h), self.xi(g, h, k_h)
        most_h, most_g = self.ways(h, k_h)[0][0], self.ways(g, k_g)[0][0]
        return max(
            both,
            key=lambda w: (
                round(w[0][0] / most_h / xi_h + w[1][0] / most_g / xi_g, 12),
                w[0][0],
                -w[0][1] - w[1][1],
            ),
            default=None,
        )

    def xi(self, j: int, other: int, gpus: int) -> float:
        """Slowdown of job j next to the other on so many GPUs, linear between 1 and 4."""
        one, four = (self.slow[self.model(j), self.model(other), n] for n in (1, 4))
        return float(one + (four - one) * (min(gpus, 4) - 1) / 3)

    def best(self) -> float:
        """Value of the best plan."""
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
        best = 0.0
        for plan in itertools.product(*roles):
            for sets in self._sets(plan, 0, frozenset()):
                value = self._value(plan, sets)
                if value is not None:
                    best = max(best, value)
        return best

    def _sets(
        self, plan: tuple[Any, ...], g: int, taken: frozenset[int]
    ) -> Iterator[tuple[frozenset[int], ...]]:
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

    def _value(self, plan: tuple[Any, ...], sets: tuple[frozenset[int], ...]) -> float | None:
        """Value of a plan, None if it breaks a rule or is none that is offered."""
        second = {h: g for g, members in enumerate(sets) for h in members}
        used: dict[str, int] = dict.fromkeys(self.pools, 0)
        cost = 0.0
        changed = 0
        total = 0.0
        for j, role in enumerate(plan):
            if role is None:
                changed += self._runs(j)
                continue
            _, pool, k = role
            held = k - sum(plan[h][2] for h in sets[j])
            used[pool] += held
            cost += held * self.pools[pool].get("price_per_gpu_hour", 0.0)
            speed = self._speed(plan, sets, second, j)
            stays = self._stays(plan, sets, second, j)
            if speed is None or stays is None:
                return None
            changed += self._runs(j) and not stays
            pause = 0.0 if stays else (self.config["restart_s"] if self._runs(j) else 0.0)
            done = speed * max(0.0, self.config["interval_s"] - pause)
            total += self.jobs[j].get("weight", 1.0) * min(
                1.0, done / self.jobs[j]["remaining_work"]
            )
        if any(used[p] > self.pools[p]["gpus"] for p in used):
            return None
        if cost > self.config.get("budget_per_hour", np.inf) + 1e-9:
            return None
        return None if changed > self.config.get("max_changes", np.inf) else total

    def _runs(self, j: int) -> bool:
        return self.jobs[j].get("state") == "running"

    def _speed(
        self,
        plan: tuple[Any, ...],
        sets: tuple[frozenset[int], ...],
        second: Mapping[int, int],
        j: int,
    ) -> float | None:
        """Work per second of job j, None where a pair is not possible."""
        _, pool, k = plan[j]
        if j in second:
            g = second[j]
            ways = self.pair(j, k, g, plan[g][2], pool)
            return None if ways is None else ways[0][0] / self.xi(j, g, k)
        pairs = [(h, self.pair(h, plan[h][2], j, k, pool)) for h in sorted(sets[j])]
        if any(ways is None for _, ways in pairs):
            return None
        if not pairs:
            return self.ways(j, k)[0][0]
        least = min((ways[1] for _, ways in pairs if ways), key=lambda way: way[1])
        return least[0] / max(1.0, *(self.xi(j, h, plan[h][2]) for h, _ in pairs))

    def _stays(
        self,
        plan: tuple[Any, ...],
        sets: tuple[frozenset[int], ...],
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
    pool |= {"pool": "p0", "price_per_gpu_hour": 1.0}
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
