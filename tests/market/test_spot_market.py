"""Choosing between spot and on demand: by hand, against all plans, and in simulated worlds with
limits on exposure.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from builders import problem
from hypothesis import given, settings, strategies as st

from allocator.bench.workloads import generate
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.workload import Workload
from allocator.engine.decision import decide_round
from allocator.simulator import Simulation, SimulationOptions, simulate
from allocator.solvers.base import SolveLimits

HOUR = 3600


def world(moves: list[tuple[int, int]], jobs: list[dict[str, Any]], spot: int) -> Workload:
    """On demand $3, spot $1 with `spot` GPUs that become `moves`; a unit of work is a second on one
    GPU; rounds of 300 s, no pauses. Jobs of one GPU each."""
    rows: Columns = {
        "job_id": [f"j{i}" for i in range(len(jobs))],
        "submitted_s": [0] * len(jobs),
        "model": ["m"] * len(jobs),
        "total_work": [j["work"] for j in jobs],
        "max_gpus": [1] * len(jobs),
        "deadline_s": [j["due"] for j in jobs],
        "checkpoint_every_s": [300] * len(jobs),
    }
    return GeneratedWorkload(
        "hand",
        {"interval_s": 300, "restart_s": 0, "objective": "cost"},
        {
            "workload.csv": rows,
            "pools.csv": {
                "pool": ["firm", "spot"],
                "gpu_type": ["A", "A"],
                "gpus": [8, spot],
                "market": ["on_demand", "spot"],
                "price_per_gpu_hour": [3, 1],
            },
            "rates.csv": {"model": ["m"], "gpu_type": ["A"], "gpus": [1], "work_per_s": [1]},
            "capacity.csv": {
                "at_s": [t for t, _ in moves],
                "pool": ["spot"] * len(moves),
                "gpus": [k for _, k in moves],
            },
        },
    ).workload()


def finished(s: Simulation) -> list[float]:
    return [float(t) for t in s.jobs["finished_s"]]


def test_spot_that_stays_is_all_that_is_bought() -> None:
    """An hour of work, two hours of time, a spot GPU that is always there: $1, without a
    restart.
    """
    s = simulate(world([], [{"work": HOUR, "due": 2 * HOUR}], spot=1))
    assert (
        finished(s) == [HOUR]
        and s.metrics["dollars"] == pytest.approx(1.0)
        and s.metrics["restarts"] == 0
    )


def test_without_spot_the_deadline_is_kept_on_demand() -> None:
    """An hour of work, an hour and a half of time, no spot GPU ever: done in time, for $3."""
    s = simulate(world([], [{"work": HOUR, "due": 1.5 * HOUR}], spot=0))
    assert finished(s)[0] <= 1.5 * HOUR and s.metrics["dollars"] == pytest.approx(3.0)


@pytest.mark.parametrize("gone", [600, 1500, 3000])
def test_spot_that_goes_for_good_costs_no_deadline(gone: int) -> None:
    """The spot GPU vanishes and never comes back: what is left, and what is redone, is bought on
    demand in time. An hour of work costs no more than an hour on demand and 300 s of redone work on
    spot."""
    s = simulate(world([(gone, 0)], [{"work": HOUR, "due": 1.5 * HOUR}], spot=1))
    assert finished(s)[0] <= 1.5 * HOUR
    assert 1.0 < s.metrics["dollars"] <= 3.0 + 300 / HOUR


def test_who_is_pressed_gets_the_spot_gpu() -> None:
    """One spot GPU for two jobs of an hour, due after 1.2 and after 4 hours: the first cannot wait,
    the second can; both in turn on spot would be $2, both at once on demand $6."""
    s = simulate(
        world([], [{"work": HOUR, "due": 4 * HOUR}, {"work": HOUR, "due": 1.2 * HOUR}], spot=1)
    )
    first, second = finished(s)[1], finished(s)[0]
    assert first <= 1.2 * HOUR and second <= 4 * HOUR
    assert s.metrics["dollars"] < 4.0


def context(spot: int, prices: tuple[int, int], dues: list[int], work: list[int]) -> Any:
    """A round of jobs of 1 or 2 GPUs, with two on-demand GPUs."""
    jobs = [
        {"remaining_work": w, "sizes": [1, 2], "max_gpus": 2, "restart_s": 30, "deadline_s": d}
        for w, d in zip(work, dues, strict=True)
    ]
    return problem(
        jobs=jobs,
        rates={1: 1.0, 2: 1.8},
        config={"interval_s": 600, "objective": "cost", "now_s": 0},
        pools=[
            {"pool": "firm", "gpus": 2, "market": "on_demand", "price_per_gpu_hour": prices[0]},
            {"pool": "spot", "gpus": spot, "market": "spot", "price_per_gpu_hour": prices[1]},
        ],
    )


rounds = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.integers(0, 3),
        st.sampled_from([(3, 1), (5, 4), (2, 2)]),
        st.lists(st.sampled_from([600, 1200, 3000, 9000]), min_size=n, max_size=n),
        st.lists(st.sampled_from([300, 1500, 4000]), min_size=n, max_size=n),
    )
)


@settings(max_examples=25)
@given(rounds)
def test_the_plan_is_the_best_of_all_and_the_bound_holds(drawn: Any) -> None:
    """Every combination of options that fits, with the values of the option table: none beats the
    plan; the bound is no less. Where every option is there already, one more spot GPU has no lower
    value: more spot never costs more."""
    exact = SolveLimits(gap=0.0)
    found = decide_round(context(*drawn), limits=exact)
    i = found.round.instance
    per_job = [[-1, *range(int(i.start[j]), int(i.start[j + 1]))] for j in range(len(i.start) - 1)]
    capacity, best = found.round.problem.pools.gpus, 0.0
    for picked in itertools.product(*per_job):
        held = [o for o in picked if o >= 0]
        used = np.bincount(i.pool[held], i.gpus[held], minlength=2) if held else np.zeros(2)
        if (used <= capacity).all():
            best = max(best, float(sum(i.value[o] for o in held)))
    assert found.value == pytest.approx(best, abs=1e-6)
    assert found.proof[0] >= best - 1e-6
    if drawn[0] >= 2:
        assert (
            decide_round(context(drawn[0] + 1, *drawn[1:]), limits=exact).value
            >= found.value - 1e-6
        )


@pytest.mark.parametrize("policy", ["mip", "spot-first", "spot-wait"])
def test_nobody_is_more_exposed_than_allowed_at_any_moment(policy: str) -> None:
    """Simulated worlds with guarantees: spot GPUs of every job, and of every tenant in every
    zone, within limits.
    """
    made = generate("exposure", seed=4, jobs=10, gpus=20, load=0.7).workload()
    spans = simulate(made, policy=policy, options=SimulationOptions(prove_every=0)).spans
    p = made.problem
    limit = dict(zip(p.jobs.job_id, p.jobs.max_spot_gpus.tolist(), strict=True))
    tenant = dict(zip(p.jobs.job_id, p.jobs.tenant.tolist(), strict=True))
    on_spot = spans[spans["pool"] != "on-demand"].assign(tenant=lambda f: f["job_id"].map(tenant))
    assert (on_spot["gpus"] <= on_spot["job_id"].map(limit)).all()
    for _, held in on_spot.groupby(["tenant", "pool"]):
        for at in held["from_s"]:
            now = held[(held["from_s"] <= at) & (at < held["to_s"])]
            assert now["gpus"].sum() <= p.tenants.exposure[int(held["tenant"].iloc[0])]


def test_generated_limits_are_those_of_the_tenants() -> None:
    """Shares of guaranteed_gpus, rounded down: .5 of 8 and .3 of 10 GPUs in a zone; the third
    tenant has no limit.
    """
    p = generate("exposure", seed=0, jobs=40).workload().problem
    most = dict(zip(p.tenants.tenant, p.tenants.exposure.tolist(), strict=True))
    assert most == {"steady": 4.0, "careful": 3.0, "free": np.inf}
    assert {0.0, 4.0, np.inf} == set(p.jobs.max_spot_gpus.tolist())
