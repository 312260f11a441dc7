"""Conformance suite of policies: every entry of the registry, present and future, passes all of it.

All hard rules on random rounds and by hand, no plan where mip has none and the same conflict
named, the same bytes for the same input, the same plan whatever jobs and pools are called and in
which order they come, every job decided once, history of any kind, time limits, nothing to decide.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from builders import problem
from cases.folders import Folder
from examples import count, series
from fakes.random_rounds import random_snapshot
from text_tables import given
from waiting import in_time

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine import decision
from allocator.engine.decision import decide
from allocator.errors import Infeasible, NoPlanInTime
from allocator.policies.base import POLICIES
from allocator.solvers.base import SolveLimits
from formulations.primal import closing

every_policy = pytest.mark.parametrize("policy", POLICIES)
NO_TIME, EXACT = SolveLimits(time_s=0.0), SolveLimits(gap=0.0)
# policies that search among plans of equal value, in an order that names may change
SEARCHES = ("marginal", "sia", "ffdl", "horizon")


def with_history(folder: Folder, rng: np.random.Generator) -> Folder:
    """The round with service, restarts, largest size and time per type at random."""
    gpu_type = min(row["gpu_type"] for row in folder.tables["pools.csv"])
    jobs = [
        {
            **row,
            "attained_gpu_s": float(rng.choice([0, 1, 1e4, 1e9])),
            "restarts": int(rng.integers(0, 40)),
            "largest_gpus": max(row.get("gpus", 0), int(rng.integers(0, 9))),
        }
        for row in folder.tables["jobs.csv"]
    ]
    had = [
        {"job_id": row["job_id"], "gpu_type": gpu_type, "seconds": float(rng.choice([1.5, 1e7]))}
        for row in jobs[::2]
    ]
    return Folder(
        "history", folder.config, {**folder.tables, "jobs.csv": jobs, "received.csv": had}
    )


@functools.cache
def rounds(number: int, first: int = 500) -> list[Problem]:
    """Random rounds of 10 jobs; every third one has a history."""
    found = []
    for seed in range(first, first + number):
        rng = np.random.default_rng(seed)
        folder = random_snapshot(rng, 10)
        found.append(validate((folder if seed % 3 else with_history(folder, rng)).snapshot()))
    return found


def planned(p: Problem, policy: str) -> Plan | None:
    """The plan, None where the rules are proven to clash."""
    with contextlib.suppress(Infeasible):
        return decide(p, policy=policy)
    return None


def text(r: Plan | None) -> str:
    return json.dumps({k: v for k, v in r.to_dict().items() if k != "seconds"}) if r else ""


@functools.cache
def feasible(number: int) -> list[bool]:
    return [planned(p, "mip") is not None for p in rounds(number)]


@pytest.mark.parametrize("policy", series([*POLICIES], 12))
def test_random_rounds(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit inside every decision passes; there is a plan exactly where `mip` has one; value,
    gap and bound are in order; each job is there once, in its place, with a pool exactly if it has
    GPUs; the input is left alone; the same input gives the same bytes.
    """
    tried = rounds(count(3, 40))
    arrays = [copy.deepcopy(vars(p.jobs)) for p in tried]
    plans = [planned(p, policy) for p in tried]
    assert [r is not None for r in plans] == feasible(len(tried))
    for p, before, r in zip(tried, arrays, plans, strict=True):
        np.testing.assert_equal({name: vars(p.jobs)[name] for name in before}, before)
        if r is None:
            continue
        assert r.policy == policy and 0 <= r.objective_value <= r.bound < np.inf
        assert r.gap == pytest.approx((r.bound - r.objective_value) / max(r.objective_value, 1e-9))
        assert list(r.jobs["job_id"]) == list(p.jobs.job_id)
        assert [pool is not None for pool in r.jobs["pool"]] == [k > 0 for k in r.jobs["gpus"]]
    assert sum(feasible(len(tried))) >= 0.6 * len(tried)
    # reasons do not depend on how busy the machine is
    monkeypatch.setattr(decision, "REASONS_S", math.inf)
    for p in tried[: count(1, 6)]:
        assert text(planned(p, policy)) == text(planned(p, policy))


FIRM = "state=running pool=p0 gpus=4 preemptible=false"
BY_HAND: dict[str, Callable[[list[int]], bool]] = {
    # one job, one pool, no other rule: it gets GPUs
    "jobs: remaining_work=1e6": lambda gpus: gpus[0] > 0,
    # a job that may not be preempted keeps its GPUs whatever waits; a held one gets nothing
    f"""jobs: {FIRM} remaining_work=1e9 submitted_s=9; state=held;
    remaining_work=10 min_gpus=8""": lambda gpus: gpus == [4, 0, 0],
    # such a job on 4 GPUs of which 2 are left is released; 2 GPUs are used at most
    f"jobs: {FIRM}; / pools: gpus=2": lambda gpus: sum(gpus) <= 2 and gpus[0] != 4,
    # a job waits for one that is still here
    "jobs: job_id=a; after=a": lambda gpus: gpus[1] == 0,
    # a running job without resizes left is kept or paused, never changed
    "jobs: state=running pool=p0 gpus=2 resizes_left=0; requested_gpus=8;": lambda gpus: (
        gpus[0] in (0, 2)
    ),
    # 3 of 8 GPUs are kept for interactive jobs
    "jobs: ;; / interactive: pool=p0 headroom_gpus=3": lambda gpus: 0 < sum(gpus) <= 5,
}


