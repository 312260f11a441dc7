"""Time-cost frontiers against all plans of tiny rounds, and by hand."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot, write_folder
from commands import Output, call
from examples import seeds
from places import FAULTY, ROOT
from second_values import Reading

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.frontier.jobs import jobs_frontier
from allocator.engine.frontier.rounds import keep, round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.engine.frontier.ways import job_ways
from allocator.errors import Infeasible, UsageError
from allocator.solvers.base import SolveLimits
from formulations.bounds.budget_curve import open_intervals

EXACT = Effort(SolveLimits(gap=0.0), None, 500)
SHIPPED = ROOT / "data" / "snapshots"
RATES = {1: 1.0, 2: 1.6, 4: 2.0}


def tiny(seed: int) -> tuple[Problem, list[tuple[float, float]]]:
    """A round of three or four jobs in two pools, and (dollars per hour, value) of every plan
    that keeps its rules.
    """
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = [
        {
            "job_id": f"j{j}",
            "model": "m",
            "submitted_s": 0,
            "max_gpus": 4,
            "weight": int(rng.integers(1, 4)),
            "remaining_work": int(rng.integers(200, 2000)),
        }
        for j in range(int(rng.integers(3, 5)))
    ]
    pools = [
        {
            "pool": "p0",
            "gpu_type": "A",
            "gpus": 4,
            "price_per_gpu_hour": float(rng.integers(1, 5)),
            "market": "on_demand",
        },
        {
            "pool": "p1",
            "gpu_type": "B",
            "gpus": int(rng.integers(1, 4)),
            "startup_s": 60,
            "price_per_gpu_hour": float(rng.choice([0.0, 0.5, 1.5])),
            "market": "reserved",
        },
    ]
    # it may not be stopped: budgets begin above zero
    if rng.random() < 0.5:
        jobs[0] |= {"state": "running", "pool": "p0", "gpus": 2, "preemptible": False}
    rates = [
        {"model": "m", "gpu_type": t, "gpus": k, "work_per_s": s * r}
        for t, s in (("A", 1.0), ("B", 0.7))
        for k, r in RATES.items()
    ]
    r = Reading(jobs, pools, rates, [], {})
    plans = [
        (sum(k * r.price(r.by[name], (p, k)) for name, (p, k) in gets.items()), r.value_of(gets))
        for gets in r.plans()
    ]
    return validate(snapshot(jobs, pools, rates)), plans


def best(plans: list[tuple[float, float]], budget: float) -> float:
    return max((value for cost, value in plans if cost <= budget + 1e-9), default=-math.inf)


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_the_frontier_is_that_of_all_plans(seed: int) -> None:
    """At every sum that some plan costs, and just below it, the frontier has the best plan's
    value; it ends proven.
    """
    made, plans = tiny(seed)
    found = round_frontier(made, EXACT)
    solves = found.found.solves
    least = min(cost for cost, _ in plans)
    assert found.found.least == pytest.approx(least) and found.spent[0] == pytest.approx(least)
    for cost in sorted({cost for cost, _ in plans}):
        for budget in (cost + 1e-6, cost - 1e-3):
            wanted = best(plans, budget)
            assert solves.lower(np.array([budget]))[0] == pytest.approx(wanted), budget
            if budget >= least:
                assert solves.upper(np.array([budget]))[0] >= wanted - 1e-9
    assert found.found.open_share <= 1e-6 and not open_intervals(solves)


@pytest.mark.parametrize("seed", [12, 13])
def test_with_few_points_it_is_still_a_bound(seed: int) -> None:
    """Five solves: values and bounds rise, and nothing that exists lies above the bound."""
    made, plans = tiny(seed)
    found = round_frontier(made, Effort(SolveLimits(), None, 5))
    assert len(found.found.answers) <= 5
    assert (
        (np.diff(found.value) > 0).all()
        and (np.diff(found.spent) > 0).all()
        and (np.diff(found.bound) >= 0).all()
    )
    assert (found.bound >= found.value).all() and (found.price >= 0).all()
    x, upper = found.curve()
    assert (np.diff(upper) >= -1e-9).all()
    for b, u in zip(x.tolist(), upper.tolist(), strict=True):
        assert u >= best(plans, b - 2e-9) - 1e-9


def test_the_largest_budget_is_the_end() -> None:
    """max_budget: the last plan is the best of that budget; below the least there is none."""
    made, plans = tiny(0)
    top = float(np.median([cost for cost, _ in plans]))
    found = round_frontier(made, EXACT, max_budget=top)
    assert found.value[-1] == pytest.approx(best(plans, top)) and found.spent[-1] <= top + 1e-9
    fixed = problem(
        [{"state": "running", "pool": "p0", "gpus": 2, "preemptible": False}],
        [{"price_per_gpu_hour": 3}],
    )
    with pytest.raises(Infeasible):
        round_frontier(fixed, EXACT, max_budget=5)


@pytest.mark.parametrize("seed", seeds(2, 20))
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
        assert found.result.objective_value >= target - 1e-9 and found.least <= cheapest + 1e-9
        assert found.least == pytest.approx(cheapest, rel=1e-6, abs=1e-6)


def test_keep_a_share() -> None:
    """Two like jobs at 1 $/h each: half of the progress costs half of the dollars; more than all
    there is does not exist, and the message says what does."""
    made = problem(
        [{"remaining_work": 3000, "max_gpus": 1}] * 2, [{"gpus": 2, "price_per_gpu_hour": 1}]
    )
    half = keep(made, EXACT, 0.5, True)
    assert (half.best_value, half.best_spent, half.target, half.spent) == pytest.approx(
        (0.2, 2.0, 0.1, 1.0)
    )
    assert half.least == pytest.approx(1.0) and half.result.budget.spent_per_hour == pytest.approx(
        1.0
    )
    with pytest.raises(Infeasible, match=r"0\.3.*0\.2"):
        keep(made, EXACT, 0.3)


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
    assert (
        added.result.jobs["cost_per_hour"] == [5.0]
        and added.result.bound >= added.result.objective_value
    )
    assert round_frontier(made, EXACT, dollars="added").added.tolist() == [0.0]
    poor = problem([{"max_gpus": 1}], tenants=[{"tenant": "default", "budget_per_hour": 3}])
    with pytest.raises(UsageError, match="default"):
        round_frontier(poor, EXACT, dollars="added")


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


def test_one_job_by_hand() -> None:
    """3600 units of work at 1, 1.6 and 2 per second: hours and dollars of every way, the front
    and its hull.
    """
    made = problem([{"remaining_work": 3600, "max_gpus": 4}], POOLS, RATES)
    ways = job_ways(made, ["j0"])
    got = {
        (int(p), int(k)): (h, c)
        for p, k, h, c in zip(ways.pool, ways.gpus, ways.hours, ways.dollars, strict=True)
    }
    wanted = {
        (0, 1): (1.0, 1.0),
        (0, 2): (0.625, 1.25),
        (0, 4): (0.5, 2.0),
        # an hour is billed at least
        (1, 1): (1.1, 0.55),
        (1, 2): (0.725, 1.0),
        (1, 4): (0.6, 2.0),
    }
    assert got.keys() == wanted.keys()
    assert all(got[key] == pytest.approx(wanted[key]) for key in wanted)
    assert ways.front.tolist() == [False, True, True, True, True, False] == ways.hull.tolist()
    found = jobs_frontier(made, ways, EXACT)
    assert found.found is None
    assert found.free.mu.tolist() == pytest.approx(
        [math.inf, 0.375 / 0.45, 0.1 / 0.25, 0.125 / 0.75]
    )


def test_spot_counts_what_is_useful_and_when_it_can_be_had() -> None:
    """One revocation an hour, 360 s to replace: an asynchronous job works 1/1.1 of the time and
    pays for all of it; GPUs that can be had half of the time take twice as long and cost the same.
    """
    spot = dict(POOLS[1], revocations_per_gpu_hour=1, min_billing_s=0)
    job = {"remaining_work": 3600, "max_gpus": 1, "synchronous": False, "restart_s": 0}
    for availability, hours in ((1, 0.1 + 1.1), (0.5, 0.1 + 2.2)):
        ways = job_ways(problem([job], [dict(spot, availability=availability)], RATES), ["j0"])
        assert (ways.useful_share[0], ways.hours[0], ways.dollars[0]) == pytest.approx(
            (1 / 1.1, hours, 0.5 * 1.2)
        )


def test_a_running_job_pays_for_changing_only() -> None:
    """Keeping has no pause and no least bill; changing pauses for restart and start-up."""
    job = {
        "remaining_work": 1800,
        "max_gpus": 2,
        "state": "running",
        "pool": "p0",
        "gpus": 1,
        "restart_s": 180,
    }
    pool = {"price_per_gpu_hour": 1, "startup_s": 180, "min_billing_s": 7200, "market": "on_demand"}
    ways = job_ways(problem([job], [pool], RATES), ["j0"])
    assert ways.hours.tolist() == pytest.approx([0.5, 0.1 + 0.5 / 1.6])
    assert ways.dollars.tolist() == pytest.approx([0.5, 2 * 2.0])


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_jobs_together_are_the_best_of_all_combinations(seed: int) -> None:
    """Two or three jobs: every sum of dollars of every combination within the pools; corners
    without limits lie on the lower hull of all combinations."""
    rng = np.random.default_rng(seed)
    jobs = [
        {
            "remaining_work": int(rng.integers(600, 8000)),
            "max_gpus": 4,
            "weight": int(rng.integers(1, 4)),
        }
        for _ in range(int(rng.integers(2, 4)))
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
        price = mu if math.isfinite(mu) else 1e6
        assert h + price * x == pytest.approx(min(hours + price * d for d, hours, _ in combos))
    assert all(row["weighted_hours"] >= row["without_limits"] - 1e-9 for row in found.plans())
    assert all(row["bound"] <= row["weighted_hours"] for row in found.plans())


DEMO = SHIPPED / "demo"


def table(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def written(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_command(capsys: Output, tmp_path: Path) -> None:
    """Table, CSV, JSON and files of a round; the plan of --keep is a plan folder like any other."""
    curve, kept = tmp_path / "curve", tmp_path / "kept"
    code, out, err = call(capsys, "frontier", DEMO, "--points", 4)
    assert (code, err) == (0, "") and "listed prices" in out
    code, out, _ = call(capsys, "frontier", DEMO, "--points", 8, "--format", "csv", "--out", curve)
    rows = table(out)
    assert float(rows[-1]["value"]) == pytest.approx(7.44) and rows[0]["gpus:a100"] == "0"
    assert written(curve) == {"frontier.csv", "frontier.json", "frontier.svg"}
    assert ">budget of the snapshot</text>" in (curve / "frontier.svg").read_text()
    document = json.loads((curve / "frontier.json").read_text())
    assert len(document["plans"]) == len(rows) and document["solves"] == 8
    code, out, err = call(
        capsys, "frontier", DEMO, "--keep", "95%", "--format", "json", "--out", kept
    )
    plan = json.loads((kept / "plan.json").read_text())
    assert code == 0 and plan == json.loads(out) and "no plan that keeps it spends less than" in err
    assert plan["objective_value"] >= 0.95 * 7.44 and plan["budget"]["spent_per_hour"] == 18
    assert json.loads((kept / "keep.json").read_text())["spent_per_hour"] == 18


def test_command_for_jobs(capsys: Output, tmp_path: Path) -> None:
    """One job: its ways; two: what they take together, a column per job; the ways in a file of
    their own.
    """
    rows = table(call(capsys, "frontier", DEMO, "--jobs", "pretrain", "--format", "csv")[1])
    assert [r["gpus"] for r in rows] == ["1", "2", "4", "8"] and rows[2]["hours"] == "10.0"
    two, both = ("frontier", DEMO, "--jobs", "pretrain,llm-tune"), tmp_path / "two"
    rows = table(call(capsys, *two, "--format", "csv", "--out", both)[1])
    assert rows[0]["jobs:pretrain"] == "1 x a100"
    assert written(both) == {"frontier.csv", "ways.csv", "frontier.json", "frontier.svg"}
    assert len(json.loads((both / "frontier.json").read_text())["corners"]) == 6
    assert call(capsys, *two)[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "--jobs pretrian,nothing-like-it,nightly,nightly",
            2,
            ['did you mean "pretrain"', "nothing-like-it", "twice"],
        ),
        (
            "--jobs pretrain --keep 5 --max-budget 3 --objective cost",
            2,
            ["--keep", "--max-budget", "--objective"],
        ),
        *((f"--keep={wrong}", 2, [wrong]) for wrong in ("120%", "-1%", "much", "nan", "inf", "%")),
        ("--points 1", 2, ["1"]),
        ("--objective speed", 2, ["speed"]),
        ("--solver gurobi", 2, ["gurobi"]),
        ("--max-budget -1", 2, ["-1"]),
        ("--dollars real", 2, ["real"]),
        ("--jobs ,", 2, [","]),
        ("--keep 99", 4, ["7.44"]),
    ],
)
def test_bad_calls(words: str, code: int, said: list[str], capsys: Output) -> None:
    """All faults at once, each with the right exit code, never a traceback."""
    found, out, err = call(capsys, "frontier", DEMO, *words.split())
    assert (found, out) == (code, "") and all(text in err for text in said)


def test_bad_rounds(capsys: Output, tmp_path: Path) -> None:
    """Faults in files, rules that clash, jobs that do not fit together or may not start."""
    assert call(capsys, "frontier", FAULTY / "fault-negative-price")[0] == 3
    assert call(capsys, "frontier", FAULTY / "infeasible-guarantee-above-quota")[0] == 4
    two = [{"min_gpus": 8}, {"min_gpus": 8}, {"state": "held"}]
    folder = write_folder(snapshot(two), tmp_path / "two")
    code, _, err = call(capsys, "frontier", folder, "--jobs", "j0,j1")
    assert code == 4 and "all 2 jobs at the same time" in err
    code, _, err = call(capsys, "frontier", folder, "--jobs", "j0,j2")
    assert code == 2 and '"j2" cannot start now' in err
