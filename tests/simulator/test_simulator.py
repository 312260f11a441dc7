"""The simulator on cases worked out by hand, and the laws that every simulation obeys."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from examples import series
from text_tables import columns
from worlds import workload

from allocator.domain.workload import Workload
from allocator.errors import UsageError
from allocator.policies.base import POLICIES
from allocator.simulator import Simulation, SimulationOptions, simulate
from allocator.simulator.results.files import frame_csv
from allocator.simulator.run import SimulationState, continue_simulation, initial_state


def times(s: Simulation, column: str) -> list[float]:
    return [float(x) for x in s.jobs[column]]


def test_a_failing_job_repeats_what_it_lost() -> None:
    """With failures, held time is work plus what was lost, and every failure is one more start."""
    w = workload([{"total_work": 20_000, "checkpoint_every_s": 500} for _ in range(20)], gpus=20)
    s = simulate(w, policy="static", options=SimulationOptions(failures_per_gpu_hour=0.5, seed=3))
    assert s.metrics["finished"] == 20
    assert s.metrics["failures"] == s.metrics["restarts"]
    held = s.jobs["gpu_hours"] * 3600
    assert (held >= 20_000 - 1e-6).all() and held.sum() <= 20 * 20_000 + 500 * s.metrics[
        "failures"
    ] + 1e-6
    hours = s.metrics["gpu_hours"]
    # Poisson
    assert s.metrics["failures"] == pytest.approx(0.5 * hours, abs=4 * np.sqrt(0.5 * hours))


def test_luck_does_not_depend_on_the_policy() -> None:
    """Misjudged speeds: a job alone on a GPU takes the same time under every policy."""
    w = workload([{} for _ in range(4)], gpus=4)
    ends = {
        p: times(
            simulate(w, policy=p, options=SimulationOptions(misjudged=0.5, seed=1)), "finished_s"
        )
        for p in ("static", "greedy", "mip")
    }
    assert ends["static"] == ends["greedy"] == ends["mip"] != [600] * 4


def test_misjudged_speeds_have_mean_one() -> None:
    """2,000 jobs: mean of true over believed speed 1 within four standard errors, spread as
    asked for.
    """
    from allocator.simulator import random_numbers

    factors = random_numbers.lognormal(0.4, 7, random_numbers.MISJUDGED, np.arange(20_000))
    assert factors.mean() == pytest.approx(1, abs=4 * 0.4 / np.sqrt(20_000))
    assert np.log(factors).std() == pytest.approx(0.4, rel=0.03)


def test_latency_delays_the_plan_and_the_next_round() -> None:
    """400 s to decide: the second round is at 400, when the first plan comes true; the later job
    starts at 800.
    """
    s = simulate(
        workload([{}, {"submitted_s": 100}], gpus=2),
        policy="static",
        options=SimulationOptions(latency_s=400),
    )
    assert s.rounds["at_s"].tolist()[:2] == [0, 400] and times(s, "started_s") == [400, 800]


def test_jobs_wait_for_jobs_that_are_not_even_submitted() -> None:
    """j0 comes after j1, which is submitted later: it starts at the round after j1 is done (500
    -> 600).
    """
    s = simulate(
        workload([{"after": ["j1"]}, {"submitted_s": 200, "total_work": 200}], gpus=2),
        policy="static",
    )
    assert times(s, "finished_s") == [1200, 500]


def test_what_can_never_run_ends_the_simulation() -> None:
    """A job larger than the cluster is reported, not waited for; numbers that do not exist are
    None.
    """
    too_large = workload([{"min_gpus": 4, "max_gpus": 4}])
    s = simulate(too_large, policy="mip")
    assert (
        s.unfinished == ("j0",) and s.metrics["finished"] == 0 and s.metrics["jct_s_mean"] is None
    )
    assert simulate(
        workload([{}]), policy="mip", options=SimulationOptions(until_s=100)
    ).unfinished == ("j0",)


def test_rounds_without_a_plan_change_nothing() -> None:
    """A quota cut below what a non-preemptible job holds cannot be kept: the rounds say so, and
    the job runs on.
    """
    w = workload(
        [{"preemptible": False, "max_gpus": 2, "min_gpus": 2, "tenant": "t", "total_work": 1500}],
        gpus=2,
    )
    state = initial_state(w, "mip", SimulationOptions())
    seen: list[str] = []

    def cut(state: SimulationState, turn: Any) -> None:
        seen.append(state.recorder.rounds[-1][9])  # type: ignore[arg-type]
        cluster = state.cluster
        cluster._problem = dataclasses.replace(
            cluster._problem,
            tenants=dataclasses.replace(cluster._problem.tenants, max_gpus=np.array([1.0])),
        )

    s = continue_simulation(state, cut)
    assert seen[0] == "gap" and set(seen[1:]) == {"Infeasible"} and times(s, "finished_s") == [750]


@pytest.mark.parametrize(
    "wrong",
    [{"gap": -1}, {"react_s": 0}, {"loss_noise": np.nan}, {"announce_s": -1}, {"speeds": "?"}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    """Values that make no sense are refused by name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SimulationOptions(**wrong)