@pytest.mark.parametrize("policy", series([*POLICIES], 12))
def test_rules_by_hand(policy: str) -> None:
    """What the line above each round says."""
    plans = {text: decide(problem(**given(text)), policy=policy) for text in BY_HAND}
    gets = {text: list(r.jobs["gpus"]) for text, r in plans.items()}
    assert not {text: gpus for text, gpus in gets.items() if not BY_HAND[text](gpus)}
    assert any("4 GPUs" in w for r in plans.values() for w in r.warnings)  # of the released job


@every_policy
def test_nothing_to_decide(policy: str) -> None:
    """No jobs, no pools, no GPUs: an empty plan that is proven optimal."""
    for rows in (([],), ([], []), ([{}], [{"gpus": 0}])):
        r = decide(problem(*rows), policy=policy)
        assert r.status == "optimal" and r.objective_value == 0


def renamed(folder: Folder, rng: np.random.Generator) -> tuple[Folder, dict[str, str]]:
    """The same round with jobs and pools under other names in another order; old -> new name of
    each job.
    """

    def new(rows: Any, key: str, letter: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
        order = rng.permutation(len(rows))
        names = {row[key]: f"{letter}{order[n]}" for n, row in enumerate(rows)}
        return [{**rows[n], key: names[rows[n][key]]} for n in order], names

    jobs, names = new(folder.tables["jobs.csv"], "job_id", "x")
    pools, pool_names = new(folder.tables["pools.csv"], "pool", "q")
    jobs = [{**row, "pool": pool_names[row["pool"]]} if "pool" in row else row for row in jobs]
    return (
        Folder(folder.name, folder.config, {**folder.tables, "jobs.csv": jobs, "pools.csv": pools}),
        names,
    )


@pytest.mark.parametrize("policy", series([*POLICIES], 8))
def test_names_and_order_do_not_matter(policy: str) -> None:
    """Jobs and pools renamed and shuffled: each job gets the same GPUs. Only where no two pools are
    alike: between equals something has to decide. For policies that search among plans of equal
    value, only that there is a plan."""
    compared = 0
    for s in range(count(2, 12)):
        folder = random_snapshot(np.random.default_rng(3000 + s), 8, pools=2)
        types = [row["gpu_type"] for row in folder.tables["pools.csv"]]
        one = planned(validate(folder.snapshot()), policy)
        if len(set(types)) < len(types) or one is None:
            continue
        other, names = renamed(folder, np.random.default_rng(s))
        two = decide(validate(other.snapshot()), policy=policy)
        given = {names[j]: k for j, k in zip(one.jobs["job_id"], one.jobs["gpus"], strict=True)}
        if policy not in SEARCHES:
            assert given == dict(zip(two.jobs["job_id"], two.jobs["gpus"], strict=True))
        compared += 1
    assert compared >= 1


@every_policy
def test_a_clash_of_rules_is_named_as_by_mip(policy: str) -> None:
    """A non-preemptible job of 4 GPUs in a tenant that may have 3: the same conflict and
    relaxation as mip.
    """
    round_ = f"jobs: {FIRM} tenant=a; {FIRM} tenant=b / tenants: tenant=a max_gpus=3"
    p = problem(**given(round_))
    said = []
    for name in (policy, "mip"):
        with pytest.raises(Infeasible) as caught:
            decide(p, policy=name)
        said.append((caught.value.conflict, caught.value.relaxations))
    assert said[0] == said[1]


@every_policy
def test_no_time(policy: str) -> None:
    """With a time limit of 0 there is a plan of a small round with a bound all the same; on rounds
    with every rule, a plan, or word that none was found, within a second."""
    small = problem([{}, {"remaining_work": 5e4}, {"max_gpus": 2}], [{"gpus": 4}])
    assert decide(small, policy=policy, limits=NO_TIME).objective_value > 0
    for p in (small, *rounds(3, 800)):
        with in_time(1.0), contextlib.suppress(Infeasible, NoPlanInTime):
            r = decide(p, policy=policy, limits=NO_TIME)
            assert r.objective_value <= r.bound < np.inf


def test_a_solver_asked_about_better_plans_alone_finds_the_best_one() -> None:
    """The search ends at once, so HiGHS is asked about the columns of better plans only. Its value
    and its bound are those of the whole round.
    """
    asked = 0
    for p in rounds(count(6, 40), 900):
        try:
            whole = decide(p, limits=EXACT, solver="highs")
        except Infeasible:
            continue
        with mock.patch.multiple(closing, GROUPS=(), FIRST=0.0, LITTLE=0, is_ready=lambda: True):
            plan = decide(p, limits=EXACT)
        assert plan.objective_value == pytest.approx(whole.objective_value, abs=1e-6)
        assert plan.bound == pytest.approx(whole.objective_value, abs=1e-6)
        asked += plan.solver == "highs"
    assert asked >= 2
