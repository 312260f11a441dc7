"""Headroom for interactive jobs: quantiles, repairs, conflicts, faults, sessions in simulation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from hypothesis import given, settings, strategies as st

from allocator.bench.workloads import generate
from allocator.engine.decision import decide
from allocator.errors import Infeasible, InvalidInput
from allocator.options.kept.headroom import wanted_headroom
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import simulate
from allocator.solvers.base import SolveLimits
from formulations.model.headroom import observed_headroom, sessions

EXACT = SolveLimits(gap=0.0)
LONG = {"remaining_work": 100_000}


def kept(gpus: int, share: float = 0.0) -> list[dict[str, Any]]:
    return [{"pool": "p0", "headroom_gpus": gpus, "shrinkable_share": share}]


@given(st.floats(1e-6, 60), st.floats(1e-9, 0.9))
@settings(max_examples=40)
def test_quantiles_are_the_least_that_do(mean: float, late: float) -> None:
    """P(N >= c) <= late < P(N >= c - 1), each term by itself."""

    def at_least(c: int) -> float:
        return 1.0 - math.fsum(
            math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(c)
        )

    c = sessions(mean, late)
    assert at_least(c) <= late + 1e-12 and (c == 0 or at_least(c - 1) > late - 1e-12)


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=25
    ),
    st.floats(0.01, 0.9),
)
@settings(max_examples=40)
def test_what_sessions_have_needed_one_by_one(
    sessions_: list[tuple[int, int, int]], late: float
) -> None:
    """Each session against all that were there; the least H that is too small for at most that
    share.
    """
    came = sorted(sessions_, key=lambda s: s[0])
    need = [
        size + sum(k for since, stay, k in came[:i] if since + stay > at)
        for i, (at, _, size) in enumerate(came)
    ]
    since, stays, gpus = np.array(came, dtype=float).T
    h = observed_headroom(since, since + stays, gpus, late)
    assert sum(k > h for k in need) <= late * len(need) + 1e-9 < sum(k > h - 1 for k in need) + 1e-6


def test_sessions_have_their_gpus_until_the_next_round() -> None:
    """12 sessions an hour of 200 s, 100 s for the round to come: m = 1, 4 sessions of 2 GPUs. No
    more than the pool has."""
    row = {"sessions_per_hour": 12, "session_s": 200, "session_gpus": 2}
    rows = [row | {"pool": pool} for pool in ("p0", "p1")]
    pools, config = [{"gpus": 50}, {"gpus": 5}], {"interval_s": 100}
    p = problem([{}], pools, config=config, interactive=rows)
    assert wanted_headroom(p).tolist() == [8, 5]


def test_shrinkable_jobs_may_hold_their_share() -> None:
    """8 GPUs, 4 kept. Half of them for shrinkable jobs: such a job of at least 1 GPU may get 6 (2
    stay idle), and its 5 GPUs above min_gpus cover the rest; one of at least 3 could give 3 back;
    one that may not be resized none."""
    sizes = {**LONG, "sizes": list(range(1, 9)), "shrinkable": True}
    rates = {1: 1.0, 8: 8.0}

    def gets(job: dict[str, Any], share: float) -> int:
        p = problem([job], rates=rates, interactive=kept(4, share))
        return decide(p, limits=EXACT).jobs["gpus"][0]

    assert [gets(sizes, s) for s in (0.0, 0.25, 0.5, 1.0)] == [4, 5, 6, 8]
    # 5 it keeps, 4 must be free
    assert gets({**sizes, "min_gpus": 5}, 1.0) == 0
    assert gets({**sizes, "shrinkable": False}, 1.0) == 4
    assert (
        gets({**sizes, "resizes_left": 0}, 1.0) == 4 == gets({**sizes, "preemptible": False}, 1.0)
    )


def test_jobs_that_may_not_move_come_first() -> None:
    """A job that holds 6 of 8 GPUs and may not be moved leaves 2 of the 4 that should be kept: a
    repair, not an end.
    """
    p = problem(
        [{**LONG, "state": "running", "pool": "p0", "gpus": 6, "preemptible": False}, LONG],
        rates={1: 1.0, 8: 8.0},
        interactive=kept(4),
    )
    result = decide(p, limits=EXACT)
    assert list(result.jobs["gpus"]) == [6, 0]
    assert "is 2 GPUs instead of 4: jobs that may not be moved" in "".join(result.warnings)


def test_a_conflict_is_named_with_the_least_relaxation() -> None:
    """No change is allowed and the job holds 8; and a guarantee of 8 GPUs against 3 kept."""
    holds = {**LONG, "state": "running", "pool": "p0", "gpus": 8}
    owed = {"tenants": [{"tenant": "default", "guaranteed_gpus": 8}]}
    for job, share, rule, more in (
        (holds, 0.0, "max_changes", {"config": {"max_changes": 0}}),
        ({**LONG, "min_gpus": 8}, 1.0, 'headroom for interactive jobs of pool "p0"', owed),
    ):
        with pytest.raises(Infeasible) as error:
            decide(problem([job], interactive=kept(3, share), **more), limits=EXACT)
        assert rule in str(error.value)


def late_share(seed: int, keeps: bool) -> float:
    """Share of simulated sessions that wait for longer than the next round, among batch jobs
    that may not be moved.
    """
    made = generate("interactive", seed=seed, jobs=160, gpus=32, load=1.2).workload()
    p, rows = made.problem, made.problem.interactive
    if not keeps:
        rows = dataclasses.replace(rows, **{k: v[:0] for k, v in vars(rows).items()})
    jobs = dataclasses.replace(p.jobs, preemptible=np.zeros(len(p.jobs), dtype=bool))
    w = dataclasses.replace(made, problem=dataclasses.replace(p, interactive=rows, jobs=jobs))
    done = simulate(w, policy="static", options=SimulationOptions(prove_every=0)).jobs
    wait = (done["started_s"] - done["submitted_s"])[p.jobs.interactive]
    return float((wait > p.interval_s + 1e-6).mean())


@pytest.mark.nightly
def test_sessions_wait_no_longer_than_a_round_as_often_as_promised() -> None:
    """Headroom is the Poisson quantile for 5 %: no more sessions wait for longer than the next
    round. Without it more than half of them do."""
    assert late_share(4, True) <= 0.05
    assert late_share(4, False) > 0.5


def test_faults() -> None:
    """Headroom is a number, or follows from sessions; a row that says neither keeps nothing."""
    rows = [
        {"pool": "p0", "headroom_gpus": 2, "session_s": 5},
        {"pool": "p1", "sessions_per_hour": 3},
        {"pool": "px", "headroom_gpus": -1},
    ]
    with pytest.raises(InvalidInput) as error:
        problem([{}], [{}, {}], interactive=rows)
    for fault, words in zip(
        error.value.faults,
        ("are both given", "needs both", "-1 is below 0", "is not in pools.csv"),
        strict=True,
    ):
        assert words in str(fault)
    assert "keeps nothing" in problem([{}], interactive=[{"pool": "p0"}]).warnings[0]
