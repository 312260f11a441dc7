"""What is expected of jobs: by hand, against a second account, and against the simulator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import series
from hypothesis import given, settings, strategies as st
from worlds import workload

from allocator.domain.problem import Problem
from allocator.engine import expected
from allocator.engine.decision import decide, decide_round
from allocator.engine.expected import Forecast, forecast
from allocator.engine.expected_words import describe_expected
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.run import SimulationState
from formulations.lookahead.list_schedule import Uses, list_schedule

ONE: dict[str, Any] = {"min_gpus": 1, "max_gpus": 1}


def told(of: Problem) -> Forecast:
    """The forecast of the default decision."""
    return forecast(decide_round(of))


def test_what_is_not_known_is_not_told() -> None:
    """On hold; after another job; too large; of a model without a speed."""
    jobs = [
        {"job_id": "held", "state": "held"},
        ONE | {"job_id": "first"},
        ONE | {"job_id": "second", "after": ["first"]},
        {"job_id": "huge", "min_gpus": 16, "max_gpus": 16},
        ONE | {"job_id": "new", "model": "unknown"},
    ]
    of = problem(jobs, [{"gpus": 8}], config={"unknown_models": "assume"})
    plan = decide(of)
    rows = {name: plan.job(name) for name in plan.jobs["job_id"]}
    assert {name: row.expected_note for name, row in rows.items()} == {
        "held": expected.HELD,
        "first": None,
        "second": expected.AFTER,
        "huge": expected.NO_OPTION,
        "new": expected.ASSUMED,
    }
    assert all(
        (row.expected_done_s is None) == (row.expected_note is not None) for row in rows.values()
    )
    assert list(describe_expected(vars(rows["huge"]), 0)) == [
        f"no start or end: {expected.NO_OPTION}"
    ]


def random_jobs(seed: int) -> list[dict[str, Any]]:
    """Jobs of many sizes and weights, no two alike."""
    rng = np.random.default_rng(seed)
    return [
        {
            "job_id": f"j{i}",
            "remaining_work": round(float(rng.lognormal(7, 1)), 2),
            "weight": round(float(rng.uniform(0.5, 2)), 6),
            "min_gpus": int(rng.choice([1, 1, 2, 4])),
            "max_gpus": 4,
            "submitted_s": -i,
        }
        for i in range(12)
    ]


@pytest.mark.parametrize("sizes", series(["unknown", "predicted", "known"], 1))
def test_every_estimate_has_its_range(sizes: str) -> None:
    """Low <= middle <= high; nobody is done before the start, or starts before the next round."""
    jobs = [job | {"total_work": 2 * job["remaining_work"]} for job in random_jobs(0)]
    found = told(problem(jobs, [{"gpus": 6}], config={"sizes": sizes}))
    for estimate in (found.start, found.done, found.saved):
        ends = estimate[:, np.isfinite(estimate[1])]
        assert (np.diff(ends, axis=0) >= 0).all()
    waits = found.position > 0
    assert (found.start[0, waits] >= 300).all() and waits.any()
    assert (found.done[1, waits] >= found.start[1, waits]).all()


def slow_schedule(free: Any, running: Any, jobs: Any, interval_s: int) -> list[float]:
    """A second account: every unit of every row has a moment from which it is free."""
    rows = [[0.0] * n for n in free]
    for end_s, uses in running:
        for row, amount in uses:
            rows[row] += [end_s] * amount
    starts = []
    for seconds, uses in jobs:
        if any(amount > len(rows[row]) for row, amount in uses):
            starts.append(math.inf)
            continue
        taken = {row: sorted(rows[row])[:amount] for row, amount in uses}
        begin = max(1, math.ceil(max(x[-1] for x in taken.values()) / interval_s)) * interval_s
        starts.append(float(begin))
        for row, amount in uses:
            rows[row] = sorted(rows[row])[amount:] + [begin + seconds] * amount
    return starts


USES = st.dictionaries(st.integers(0, 1), st.integers(1, 5), min_size=1).map(lambda d: [*d.items()])
TIMED = st.lists(st.tuples(st.integers(1, 2000), USES), max_size=8)


def uses_of(things: Any) -> Uses:
    """The uses of things as arrays."""
    flat = [pair for _, uses in things for pair in uses]
    first = np.cumsum([0, *(len(uses) for _, uses in things)])
    row, amount = np.array(flat).reshape(-1, 2).T
    return Uses(first, row.astype(np.int64), amount.astype(np.float64))


def fast_schedule(free: Any, running: Any, jobs: Any) -> list[float]:
    """The starts of list_schedule, with one candidate for each job."""
    start, _ = list_schedule(
        np.array(free, dtype=float),
        uses_of(running),
        np.array([end for end, _ in running], dtype=float),
        uses_of(jobs),
        np.array([seconds for seconds, _ in jobs], dtype=float),
        np.arange(len(jobs) + 1),
        300.0,
    )
    return list(start.tolist())


@settings(max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=2), TIMED, TIMED)
def test_the_schedule_agrees_with_a_second_account(free: Any, running: Any, jobs: Any) -> None:
    """Unit by unit, without queues."""
    assert fast_schedule(free, running, jobs) == slow_schedule(free, running, jobs, 300)


def test_the_simulator_does_what_was_expected_where_nothing_changes() -> None:
    """Rigid jobs that may not be paused, all there from the start, by weight."""
    rng = np.random.default_rng(3)
    rounds = rng.integers(1, 6, size=15)
    jobs = [
        ONE | {"total_work": 300.0 * n, "weight": float(n * 0.8**i), "preemptible": False}
        for i, n in enumerate(rounds.tolist())
    ]
    first: list[Forecast] = []

    def watch(_state: SimulationState, turn: Any) -> None:
        d = turn.decision
        if not first:
            first.append(forecast(d))

    trace = workload(jobs, 4)
    options = SimulationOptions(objective="progress")
    ran = simulate(trace, policy="mip", options=options, on_round=watch)
    start = np.nan_to_num(first[0].start_s)
    assert ran.jobs.started_s.tolist() == start.tolist() and (start > 0).sum() == 11
    assert ran.jobs.finished_s.tolist() == (start + first[0].run_s).tolist()
