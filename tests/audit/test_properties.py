"""Properties every decision must have, on random rounds with every rule on."""

from __future__ import annotations

import numpy as np
import pytest
from examples import count, series
from fakes.random_rounds import random_snapshot

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot, Table
from allocator.engine.decision import decide
from allocator.errors import Infeasible
from allocator.policies.base import POLICIES
from allocator.solvers.base import SolveLimits

EXACT = SolveLimits(gap=0.0)


def rounds(n: int, jobs: int = 8, first: int = 0) -> list[tuple[Snapshot, Problem, Plan]]:
    """n decided random rounds at gap 0; rounds whose rules clash are left out."""
    out = []
    seed = first
    while len(out) < n:
        s = random_snapshot(np.random.default_rng(seed), jobs).snapshot()
        seed += 1
        p = validate(s)
        try:
            out.append((s, p, decide(p, limits=EXACT)))
        except Infeasible:
            continue
    return out


@pytest.fixture(scope="module")
def decided() -> list[tuple[Snapshot, Problem, Plan]]:
    return rounds(count(5, 25))


def test_no_policy_beats_the_proven_bound(decided: list[tuple[Snapshot, Problem, Plan]]) -> None:
    """Every policy keeps the rules (the audit says so), stays below mip's value at gap 0, and
    carries a valid bound.
    """
    for _, p, r in decided[: count(1, 4)]:
        assert r.status == "optimal" and r.bound >= r.objective_value
        for name in POLICIES:
            other = decide(p, policy=name)
            assert other.objective_value <= r.objective_value + 1e-9
            assert other.bound >= r.objective_value - 1e-9


@pytest.mark.parametrize("gap", series([1e-4, 0.0, 0.05], 1))
def test_applying_a_plan_and_deciding_again_changes_nothing(gap: float) -> None:
    """Jobs hold what the plan gave them; at the same moment the next decision keeps and waits,
    nothing else.
    """
    for s, p, _ in rounds(count(6, 20), 12, 1000):
        r = decide(p, limits=SolveLimits(gap=gap))
        again = decide(validate(applied(s, r)), limits=SolveLimits(gap=gap))
        assert set(again.jobs["action"]) <= {"keep", "wait"}


def applied(s: Snapshot, r: Plan) -> Snapshot:
    """The snapshot in which every job holds what the plan gave it."""
    jobs = s.tables["jobs.csv"]
    columns = {c: list(v) for c, v in jobs.columns.items()}
    for name in ("state", "pool", "gpus"):
        columns.setdefault(name, [""] * len(jobs))
    for j, (pool, gpus) in enumerate(zip(r.jobs["pool"], r.jobs["gpus"], strict=True)):
        was = columns["state"][j]
        columns["state"][j] = (
            "running" if pool else ("paused" if was in ("running", "paused") else was)
        )
        columns["pool"][j], columns["gpus"][j] = (pool, str(gpus)) if pool else ("", "")
    tables = {**s.tables, "jobs.csv": Table("jobs.csv", columns, jobs.lines)}
    tables.pop("placements.csv", None)  # they say where the jobs of the old plan sat
    return Snapshot(s.name, s.config, tables)
