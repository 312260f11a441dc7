"""Tiny rounds in which jobs may share GPUs, and their best value by trying every plan.

The audit, which has code of its own, judges and values each plan. Slowdowns of the rounds stay
below 1.4, where sharing is better than waiting whatever the lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from cases.folders import Folder
from fakes.random_rounds import random_snapshot

from allocator.audit import audit
from allocator.domain.allocation import Allocation
from allocator.domain.problem import Problem
from allocator.options.instance_building import compile_round
from allocator.performance.table import RateTable


def plans(p: Problem) -> Iterator[Allocation]:
    """Everything that might be a plan: whatever each job may hold by itself, and each pair with
    either as primary job. (Two pairs need four jobs.)"""
    table, J = RateTable.of(p), len(p.jobs)
    places = [(q, k) for q in range(len(p.pools)) for k in range(1, int(p.pools.gpus[q]) + 1)]
    row: dict[tuple[int, int, int], int] = {}
    for j, (q, k) in itertools.product(range(J), places):
        holds = np.array(
            [bool(p.jobs.state[j] == 1 and (p.jobs.pool[j], p.jobs.gpus[j]) == (q, k))]
        )
        rate, at = table.rate(
            p.jobs.model[[j]], p.pools.gpu_type[[q]], np.array([k]), p.pools.memory_gb[[q]], holds
        )
        if rate[0] > 0:
            row[j, q, k] = int(at[0])
    choices = [[None, *(place for place in places if (j, *place) in row)] for j in range(J)]
    pairs: list[tuple[int, int] | None] = [None, *itertools.permutations(range(J), 2)]
    for pair in pairs:
        for got in itertools.product(
            *([None] if pair and pair[1] == j else choices[j] for j in range(J))
        ):
            a = Allocation(np.full(J, -1), np.zeros(J, np.int64), np.full(J, -1), np.full(J, -1))
            for j, place in enumerate(got):
                if place:
                    a.pool[j], a.gpus[j], a.row[j] = *place, row[j, place[0], place[1]]
            if pair:
                h, g = pair
                if a.pool[h] < 0 or (g, int(a.pool[h]), int(a.gpus[h])) not in row:
                    continue
                a.pool[g], a.gpus[g], a.primary[g] = a.pool[h], a.gpus[h], h
                a.row[g] = row[g, int(a.pool[h]), int(a.gpus[h])]
            on = a.pool >= 0
            if (np.bincount(a.pool[on], a.held[on], len(p.pools)) <= p.pools.gpus).all():
                yield a


def best_of_all(p: Problem) -> float | None:
    """Value of the best plan that the audit accepts, None if there is none."""
    mended = compile_round(p, prunes=False).repairs
    judged = (audit(p, a, mended) for a in plans(p))
    return max((j.objective_value for j in judged if not j.faults), default=None)


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
        # no lost GPUs: repairs are tested elsewhere
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
