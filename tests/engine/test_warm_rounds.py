"""Rounds that use what the round before found: the same value within the gap, and a new proof.

Every feature of the input is crossed with an objective in turn; the long run crosses all of both.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from fakes.random_rounds import random_snapshot
from matrix import CROSSED, FEATURES, Tables, made

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.rounds import Rounds
from allocator.errors import Infeasible, InvalidInput
from allocator.options import previous_options
from allocator.options.option_table import list_options, option_table
from allocator.options.previous_options import PreviousOptions
from allocator.performance.sizes import estimate_sizes
from allocator.performance.table import RateTable
from allocator.solvers.base import SolveLimits

GAP = 1e-2
ROUNDS = 3


def edited(tables: Tables, rng: np.random.Generator) -> Tables:
    """The next round: work is done, one speed and one price are corrected, a job comes or goes."""
    out = deepcopy(tables)
    for job in out.jobs:
        job["remaining_work"] = round(float(job["remaining_work"]) * rng.uniform(0.7, 1.0), 3)
    rate, pool = (rows[int(rng.integers(len(rows)))] for rows in (out.rates, out.pools))
    if "work_per_s" in rate:
        rate["work_per_s"] = round(float(rate["work_per_s"]) * rng.uniform(0.9, 1.1), 4)
    if "price_per_gpu_hour" in pool:
        pool["price_per_gpu_hour"] = round(float(pool["price_per_gpu_hour"]) * 1.05, 4)
    if rng.random() < 0.5:
        new = {k: v for k, v in out.jobs[-1].items() if k not in ("state", "pool", "gpus")}
        out.jobs.append(new | {"job_id": f"new{rng.integers(1 << 30)}"})
    else:
        out.jobs.pop()
    return out


def check_warm_rounds(problems: list[Problem], cold_gap: float = 0.0) -> None:
    """Decide rounds one after the other, and compare each with a nearly best plan."""
    handle = Rounds(gap=GAP)
    for problem in problems:
        try:
            cold = decide(problem, limits=SolveLimits(gap=cold_gap))
        except Infeasible:
            continue
        warm = handle.decide(problem)
        value, close = cold.objective_value, 1e-6 * max(1e-3, abs(cold.objective_value))
        assert value - GAP * abs(value) - close <= warm.objective_value <= cold.bound + close
        assert warm.bound >= value - close


def with_another_job(tables: Tables, rng: np.random.Generator) -> Tables:
    """The same with one job that may have other sizes, stops, or takes the model of another one."""
    out = deepcopy(tables)
    if not out.jobs:
        return out
    job, other = (out.jobs[i] for i in rng.integers(len(out.jobs), size=2).tolist())
    what = int(rng.integers(4))
    if what == 0:
        job["max_gpus"] = 2 * int(job.get("max_gpus") or 4)
    elif what == 1:
        job["model"] = other["model"]
    elif what == 2:
        job["restart_s"] = round(float(rng.uniform(0, 90)), 2)
    else:
        for column in ("state", "pool", "gpus"):
            job.pop(column, None)
    return out


def rounds_of(
    name: str, objective: str, rounds: int = ROUNDS, changes_jobs: bool = False
) -> list[Problem]:
    """Rounds with a feature in an objective, with edits between them."""
    rng = np.random.default_rng([3, *name.encode(), *objective.encode()])
    tables, out = made(name, int(rng.integers(100))), []
    for _ in range(rounds):
        tables.config["objective"] = objective
        try:
            out.append(tables.problem())
        except InvalidInput:  # the edits contradict the feature
            break
        if not tables.jobs:
            break
        tables = edited(tables, rng)
        if changes_jobs:
            tables = with_another_job(tables, rng)
    return out


@pytest.fixture
def always_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the round before are used however few jobs have stayed as they were."""
    monkeypatch.setattr(previous_options, "MOST_CHANGED", 1.0)


def check_kept_options(problems: list[Problem]) -> None:
    """Each round has the same options from those of the round before and from nothing."""
    previous = PreviousOptions()
    for problem in map(estimate_sizes, problems):
        table = RateTable.of(problem)
        kept, fresh = previous.option_table(problem, table), option_table(problem, table)
        for name, column in vars(fresh).items():
            np.testing.assert_array_equal(getattr(kept, name), column, err_msg=name)


