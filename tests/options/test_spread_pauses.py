"""Pauses that pay off: the setting `spread_pauses`, by hand, as laws, and in simulations.

A pause a takes a D / T off a round of D seconds, T = max(D, min(age / (restarts + 2), a + R / r)).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from builders import problem
from hypothesis import given, settings, strategies as st
from worlds import workload

from allocator.bench.workloads import generate
from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.options.option_table import option_table
from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions, simulate
from allocator.valuation import build_context
from formulations.objectives import BUILT_IN as OBJECTIVES
from formulations.objectives.context import Context

CONCAVE = {1: 1.0, 2: 1.8, 4: 3.1, 8: 5.0}
PUBLISHED = tuple(name for name in OBJECTIVES if name != "flow")  # flow always spreads
HOUR = 3600.0


def context(p: Problem) -> Context:
    """All options of a round, by job, pool and size."""
    return build_context(p, RateTable.of(p), option_table(p, RateTable.of(p)).offer)


def one(spread: bool = True, **job: Any) -> Problem:
    """Rounds of 60 s; a job that runs on one of 8 GPUs, whose changes take 300 s."""
    running = {"state": "running", "pool": "p0", "gpus": 1, "restart_s": 300}
    return problem(
        jobs=[{"remaining_work": 1e6, **running, **job}],
        rates=CONCAVE,
        config={"interval_s": 60, "now_s": 0, "spread_pauses": spread},
    )


@pytest.mark.parametrize(
    ("age_s", "restarts", "held_s", "lost_s"),
    [
        (0, 0, 60, 300),  # no past: the whole pause in this round, which it fills
        (600, 0, 300, 60),
        (1200, 0, 600, 30),
        (36_000, 0, 18_000, 1),
        (36_000, 8, 3_600, 5),
        (6_000, 98, 60, 300),  # restarted all the time
    ],
)
def test_a_pause_by_hand(age_s: float, restarts: int, held_s: float, lost_s: float) -> None:
    """T is the age over the stretches that there would be, at least a round; 300 s x 60 / T are
    lost, of at most 60."""
    c = context(one(submitted_s=-age_s, restarts=restarts))
    assert c.held_s.tolist() == [held_s] * 4
    speed = np.array(list(CONCAVE.values()))
    useful = np.array([60.0, *[max(0.0, 60.0 - lost_s)] * 3])  # one GPU is what it holds
    assert c.done.tolist() == pytest.approx((speed * useful).tolist())
    assert c.done is c.lasting_work
    assert c.work_now.tolist() == [60.0, 0.0, 0.0, 0.0]


def test_a_pause_is_spread_at_most_to_the_end_of_the_job() -> None:
    """1,800 units: at a speed of 1.8 the job ends after 300 + 1,000 s, at 5.0 after 300 + 360 s,
    long before the 18,000 s that its past would give."""
    c = context(one(submitted_s=-36_000, remaining_work=1800))
    assert c.held_s[[1, 3]].tolist() == [1300, 660]
    assert c.done[[1, 3]].tolist() == pytest.approx([1.8 * 60 * 1000 / 1300, 5 * 60 * 360 / 660])


def test_a_job_that_does_not_run_loses_the_startup_alone() -> None:
    """Starts of 120 s in rounds of 60 s. A newcomer does nothing in its first round and has no
    value; after 240 s its start begins to pay, and after 1,200 s a fifth of a round is lost. A
    paused job is like a queued one; only a running one loses restart_s as well."""

    def done(**job: Any) -> float:
        p = problem(
            jobs=[{"remaining_work": 1e6, "restart_s": 180, "sizes": [2], **job}],
            pools=[{"startup_s": 120}],
            rates=CONCAVE,
            config={"interval_s": 60, "now_s": 0, "spread_pauses": True},
        )
        return float(context(p).done[-1])

    assert [done(submitted_s=-age) for age in (0, 240)] == [0, 0]
    assert done(submitted_s=-1200) == pytest.approx(1.8 * 60 * (1 - 120 / 600))
    assert done(submitted_s=-1200, state="paused") == done(submitted_s=-1200)
    assert done(submitted_s=-1200, state="paused", restarts=1) == pytest.approx(1.8 * 60 * 0.7)
    running = {"state": "running", "pool": "p0", "gpus": 1}
    assert done(submitted_s=-1200, **running) == pytest.approx(1.8 * 60 * 0.5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_job_that_never_restarted_starts_once_it_is_twice_as_old_as_its_start_takes(
    objective: str,
) -> None:
    """A start of 250 s in an empty cluster, rounds of 60 s: not at 500 s, but soon after."""

    def gpus(age_s: float) -> int:
        p = problem(
            jobs=[{"submitted_s": -age_s, "remaining_work": 1e6}],
            pools=[{"startup_s": 250}],
            rates=CONCAVE,
            config={
                "interval_s": 60,
                "now_s": 0,
                "objective": objective,
                "spread_pauses": True,
            },
        )
        return int(decide(p).jobs["gpus"][0])

    assert gpus(499) == 0 and gpus(520) > 0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_job_on_one_gpu_of_an_empty_cluster_grows(objective: str) -> None:
    """Ten hours old, with 280 hours of work on one GPU, in rounds of 60 s with pauses of 300 s.
    With the whole pause in one round a change does nothing in it, so the job stays for ever under
    every objective but `flow`. Spread, a change loses 1 s of the round."""

    def gpus(spread: bool) -> int:
        p = one(spread, submitted_s=-36_000, total_work=1.04e6)
        return int(decide(p, objective=objective).jobs["gpus"][0])

    assert gpus(True) == 8
    assert gpus(False) == (8 if objective == "flow" else 1)


def test_cost_asks_with_real_pauses_whether_a_deadline_can_be_kept() -> None:
    """An hour of work on one GPU, which the job holds, 1,161 s on four, and 1,100 s to a deadline:
    every second is missing, at $10 an hour. A change of 30 s, spread over 1,191 s, saves 28.5 s of
    work once, in the price of the work that is left. The hours too late are those of the 30 s."""
    job = one(submitted_s=-40_000, remaining_work=3600, restart_s=30, deadline_s=1100, sizes=[1, 4])
    job = dataclasses.replace(job, objective="cost")
    rates = RateTable.of(job)
    before, after = (
        option_table(dataclasses.replace(job, spread_pauses=s), rates).value for s in (False, True)
    )
    lost_s = 30 * 60 / (30 + 3600 / 3.1)
    gained = [0, 10 * (30 - lost_s) / HOUR]
    assert (after - before).tolist() == pytest.approx(gained, abs=1e-9)


@pytest.mark.parametrize("objective", PUBLISHED)
def test_without_the_setting_the_formulas_are_the_published_ones(objective: str) -> None:
    """The age and the restarts of a job leave the work of a round as it is, to the last bit."""
    young, old = (
        context(dataclasses.replace(one(False, submitted_s=-s, restart_s=13), objective=objective))
        for s in (0, 36_000)
    )
    assert young.done.tolist() == old.done.tolist() == (young.rate * [60, 47, 47, 47]).tolist()
    assert young.done is young.work_now


@st.composite
def rounds(draw: Any) -> dict[str, Any]:
    """A running job with any past, pause and work left."""
    return {
        "submitted_s": -draw(st.integers(0, 100_000)),
        "restarts": draw(st.integers(0, 40)),
        "restart_s": draw(st.one_of(st.just(0.0), st.floats(1, 1e3))),
        "remaining_work": draw(st.floats(1, 1e6)),
    }


@settings(max_examples=25)
@given(rounds(), st.integers(0, 100_000), st.integers(0, 40))
def test_laws_of_spread_pauses(job: dict[str, Any], more_s: int, more_restarts: int) -> None:
    """More age never lessens the work of a change, and more restarts never raise it. A spread pause
    is at most the real one, and exactly that where the job ends in the round. Whether and when it
    ends, so the seconds and dollars of the round, are those of the real pause."""
    c = context(one(**job))
    older = context(one(**job | {"submitted_s": job["submitted_s"] - more_s}))
    restless = context(one(**job | {"restarts": job["restarts"] + more_restarts}))
    assert (older.done >= c.done * (1 - 1e-12)).all()
    assert (restless.done <= c.done * (1 + 1e-12)).all()
    assert (c.done >= c.work_now * (1 - 1e-12)).all()
    ends = c.offer.pause_s + c.remaining / c.rate <= 60
    assert (c.done[ends] == c.work_now[ends]).all()
    assert (c.done[~ends] <= c.remaining[~ends] * (1 + 1e-12)).all()
    busy_s = np.minimum(60, c.offer.pause_s * 60 / c.held_s + c.remaining / c.rate)
    assert busy_s == pytest.approx(c.busy_s)


@pytest.mark.parametrize(
    ("objective", "sizes"), [*((name, "known") for name in OBJECTIVES[::5]), ("flow", "unknown")]
)
def test_no_job_is_frozen_at_its_first_size(objective: str, sizes: str) -> None:
    """One GPU for ten minutes, then eight: rounds of 60 s, changes of 250 s, six hours of work on
    one GPU. A job that began on one GPU runs six hours on it where the whole pause counts in one
    round. Spread, it grows as soon as half its age is above 250 s / (1 - 1/5), in the round at 660
    s, and ends 250 s + (6 h - 660 s) / 5 later."""
    grown_s = 660 + 250 + (6 * HOUR - 660) / 5
    for spread, jct_s, restarts in ((True, grown_s, 1), (False, 6 * HOUR, 0)):
        if objective != "progress" and not spread:
            continue
        config = {"interval_s": 60, "objective": objective, "spread_pauses": spread, "sizes": sizes}
        world = workload(
            [{"total_work": 6 * HOUR, "max_gpus": 8, "restart_s": 250}],
            gpus=1,
            rates=CONCAVE,
            changes=[(600, 8, None)],
            config=config,
        )
        found = simulate(world, policy="mip", options=SimulationOptions(prove_every=0)).jobs
        assert found["jct_s"][0] == pytest.approx(jct_s) and found["restarts"][0] == restarts


@pytest.mark.parametrize(
    ("objective", "sizes"),
    [
        ("flow", "known"),
        ("progress", "unknown"),
        *(pytest.param(name, "known", marks=pytest.mark.soak) for name in OBJECTIVES),
    ],
)
def test_no_job_starves(objective: str, sizes: str) -> None:
    """Jobs of five applications that arrive over an hour and a half on three GPU types, rounds of
    60 s, restarts of 250 s: no job takes twice as long as alone on an equal share. `makespan` lets
    short jobs wait for long ones by its definition, and stays below four."""
    world = generate("heterogeneous", seed=1, load=20.0, jobs=30).workload()
    jobs = world.problem.jobs
    slow = dataclasses.replace(jobs, restart_s=np.full(len(jobs), 250.0))
    found = simulate(
        dataclasses.replace(world, problem=dataclasses.replace(world.problem, jobs=slow)),
        policy="mip",
        options=SimulationOptions(objective=objective, sizes=sizes, prove_every=0),
    )
    assert found.metrics["finished"] == 30
    assert found.metrics["ftf_max"] < (4.0 if objective == "makespan" else 2.0)
