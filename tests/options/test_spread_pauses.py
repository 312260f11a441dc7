"""The setting `spread_pauses`: properties of its formula, and its effect in simulations.

A pause of a seconds costs a round of D seconds a D / T, where
T = max(D, min(age / (restarts + 2), a + R / r)).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem
from hypothesis import given, settings, strategies as st

from allocator.bench.workloads import generate
from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.options.option_table import option_table
from allocator.simulator import SimulationOptions, simulate
from allocator.valuation import build_context
from formulations.objectives import BUILT_IN as OBJECTIVES
from formulations.objectives.context import Context

CONCAVE = {1: 1.0, 2: 1.8, 4: 3.1, 8: 5.0}


def context(p: Problem) -> Context:
    """All options of a round, by job, pool and size."""
    return build_context(p, option_table(p).offer)


def one(spread: bool = True, sizes: str = "known", **job: Any) -> Problem:
    """Rounds of 60 s; a job that runs on one of 8 GPUs, whose changes take 300 s."""
    running = {"state": "running", "pool": "p0", "gpus": 1, "restart_s": 300}
    return problem(
        jobs=[{"remaining_work": 1e6, **running, **job}],
        rates=CONCAVE,
        config={"interval_s": 60, "now_s": 0, "spread_pauses": spread, "sizes": sizes},
    )


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


def test_a_restless_job_grows_once_nothing_arrives() -> None:
    """200 restarts in ten hours: every option would be held for less than its pause."""
    for sizes, gpus in ("known", 1), ("unknown", 8):
        p = one(sizes=sizes, submitted_s=-36_000, total_work=2e6, restarts=200)
        assert decide(p, objective="progress").jobs["gpus"] == [gpus]


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(
        {
            "submitted_s": st.integers(-100_000, 0),
            "restarts": st.integers(0, 40),
            "restart_s": st.just(0.0) | st.floats(1, 1e3),
            "remaining_work": st.floats(1, 1e6),
        }
    ),
    st.integers(0, 100_000),
    st.integers(0, 40),
)
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
    busy_s = c.offer.pause_s * 60 / c.held_s + c.remaining / c.rate
    assert np.minimum(60, busy_s) == pytest.approx(c.busy_s)


@pytest.mark.parametrize(
    ("objective", "sizes"),
    [
        pytest.param("progress", "unknown", marks=pytest.mark.nightly),
        *(pytest.param(name, "known", marks=pytest.mark.soak) for name in OBJECTIVES),
    ],
)
def test_no_job_starves(objective: str, sizes: str) -> None:
    """Jobs of five applications that arrive over an hour and a half on three GPU types, rounds of
    60 s, restarts of 250 s: no job takes twice as long as alone on an equal share. `makespan` lets
    short jobs wait for long ones by its definition, and stays below four."""
    drawn = generate("heterogeneous", seed=1, jobs=30)
    drawn.tables["workload.csv"]["restart_s"] = [250.0] * 30
    found = simulate(
        drawn.workload(),
        policy="mip",
        options=SimulationOptions(objective=objective, sizes=sizes, prove_every=0),
    )
    assert found.metrics["finished"] == 30
    assert found.metrics["ftf_max"] < (4.0 if objective == "makespan" else 2.0)
