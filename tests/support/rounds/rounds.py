"""Small random instances and exhaustive search over them, for tests of everything that works on
arrays.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from formulations.model import linear
from formulations.model.linear import Block, LinearModel
from formulations.model.single_round import Instance


def random_instance(
    rng: np.random.Generator, jobs: int = 4, pools: int = 2, tenants: int = 2, secondaries: int = 0
) -> Instance:
    """A round with every kind of row, and up to `secondaries` options of secondary jobs; some are
    infeasible.
    """
    rows = [
        (j, p, k)
        for j in range(jobs)
        for p in range(pools)
        for k in sorted(rng.choice([1, 2, 3, 4], rng.integers(0, 4), replace=False).tolist())
    ]
    n = len(rows)
    job_, pool_, gpus_ = np.array(rows, dtype=np.int64).reshape(n, 3).T.copy()
    keep, mandatory = np.zeros(n, dtype=bool), np.zeros(jobs, dtype=bool)
    for j in range(jobs):
        mine = np.flatnonzero(job_ == j)
        if len(mine) and rng.random() < 0.6:
            keep[rng.choice(mine)] = True
            mandatory[j] = rng.random() < 0.2
    kept = int(keep.sum())
    value = np.round(rng.random(n) * gpus_**0.7, 2) if n else np.zeros(0)
    zones = int(rng.integers(0, 3))
    price = rng.integers(0, 4, pools).astype(float)

    def some(share: float, low: int, high: int, none: float = np.inf) -> np.ndarray:
        """Limits of tenants, of which only a share has one."""
        return np.where(rng.random(tenants) < share, rng.integers(low, high, tenants), none)

    alone = Instance(
        value=value,
        start=np.searchsorted(job_, np.arange(jobs + 1)),
        job=job_,
        pool=pool_,
        gpus=gpus_,
        cost=gpus_ * price[pool_] if n else np.zeros(0),
        keep=keep,
        mandatory=mandatory,
        tenant=rng.integers(0, tenants, jobs),
        capacity=rng.integers(0, 7, pools),
        budget=float(rng.integers(2, 15)) if rng.random() < 0.5 else np.inf,
        quota=some(0.5, 1, 8),
        tenant_budget=some(0.3, 1, 12),
        guarantee=some(0.3, 1, 4, 0),
        least_kept=int(rng.integers(0, kept + 1)) if rng.random() < 0.4 else 0,
        zone=rng.integers(-1, zones, pools),
        exposure=some(0.5, 0, 5),
        jobs=[f"j{j}" for j in range(jobs)],
        pools=[f"p{p}" for p in range(pools)],
        tenants=[f"q{q}" for q in range(tenants)],
        zones=[f"z{z}" for z in range(zones)],
    )
    if rng.random() < 0.4:  # GPUs kept from a time on, when some options are done
        late = np.where(rng.random(n) < 0.6, gpus_, 0)
        most = np.maximum(0, alone.capacity - rng.integers(0, 4, pools)).astype(float)
        rows = Block.at_most(linear.RESERVATION, alone.pools, pool_, late, most)
        alone = replace(alone, rules=(rows,))
    return add_colocated_options(rng, alone, secondaries) if secondaries and n else alone


def add_colocated_options(rng: np.random.Generator, i: Instance, secondaries: int) -> Instance:
    """The round with options of secondary jobs, at most so many, of random jobs on random options;
    some are kept, some cost.
    """
    primary = rng.integers(0, len(i.job), secondaries)
    job = rng.integers(0, len(i.mandatory), secondaries)
    primary, job = primary[i.job[primary] != job], job[i.job[primary] != job]
    k = len(primary)
    order = np.argsort(np.append(i.job, job), kind="stable")
    place = np.argsort(order)  # where each option went
    parts = {
        "value": np.round(rng.uniform(-0.5, 2.0, k), 2),
        "job": job,
        "pool": i.pool[primary],
        "gpus": i.gpus[primary],
        "cost": np.zeros(k),
        "keep": rng.random(k) < 0.2,
    }
    both = {name: np.append(getattr(i, name), x)[order] for name, x in parts.items()}
    rules = tuple(
        Block.at_most(
            x.kind,
            x.labels,
            np.append(x.row, x.row[primary])[order],
            np.append(x.coef, np.zeros(k))[order],
            x.upper,
        )
        for x in i.rules
    )
    start = np.searchsorted(both["job"], np.arange(len(i.start)))
    secondary = place[len(i.job) :]
    colocations = np.stack([secondary, place[primary]])[:, np.argsort(secondary)]
    return replace(i, start=start, rules=rules, colocations=colocations, **both)


def best(model: LinearModel, start: np.ndarray) -> float | None:
    """Value of the best feasible 0/1 vector with at most one column per group, by trying all;
    None if there is none.
    """
    groups = [[-1, *range(a, b)] for a, b in itertools.pairwise(start.tolist())]
    top: float | None = None
    for pick in itertools.product(*groups):
        x = np.zeros(model.n)
        x[[c for c in pick if c >= 0]] = 1.0
        if model.feasible(x):
            value = float(model.value @ x)
            top = value if top is None else max(top, value)
    return top