@pytest.mark.usefixtures("always_updates")
@pytest.mark.parametrize("name", FEATURES)
def test_kept_options_of_a_feature(name: str) -> None:
    """Whatever a job or a pool may have, an option table does not depend on the round before."""
    objective = CROSSED[list(FEATURES).index(name) % len(CROSSED)]
    check_kept_options(rounds_of(name, objective, 5, changes_jobs=True))


@pytest.mark.soak
@pytest.mark.usefixtures("always_updates")
@pytest.mark.parametrize("objective", CROSSED)
@pytest.mark.parametrize("name", FEATURES)
def test_kept_options_of_a_feature_in_every_objective(name: str, objective: str) -> None:
    """The same for every feature and objective."""
    check_kept_options(rounds_of(name, objective, 5, changes_jobs=True))


@pytest.mark.parametrize("seed", range(8))
def test_kept_options_of_random_rounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 40 jobs in any order, with other jobs, holdings, prices and speeds.

    Only the jobs that changed are listed again.
    """
    rng, problems, listed = np.random.default_rng(seed), [], []
    tables = random_snapshot(rng, 60).tables
    rows, pools = tables["jobs.csv"], tables["pools.csv"]
    now = [dict(row) for row in rows[:40]]
    for r in range(6):
        folder = random_snapshot(np.random.default_rng(seed), 60)
        folder.tables.update({"jobs.csv": deepcopy(now), "pools.csv": deepcopy(pools)})
        folder.tables["rates.csv"] = deepcopy(tables["rates.csv"])
        problems.append(validate(folder.snapshot()))
        rng.shuffle(now)
        now[int(rng.integers(len(now)))] = dict(rows[40 + r])
        for row in now:
            row["remaining_work"] = round(float(row["remaining_work"]) * rng.uniform(0.8, 1), 3)
        stopped = now[int(rng.integers(len(now)))]
        if stopped.get("state") == "running":
            stopped.update(state="queued", pool="", gpus="")
        rate = tables["rates.csv"][int(rng.integers(len(tables["rates.csv"])))]
        rate["work_per_s"] = float(rate["work_per_s"]) * rng.uniform(0.9, 1.1)
    monkeypatch.setattr(
        previous_options,
        "list_options",
        lambda problem, table, among=None: (
            listed.append(len(problem.jobs) if among is None else int(among.sum())),
            list_options(problem, table, among),
        )[1],
    )
    check_kept_options(problems)
    assert len(listed) == 6
    assert max(listed[1:]) <= 4


def test_kept_options_of_a_round_without_any() -> None:
    """After a round in which all jobs are held, one of them is released and has options."""
    tables = random_snapshot(np.random.default_rng(0), 6).tables
    rounds = []
    for released in (0, 1):
        folder = random_snapshot(np.random.default_rng(0), 6)
        rows = folder.tables["jobs.csv"] = deepcopy(tables["jobs.csv"])
        for row in rows:
            row.update(state="held", pool="", gpus="")
        if released:
            rows[0]["state"] = "queued"
        rounds.append(validate(folder.snapshot()))
    assert len(option_table(rounds[1], RateTable.of(rounds[1])))
    check_kept_options(rounds)


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_in_an_objective(name: str) -> None:
    """Warm rounds reach the best value within the gap, and no plan exceeds their bounds."""
    check_warm_rounds(rounds_of(name, CROSSED[list(FEATURES).index(name) % len(CROSSED)]))


@pytest.mark.soak
@pytest.mark.parametrize("objective", CROSSED)
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_in_every_objective(name: str, objective: str) -> None:
    """The same for every feature and objective."""
    check_warm_rounds(rounds_of(name, objective))


@pytest.mark.parametrize("seed", range(6))
def test_random_rounds(seed: int) -> None:
    """The same for rounds of 25 jobs with several rules at once."""
    rng, problems = np.random.default_rng(seed), []
    snapshot = random_snapshot(rng, 25).snapshot()
    for _ in range(ROUNDS):
        problems.append(validate(snapshot))
        table = snapshot.tables["jobs.csv"]
        left = [f"{float(x) * rng.uniform(0.8, 1.0):.6g}" for x in table.texts("remaining_work")]
        snapshot = snapshot.with_columns("jobs.csv", remaining_work=left)
    check_warm_rounds(problems, cold_gap=GAP / 10)
