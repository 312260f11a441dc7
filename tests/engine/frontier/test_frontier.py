"""Time-cost frontiers against all plans of tiny rounds, and by hand."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from commands import Output, call
from examples import seeds
from matrix import base
from places import ROOT
from second_values import Reading

from allocator.domain.problem import Problem
from allocator.engine.frontier.jobs import job_ways, jobs_frontier
from allocator.engine.frontier.rounds import keep, round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.solvers.base import SolveLimits
from formulations.bounds.budget_curve import open_intervals

EXACT = Effort(SolveLimits(gap=0.0), None, 500)
SHIPPED = ROOT / "data" / "snapshots"
RATES = {1: 1.0, 2: 1.6, 4: 2.0}


def tiny(seed: int) -> tuple[Problem, list[tuple[float, float]]]:
    """A round of three jobs in two pools, and (dollars per hour, value) of every plan that keeps
    its rules. In every second one a job may not be stopped: budgets begin above zero."""
    r = base(seed)
    r.config["objective"] = "progress"
    r.jobs[0]["preemptible"] = bool(seed % 2)
    told = Reading(r.jobs, r.pools, r.rates, r.tenants, r.config, r.further)
    plans = [
        (
            sum(k * told.price(told.by[name], (p, k)) for name, (p, k) in gets.items()),
            told.value_of(gets),
        )
        for gets in told.plans()
    ]
    return r.problem(), plans


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_the_frontier_is_that_of_all_plans(seed: int) -> None:
    """At every sum that some plan costs, and just below it, the frontier has the best plan's
    value; it ends proven.
    """
    made, plans = tiny(seed)
    found = round_frontier(made, EXACT)
    solves = found.found.solves
    least = min(cost for cost, _ in plans)
    assert [found.found.least, found.found.points.spent[0]] == pytest.approx([least, least])
    for cost in sorted({cost for cost, _ in plans}):
        for budget in (cost + 1e-6, cost - 1e-3):
            wanted = max((v for c, v in plans if c <= budget + 1e-9), default=-math.inf)
            assert solves.lower(np.array([budget]))[0] == pytest.approx(wanted), budget
            if budget >= least:
                assert solves.upper(np.array([budget]))[0] >= wanted - 1e-9
    assert found.found.open_share <= 1e-6 and not open_intervals(solves)


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_keep_is_the_cheapest_of_all_plans(seed: int) -> None:
    """No plan that reaches the target is cheaper, for every value that some plan has (and a little
    less).
    """
    made, plans = tiny(seed)
    values = sorted({value for _, value in plans})
    for target in [*values[:: max(1, len(values) // 3)], values[-1], 0.97 * values[-1]]:
        found = keep(made, EXACT, target)
        cheapest = min(cost for cost, value in plans if value >= target - 1e-9)
        assert found.spent == pytest.approx(cheapest, rel=1e-6, abs=1e-6)
        assert found.result.objective_value >= target - 1e-9
        assert found.least == pytest.approx(cheapest, rel=1e-6, abs=1e-6)


def test_reserved_pools_add_nothing() -> None:
    """One GPU reserved at 5 $/h, one on demand at 1 $/h, one job that wants one: by listed prices
    the second is cheaper, by what is added to the bill the first is free."""
    made = problem(
        [{"max_gpus": 1}],
        [
            {"gpus": 1, "market": "reserved", "price_per_gpu_hour": 5},
            {"gpus": 1, "market": "on_demand", "price_per_gpu_hour": 1},
        ],
    )
    listed, added = (keep(made, EXACT, 1.0, True, dollars=d) for d in ("listed", "added"))
    assert (listed.spent, listed.result.jobs["pool"]) == (1.0, ["p1"])
    assert (added.spent, added.result.jobs["pool"]) == (0.0, ["p0"])
    assert round_frontier(made, EXACT, dollars="added").added.tolist() == [0.0]


POOLS = (
    {"gpus": 4, "price_per_gpu_hour": 1, "market": "on_demand"},
    {
        "gpus": 4,
        "price_per_gpu_hour": 0.5,
        "market": "spot",
        "startup_s": 360,
        "min_billing_s": 3600,
        "availability": 1,
        "gpu_type": "B",
        "region": "z",
    },
)


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_jobs_together_are_the_best_of_all_combinations(seed: int) -> None:
    """Two or three jobs: every sum of dollars of every combination within the pools; corners
    without limits lie on the lower hull of all combinations."""
    rng = np.random.default_rng(seed)
    jobs = [
        {"remaining_work": w, "max_gpus": 4, "weight": rng.integers(1, 4)}
        for w in rng.integers(600, 8000, int(rng.integers(2, 4)))
    ]
    made = problem(jobs, POOLS, RATES)
    ways = job_ways(made, made.jobs.job_id)
    found = jobs_frontier(made, ways, EXACT)
    combos = []
    for combo in itertools.product(
        *(np.flatnonzero(ways.job == j).tolist() for j in range(len(jobs)))
    ):
        at = np.array(combo)
        hours = float((ways.weight[ways.job[at]] * ways.hours[at]).sum())
        used = np.bincount(ways.pool[at], ways.gpus[at], 2)
        combos.append((float(ways.dollars[at].sum()), hours, bool((used <= 4).all())))
    assert found.found is not None
    solves = found.found.solves
    for dollars, _, fits in combos:
        if fits:
            wanted = min(h for d, h, ok in combos if ok and d <= dollars + 1e-9)
            assert -solves.lower(np.array([dollars + 1e-6]))[0] == pytest.approx(wanted)
    for x, h, mu in zip(found.free.dollars, found.free.hours, found.free.mu, strict=True):
        price = min(mu, 1e6)
        assert h + price * x == pytest.approx(min(hours + price * d for d, hours, _ in combos))
    assert all(row["weighted_hours"] >= row["without_limits"] - 1e-9 for row in found.plans())
    assert all(row["bound"] <= row["weighted_hours"] for row in found.plans())


DEMO = SHIPPED / "demo"


def written(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_command(capsys: Output, tmp_path: Path) -> None:
    """Table, CSV, JSON and files of a round; the plan of --keep is a plan folder like any other."""
    curve, kept = tmp_path / "curve", tmp_path / "kept"
    code, out, _ = call(capsys, "frontier", DEMO, "--points", 8, "--format", "csv", "--out", curve)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[-1]["value"]) == pytest.approx(7.44) and rows[0]["gpus:a100"] == "0"
    assert written(curve) == {"frontier.csv", "frontier.json", "frontier.svg"}
    assert ">budget of the snapshot</text>" in (curve / "frontier.svg").read_text()
    code, out, err = call(
        capsys, "frontier", DEMO, "--keep", "95%", "--format", "json", "--out", kept
    )
    plan = json.loads((kept / "plan.json").read_text())
    assert code == 0 and plan == json.loads(out) and "no plan that keeps it spends less than" in err
    assert plan["objective_value"] >= 0.95 * 7.44 and plan["budget"]["spent_per_hour"] == 18


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "--jobs pretrian,nothing-like-it,nightly,nightly",
            2,
            ['did you mean "pretrain"', "nothing-like-it", "twice"],
        ),
        ("--keep=120%", 2, ["120%"]),
        ("--max-budget -1", 2, ["-1"]),
        ("--keep 99", 4, ["7.44"]),
    ],
)
def test_bad_calls(words: str, code: int, said: list[str], capsys: Output) -> None:
    """All faults at once, each with the right exit code, never a traceback."""
    found, out, err = call(capsys, "frontier", DEMO, *words.split())
    assert (found, out) == (code, "") and all(text in err for text in said)


def test_command_for_jobs(capsys: Output, tmp_path: Path) -> None:
    """What two jobs take together, with the ways of each in a file of their own."""
    code, out, _ = call(capsys, "frontier", DEMO, "--jobs", "pretrain,llm-tune", "--out", tmp_path)
    assert code == 0 and "pretrain" in out
    assert written(tmp_path) == {"frontier.csv", "ways.csv", "frontier.json", "frontier.svg"}
    assert len(json.loads((tmp_path / "frontier.json").read_text())["corners"]) == 6
