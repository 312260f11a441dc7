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
from functools import partial
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
    rng: np.random.Generator = field(default_factory=np.random.default_rng)  # of the feature

    def pick(self, *values: Any) -> Any:
        """One of the values, drawn for the feature."""
        return pick(self.rng, *values)

    def cells(self) -> dict[str, list[Any]]:
        """Values by column: "jobs.csv: weight", "config.toml: now_s", "[profiling]: share"."""
        tables = {"jobs": self.jobs, "pools": self.pools, "rates": self.rates}
        found: dict[str, list[Any]] = {}
        for name, rows in {**tables, "tenants": self.tenants, **self.further}.items():
            for row in rows:
                for column, value in row.items():
                    found.setdefault(f"{name}.csv: {column}", []).append(value)
        for name, value in self.config.items():
            for key in value if isinstance(value, dict) else ():
                found[f"[{name}]: {key}"] = value[key]
            found |= {} if isinstance(value, dict) else {f"config.toml: {name}": value}
        return found

    def problem(self) -> Problem:
        """The validated problem."""
        return validate(self.snapshot())

    def snapshot(self) -> Snapshot:
        """The tables and settings."""
        tenants = self.tenants or None
        return snapshot(
            self.jobs, self.pools, self.rates, tenants=tenants, config=self.config, **self.further
        )


Change = Callable[[Tables], None]


@dataclass(frozen=True)
class Feature:
    """acts: objectives in which some option, or the best plan, has another value with the feature
    than without; in all others nothing changes."""

    name: str
    acts: frozenset[str]
    change: Change

    @property
    def columns(self) -> set[str]:
        """What the feature changes: "jobs.csv: weight", "config.toml: now_s"."""
        pairs = [(base(n).cells(), made(self.name, n).cells()) for n in range(4)]
        return {c for was, now in pairs for c, cells in now.items() if was.get(c) != cells}


FEATURES: dict[str, Feature] = {}


def feature(change: Change | None = None, *, acts: Any = EVERY) -> Any:
    """Put a function on the list, which makes its feature active in a round."""
    if change is None:
        return partial(feature, acts=acts)
    FEATURES[change.__name__] = Feature(change.__name__, frozenset(acts), change)
    return change


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
    tables.rng = np.random.default_rng([2, seed, *name.encode()])
    FEATURES[name].change(tables)
    return tables


# in every round; several primary jobs have an oracle of their own, group_rounds.py
BASE = {*base(0).cells(), "config.toml: objective", "config.toml: max_primaries"}
