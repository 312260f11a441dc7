"""Tiny generated rounds, one per feature of the input: every column of every file, and every key of
config.toml.

`FEATURES` is the list; test_value_matrix.py crosses it with all objectives, and fails for a column
that no feature names. A feature is a function that changes a round of three jobs and two pools so
that the feature is active there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from builders import snapshot
from second_reading import Row

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES, TABLES
from allocator.domain.snapshot import Snapshot
from formulations.objectives import BUILT_IN as OBJECTIVES

MIXED = (
    "progress=2,response=0.5",
    "completion > progress",
    "flow > cost",
    "tardiness > makespan,fairness=2",
    "progress > cost=3,throughput > maxmin",
)
CROSSED = (*OBJECTIVES, *MIXED)  # single objectives, a sum, ranks
EVERY = frozenset(OBJECTIVES)


@dataclass
class Tables:
    """Rows of a round; further: tables by name."""

    jobs: list[Row]
    pools: list[Row]
    rates: list[Row]
    tenants: list[Row] = field(default_factory=list)
    config: Row = field(default_factory=dict)
    further: dict[str, list[Row]] = field(default_factory=dict)

    def problem(self) -> Problem:
        """The validated problem."""
        return validate(self.snapshot())

    def snapshot(self) -> Snapshot:
        """The tables and settings."""
        tenants = self.tenants or None
        return snapshot(
            self.jobs, self.pools, self.rates, tenants=tenants, config=self.config, **self.further
        )


Change = Callable[[np.random.Generator, Tables], None]


@dataclass(frozen=True)
class Feature:
    """columns: "jobs.csv: weight", "config.toml: now_s", "[profiling]: share". acts: objectives in
    which some option, or the best plan, has another value with the feature than without; in
    all others nothing changes."""

    name: str
    columns: tuple[str, ...]
    acts: frozenset[str]
    change: Change


FEATURES: dict[str, Feature] = {}


def feature(*columns: str, acts: Any = EVERY) -> Callable[[Change], Change]:
    """Put a function on the list."""

    def put(change: Change) -> Change:
        FEATURES[change.__name__] = Feature(change.__name__, columns, frozenset(acts), change)
        return change

    return put


def of_jobs(*names: str) -> tuple[str, ...]:
    return tuple(f"jobs.csv: {name}" for name in names)


def of_pools(*names: str) -> tuple[str, ...]:
    return tuple(f"pools.csv: {name}" for name in names)


def of(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}: {name}" for name in names)


def schema() -> set[str]:
    """Every column of a snapshot and every key of config.toml, by the names of
    `Feature.columns`.
    """
    return (
        {f"{file}: {c.name}" for file, table in TABLES.items() for c in table.columns}
        | {f"config.toml: {c.name}" for c in CONFIG}
        | {f"[{name}]: {c.name}" for name, columns in CONFIG_TABLES.items() for c in columns}
    )


def pick(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


BASE = frozenset(
    (
        *of_jobs(
            "job_id", "model", "submitted_s", "remaining_work", "max_gpus", "state", "pool", "gpus"
        ),
        *of_pools("pool", "gpu_type", "gpus", "price_per_gpu_hour", "price_per_gb_hour", "market"),
        *of("rates.csv", "model", "gpu_type", "gpus", "work_per_s"),
        "config.toml: now_s",
        "config.toml: objective",
        "config.toml: max_primaries",  # 1; several have an oracle of their own, group_rounds.py
    )
)
"""In every round."""


def base(seed: int) -> Tables:
    """Three jobs, one of them running, two GPU types, one pool on demand and one of spot GPUs; a
    round of 300 s.

    Speeds, weights and what is left are uneven numbers, so that no two plans have the same value by
    chance.
    """
    rng = np.random.default_rng([1, seed])
    pools = [
        {
            "pool": "p0",
            "gpu_type": "A",
            "gpus": pick(rng, 3, 4),
            "market": "on_demand",
            "price_per_gpu_hour": 1.3,
            "price_per_gb_hour": 0.7,  # counts where memory is known
        },
        {
            "pool": "p1",
            "gpu_type": "B",
            "gpus": pick(rng, 2, 3),
            "market": "spot",
            "price_per_gpu_hour": 0.4,
        },
    ]
    rates = [
        {
            "model": m,
            "gpu_type": t,
            "gpus": k,
            "work_per_s": round(float(fast * k ** rng.uniform(0.6, 0.95)), 4),
        }
        for m in ("m", "n")
        for t, fast in (("A", 1.0), ("B", 0.55))
        for k in (1, 2, 4)
    ]
    jobs = [
        {
            "job_id": f"j{i}",
            "model": m,
            "submitted_s": 1000.0,
            "max_gpus": 4,
            "requested_gpus": 2,
            "remaining_work": round(float(np.exp(rng.uniform(5.5, 9.5))), 3),
        }
        for i, m in enumerate("mnm")
    ]
    jobs[0] |= {"state": "running", "pool": "p0", "gpus": 2}
    return Tables(jobs, pools, rates, config={"now_s": 1000.0})


def made(name: str, seed: int, onto: Tables | None = None) -> Tables:
    """The round of that seed with the feature active, or another round with the feature on top."""
    tables = deepcopy(base(seed) if onto is None else onto)
    FEATURES[name].change(np.random.default_rng([2, seed, *name.encode()]), tables)
    return tables
