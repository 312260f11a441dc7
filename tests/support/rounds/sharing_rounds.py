"""Tiny rounds in which jobs may share GPUs, and their best value by trying every pair and every
plan.

The oracle reads rows, as tests/support/rounds/oracle.py does, and shares no code with the product.
Every pair pays: slowdowns stay below 1.4, where sharing is better than waiting whatever the
lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cases.folders import Folder
from fakes.random_rounds import random_snapshot
from oracle import Choice, Oracle, Row


@dataclass(frozen=True)
class Pair:
    """Two jobs by number on the same GPUs; value of both; changed: how many of the two change."""

    primary: int
    secondary: int
    pool: str
    gpus: int
    value: float
    cost: float
    changed: int


class Sharing(Oracle):
    """The oracle with two jobs on one GPU: the GPUs, their cost and the primary job's tenant count
    once.
    """

    def __init__(self, config: Mapping[str, Any], tables: Mapping[str, Sequence[Row]]) -> None:
        super().__init__(config, tables)
        self.slow: dict[tuple[str, str, str], float] = {}
        for r in tables["sharing.csv"]:
            for a, b, xi in (
                (r["model_a"], r["model_b"], r["slowdown_a"]),
                (r["model_b"], r["model_a"], r["slowdown_b"]),
            ):
                self.slow[a, b, r["gpu_type"]] = max(xi, self.slow.get((a, b, r["gpu_type"]), 1.0))
        number = {j["job_id"]: i for i, j in enumerate(self.jobs)}
        self.other_job = [
            number[j["shared_with"]] if j.get("shared_with") else -1 for j in self.jobs
        ]
        self.own = self.choices

    def pairs(self) -> list[Pair]:
        """Every pair that may be."""
        return [
            p
            for i, j in itertools.combinations(range(len(self.jobs)), 2)
            for p in self._pairs(i, j)
        ]

    def _pairs(self, i: int, j: int) -> Iterator[Pair]:
        """Either of the two may pay for the GPUs; a job that is bound to its own may not
        join another.
        """
        now = self.other_job[i] == j or self.other_job[j] == i
        for c, d in itertools.product(self.own[i], self.own[j]):
            if not c.gpus or (c.pool, c.gpus) != (d.pool, d.gpus) or c.pool is None:
                continue
            place = (c.pool, c.gpus)
            here = now and all(
                (self.jobs[k]["pool"], self.jobs[k]["gpus"]) == place for k in (i, j)
            )
            for h, g in ((i, j), (j, i)):
                job = self.jobs[g]
                stands = (
                    job.get("state") == "running"
                    and (job["pool"], job["gpus"]) == place
                    and not here
                )
                if (
                    self._fits(h, g, c.pool)
                    and (here or not self._locked(g))
                    and not (stands and not self._may_get(job, place))
                ):
                    yield self._pair(h, g, c.pool, c.gpus, here)

    def _locked(self, k: int) -> bool:
        job = self.jobs[k]
        return job.get("state") == "running" and (
            not job.get("preemptible", True) or job.get("resizes_left") == 0
        )

    def _may_get(self, job: Row, place: tuple[Any, Any]) -> bool:
        """Whether the size, the type and the range of a job allow what it holds."""
        pool = self.pools[place[0]]
        return place[1] in self._sizes(job, pool) and (
            not job.get("gpu_types") or pool["gpu_type"] in job["gpu_types"]
        )

    def _fits(self, h: int, g: int, pool: str) -> bool:
        a, b, p = self.jobs[h], self.jobs[g], self.pools[pool]
        alike = a.get("tenant", "default") == b.get("tenant", "default")
        return bool(
            (a["model"], b["model"], p["gpu_type"]) in self.slow
            and p["sharing"] != "none"
            and (p["sharing"] == "any" or alike)
            and a["memory_gb"] + b["memory_gb"] <= p["memory_gb"]
        )

    def _pair(self, h: int, g: int, pool: str, k: int, here: bool) -> Pair:
        value, changed = 0.0, 0
        for me, other in ((h, g), (g, h)):
            job, gpu = self.jobs[me], self.pools[pool]["gpu_type"]
            holds = job.get("state") == "running" and (job["pool"], job["gpus"]) == (pool, k)
            stays = here or (me == h and holds)
            rate = (
                self.rate(job["model"], gpu, k)
                / self.slow[job["model"], self.jobs[other]["model"], gpu]
            )
            value += self._value_of_job(job, rate, 0.0 if stays else self._pause(job, pool))
            changed += job.get("state") == "running" and not stays
        return Pair(
            h, g, pool, k, value, k * self.pools[pool].get("price_per_gpu_hour", 0.0), changed
        )

    def _pause(self, job: Row, pool: str) -> float:
        restart = job.get("restart_s")
        again = self.config.get("restart_s", 30) if restart is None else restart
        return float(self.pools[pool].get("startup_s", 0)) + (
            again if job.get("state") == "running" else 0.0
        )

    def _value_of_job(self, job: Row, rate: float, pause: float) -> float:
        done = rate * max(0.0, self.config.get("interval_s", 300) - pause)
        return float(job.get("weight", 1) * min(1.0, done / job["remaining_work"]))

    def best(self) -> float | None:
        """Value of the best plan over all sets of pairs, None if no plan keeps every rule."""
        guarantee = {t: self.usable(t) for t in self.tenants}
        found = [
            v
            for pairs in matchings(self.pairs())
            if (v := self._with(pairs, guarantee)) is not None
        ]
        return max(found, default=None)

    def _with(self, pairs: Sequence[Pair], guarantee: Mapping[str, int]) -> float | None:
        """Best value with exactly these pairs."""
        self.choices = list(self.own)
        for p in pairs:
            changed: Any = p.changed
            self.choices[p.primary] = [Choice(p.pool, p.gpus, p.value, p.cost, changed)]
            self.choices[p.secondary] = [Choice(None, 0, 0.0, 0.0, False)]
        paired = {k for p in pairs for k in (p.primary, p.secondary)}
        record = self._search(lambda plan: self._judged(plan, paired, guarantee))
        self.choices = self.own
        return record

    def _judged(
        self, plan: Sequence[Choice], paired: set[int], guarantee: Mapping[str, int]
    ) -> float | None:
        """Value of a full plan: secondary jobs that run alone where their primary job stays have
        moved."""
        true = list(plan)
        for g, h in enumerate(self.other_job):
            job = self.jobs[g]
            place = (job.get("pool"), job.get("gpus"))
            here = [(plan[k].pool, plan[k].gpus) == place for k in (g, h)] if h >= 0 else [False]
            if not all(here):
                continue
            if self._locked(g) or g in paired or not self._may_get(job, place):
                return None
            rate = self.rate(job["model"], self.pools[str(plan[g].pool)]["gpu_type"], plan[g].gpus)
            true[g] = replace(
                plan[g],
                value=self._value_of_job(job, rate, self._pause(job, str(plan[g].pool))),
                changed=True,
            )
        if not self._allowed(true) or not all(
            self._gpus(true, t) >= u for t, u in guarantee.items()
        ):
            return None
        return sum(c.value for c in true)


def matchings(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, ...]]:
    """Every set of pairs in which no job is twice."""
    yield ()
    for i, p in enumerate(pairs):
        rest = [
            q for q in pairs[i + 1 :] if not {p.primary, p.secondary} & {q.primary, q.secondary}
        ]
        for more in matchings(rest):
            yield (p, *more)


def sharing_snapshot(seed: int, jobs: int = 4, rules: bool = True) -> Folder:
    """A random round with memory, slowdowns and pools that let jobs share; in some, two running
    jobs share already.
    """
    rng = np.random.default_rng(seed)
    base = random_snapshot(rng, jobs, rules=rules, pools=int(rng.integers(1, 3)))
    tables = {name: [dict(r) for r in rows] for name, rows in base.tables.items()}
    for p in tables["pools.csv"]:
        p |= {"memory_gb": 10.0, "sharing": str(rng.choice(["any", "any", "tenant", "none"]))}
        held = sum(j["gpus"] for j in tables["jobs.csv"] if j.get("pool") == p["pool"])
        # no lost GPUs: repairs are not the oracle's
        p["gpus"] = max(1, held, p["gpus"] // 2)
    for j in tables["jobs.csv"]:
        j |= {"memory_gb": float(rng.integers(1, 8)), "submitted_s": float(rng.integers(0, 100))}
    models = sorted({j["model"] for j in tables["jobs.csv"]})
    types = sorted({p["gpu_type"] for p in tables["pools.csv"]})
    tables["sharing.csv"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": t,
            "gpus": 1,
            "slowdown_a": float(rng.uniform(1, 1.4)),
            "slowdown_b": float(rng.uniform(1, 1.4)),
        }
        for a, b in itertools.combinations_with_replacement(models, 2)
        for t in types
        if rng.random() < 0.9
    ]
    if rules and rng.random() < 0.7:
        _join(rng, tables)
    return Folder("sharing", base.config, tables)


def _join(rng: np.random.Generator, tables: Mapping[str, list[dict[str, Any]]]) -> None:
    """A queued job becomes the secondary job of a running one, where the two can share."""
    primary = [j for j in tables["jobs.csv"] if j.get("state") == "running"]
    free = [j for j in tables["jobs.csv"] if j.get("state", "queued") == "queued"]
    if primary and free:
        h, g = primary[0], free[0]
        g |= {
            "state": "running",
            "pool": h["pool"],
            "gpus": h["gpus"],
            "shared_with": h["job_id"],
            "model": h["model"],
            "preemptible": bool(rng.random() < 0.5),
            "memory_gb": 10.0 - h["memory_gb"],
        }
        pool = next(p for p in tables["pools.csv"] if p["pool"] == h["pool"])
        pool["sharing"] = "any"
        tables["sharing.csv"].append(
            {
                "model_a": h["model"],
                "model_b": h["model"],
                "gpu_type": pool["gpu_type"],
                "gpus": 1,
                "slowdown_a": 1.1,
                "slowdown_b": 1.1,
            }
        )