def random_workload(seed: int) -> Workload:
    """Elastic jobs on two types with prices, start-up times, machines that come and go,
    checkpoints.
    """
    rng = np.random.default_rng(seed)
    rows = [
        {
            "submitted_s": float(t),
            "total_work": float(rng.lognormal(7, 1)),
            "max_gpus": int(rng.choice([1, 2, 4, 8])),
            "preemptible": bool(rng.random() < 0.9),
            "resizes_left": int(rng.integers(0, 4)) if rng.random() < 0.2 else None,
            "checkpoint_every_s": 200 if rng.random() < 0.5 else None,
        }
        for t in np.sort(rng.uniform(0, 4000, 15))
    ]
    pools = columns("pool gpu_type gpus price_per_gpu_hour startup_s: p A 8 2 20; q B 6 1 0")
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": s * k**0.8}
        for t, s in (("A", 1), ("B", 0.6))
        for k in (1, 2, 4, 8)
    ]
    return workload(
        rows,
        pools=pools,
        rates=rates,
        changes=[(900, 3, None), (1500, 8, 4.0), (2600, 5, None), (5000, 8, 1.0)],
    )


FIRST = ("mip", "rental", "bsbf", "spot-first")


@pytest.mark.parametrize("policy", series([*FIRST, *sorted(POLICIES.keys() - {*FIRST})], 2))
def test_laws_of_conservation(policy: str) -> None:
    """Every job finishes once; work done = true rate x time minus pauses and losses; GPUs never
    above capacity; what is paid is what was held. Stopped after a round, pickled and resumed: the
    same bytes as without the stop."""
    w = random_workload(5)
    o = SimulationOptions(seed=4, misjudged=0.2, noise=0.1, failures_per_gpu_hour=0.2)
    kept: list[bytes] = []

    def keep(state: SimulationState, turn: Any) -> None:
        if turn.number == 5:
            kept.append(pickle.dumps(state))

    s = simulate(w, policy=policy, options=o, on_round=keep)
    assert s.metrics["finished"] == len(w.problem.jobs) and s.jobs["finished_s"].notna().all()
    assert (s.jobs["started_s"] >= s.jobs["submitted_s"]).all()
    spans = s.spans
    held = ((spans["to_s"] - spans["from_s"]) * spans["gpus"]).groupby(spans["job_id"]).sum() / 3600
    assert held[s.jobs["job_id"]].to_numpy() == pytest.approx(s.jobs["gpu_hours"].to_numpy())
    ends = spans.groupby("job_id")["to_s"].max()
    assert ends[s.jobs["job_id"]].to_numpy() == pytest.approx(s.jobs["finished_s"].to_numpy())
    capacities = {"p": [(0, 8), (900, 3), (1500, 8), (2600, 5), (5000, 8)], "q": [(0, 6)]}
    for pool, capacity in capacities.items():
        mine = spans[spans["pool"] == pool]
        for t in np.unique(np.concatenate([mine["from_s"], [c[0] for c in capacity]])):
            now = mine[(mine["from_s"] <= t) & (mine["to_s"] > t)]
            assert now["gpus"].sum() <= [g for at, g in capacity if at <= t][-1]
            assert now["job_id"].is_unique
    again = continue_simulation(pickle.loads(kept[0]))
    for name in ("jobs", "timeline", "spans"):
        assert frame_csv(getattr(again, name)) == frame_csv(getattr(s, name))


def test_work_is_rate_times_time_minus_pauses() -> None:
    """Without luck, loss or failures each job's work is the sum over its spans of rate x (length
    - pause).
    """
    w = dataclasses.replace(random_workload(8), changes=workload([{}]).changes)
    s = simulate(w, policy="mip")
    p = w.problem
    for i, (name, rows) in enumerate(s.spans.groupby("job_id", sort=False)):
        j = p.jobs.job_id.index(name)
        done, last = 0.0, None
        for span in rows.itertuples():
            pause = 20.0 if span.pool == "p" else 0.0
            # it went on from one to the other: a change
            pause += 30.0 if last == span.from_s else 0.0
            rate = {"p": 1.0, "q": 0.6}[span.pool] * span.gpus**0.8
            done += rate * max(0.0, span.to_s - span.from_s - pause)
            last = span.to_s
        assert done == pytest.approx(p.jobs.total_work[j], rel=1e-9), (i, name)
