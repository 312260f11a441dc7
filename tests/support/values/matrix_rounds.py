"""Tiny generated rounds, one per feature of the input: every column of every file, and every key of
config.toml.

`FEATURES` is the list; test_value_matrix.py crosses it with all objectives, and fails for a column
that no feature changes. A feature is a change of a round of three jobs and two pools, by which it
is active there: data of features.toml, or a function of matrix.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from builders import snapshot
from fakes.random_rounds import pick
from second_objectives import RISKY
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
LISTS = ("sizes", "gpu_types", "after", "modes")


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


def apply(name: str, r: Tables) -> None:
    """Make a feature of the list active."""
    FEATURES[name].change(r)


def read_features() -> None:
    """Put the features of features.toml on the list."""
    text = (Path(__file__).parent / "features.toml").read_text()
    for name, change in tomllib.loads(text).items():
        asked = change.pop("acts", EVERY)
        acts = set(RISKY if asked == ["RISKY"] else asked) - set(change.pop("except", ()))
        FEATURES[name] = Feature(name, frozenset(acts), partial(change_by_data, change))


def change_by_data(change: Row, r: Tables) -> None:
    """Change a round as a table of features.toml says."""
    for name, edits in change.items():
        if name == "onto":
            for other in edits.split():
                apply(other, r)
        elif name == "more_rates":
            r.rates += [row | {c: draw(r, c, v, row) for c, v in edits.items()} for row in r.rates]
        elif name == "config":
            r.config |= {key: draw(r, key, value) for key, value in edits.items()}
        elif name == "tenants":
            r.tenants[:] = [{c: draw(r, c, v) for c, v in row.items()} for row in edits]
        elif rows := getattr(r, name, None):
            for number, values in edits.items():
                for row in rows if number == "all" else [rows[int(number)]]:
                    row |= {column: draw(r, column, value, row) for column, value in values.items()}
        else:
            r.further[name] = deepcopy(edits)


def draw(r: Tables, column: str, value: Any, row: Row | None = None) -> Any:
    """A value of features.toml: one of a list, drawn from a range, or as it is."""
    if isinstance(value, dict) and {"from", "to"} <= value.keys():
        drawn = float(r.rng.uniform(value["from"], value["to"]))
        unit = row[value["times"]] if row and "times" in value else 1.0
        return round(value.get("plus", 0.0) + drawn * unit, 3)
    if isinstance(value, list):
        value = r.pick(*value)
    if row and column in LISTS:
        return [int(v) if column == "sizes" else v for v in value.split("|")]
    return None if value == "" else value


def schema() -> set[str]:
    """Every column of a snapshot and every key of config.toml, by the names of
    `Feature.columns`.
    """
    return (
        {f"{file}: {c.name}" for file, table in TABLES.items() for c in table.columns}
        | {f"config.toml: {c.name}" for c in CONFIG}
        | {f"[{name}]: {c.name}" for name, columns in CONFIG_TABLES.items() for c in columns}
    )


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


read_features()
