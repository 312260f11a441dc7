"""What is left of jobs of predicted or unknown sizes; the objective flow; worlds in which sizes
are misjudged.
"""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem

from allocator.bench.workloads import generate
from allocator.engine.decision import decide
from allocator.engine.frontier.rounds import keep, round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.engine.frontier.ways import job_ways
from allocator.options.configure import configure
from allocator.options.instance_building import compile_round
from allocator.options.option_table import option_table
from allocator.performance.sizes import estimate_sizes, expected_remaining
from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions, simulate
from allocator.solvers.base import SolveLimits


def test_expected_left_is_the_mean_of_the_draws_that_are_longer() -> None:
    """Against a million draws; before the start the mean of the log-normal, 8 exp(.5) at an
    error of 1.
    """
    draws = 8.0 * np.exp(np.random.default_rng(0).normal(size=1_000_000))
    done = np.array([0.0, 2.0, 8.0, 20.0])
    seen = [float(draws[draws > a].mean() - a) for a in done.tolist()]
    assert expected_remaining(done, np.full(4, 8.0), 1.0).tolist() == pytest.approx(seen, rel=0.02)
    assert expected_remaining(done[:1], np.full(1, 8.0), 1.0).item() == pytest.approx(
        8.0 * np.exp(0.5)
    )


def test_known_sizes_stay_and_unknown_ones_are_as_long_again() -> None:
    """Half an hour of work done of two hours; one of its requested size's intervals is 600 s at
    2 per second.
    """

    def left(sizes: str) -> float:
        p = problem(
            jobs=[
                {"remaining_work": 5400, "total_work": 7200, "requested_gpus": 2, "sizes": [1, 2]}
            ],
            rates={1: 1.0, 2: 2.0},
            config={"interval_s": 600, "sizes": sizes},
        )
        b = estimate_sizes(p)
        assert estimate_sizes(
            b
        ) is b and b.jobs.total_work - b.jobs.remaining_work == pytest.approx(1800)
        return float(b.jobs.remaining_work.item())

    assert left("known") == 5400
    assert left("unknown") == 1800 + 1200
    assert 5400 < left("predicted") < 1.5 * 5400


def served_on_one_gpu(sizes: str, models: tuple[str, str] = ("m", "m")) -> str:
    """Who gets the only GPU: j0 has had 89,000 s of it and needs 1,000 more, j1 has had 1,000 and
    needs 50,000.
    """
    p = problem(
        jobs=[
            {
                "model": models[0],
                "remaining_work": 1000,
                "total_work": 90_000,
                "attained_gpu_s": 89_000,
            },
            {
                "model": models[1],
                "remaining_work": 50_000,
                "total_work": 51_000,
                "attained_gpu_s": 1000,
            },
        ],
        rates=[{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": 1.0} for m in ("m", "n")],
        pools=[{"gpus": 1}],
        config={"objective": "flow", "sizes": sizes},
    )
    found = decide(p).jobs
    return str(next(n for n, k in zip(found["job_id"], found["gpus"], strict=True) if k))


def test_who_has_had_little_goes_first_where_sizes_are_unknown() -> None:
    """With nothing to learn from: each job is the only one of its model."""
    assert served_on_one_gpu("known", ("m", "n")) == "j0"
    assert served_on_one_gpu("unknown", ("m", "n")) == "j1"


def test_unfinished_jobs_of_a_model_show_how_long_the_others_are() -> None:
    """Of one model: who has done less will need as much as the other one has had, and more."""
    assert served_on_one_gpu("unknown") == "j0"


def test_learned_sizes_are_means_of_what_may_be_left() -> None:
    """Two new jobs of a model, rounds of 300 s: 300 units are expected of each, a round on one GPU.
    Behind a job are both, and half of both for luck; four GPUs do 4 units a second. A round on one
    GPU does 1 - 1/e of what is expected, and a job ends 300 / e s early in the mean.
    """
    p = problem(
        jobs=[{"total_work": 1000, "max_gpus": 2}] * 2,
        rates={1: 1.0, 2: 2.0},
        pools=[{"gpus": 4}],
        config={"objective": "flow", "sizes": "unknown", "interval_s": 300, "now_s": 0},
    )
    value = option_table(estimate_sizes(p), RateTable.of(p)).value
    assert (3600 * value).tolist() == pytest.approx(
        [
            3 / 4 * 300 * (1 - np.exp(-1)) + 300 * np.exp(-1),
            3 / 4 * 300 * (1 - np.exp(-2)) + 300 - 150 * (1 - np.exp(-2)),
        ]
        * 2
    )


def test_flow_counts_delay_against_what_jobs_take_alone() -> None:
    """Jobs of two hours alone, rounds of half an hour: T is 2.5 hours. One that came five hours ago
    and has done an hour's work is delayed by four and counts three times, 1 + 4 / (0.8 x 2.5); one
    that has worked ever since, once."""
    half = {"remaining_work": 3600, "total_work": 7200, "sizes": [1]}
    p = problem(
        jobs=[half | {"submitted_s": -5 * 3600}, half | {"submitted_s": -3600}],
        rates={1: 1.0},
        pools=[{"gpus": 1}],
        config={"interval_s": 1800, "objective": "flow", "now_s": 0},
    )
    # half an hour of V
    assert option_table(p, RateTable.of(p)).value.tolist() == pytest.approx([0.5 * 4.0, 0.5 * 1.0])


def test_misjudged_sizes_are_what_policies_see_and_not_what_happens() -> None:
    """A policy that does not look at sizes does the same; one that does plans otherwise, and all
    jobs still finish.
    """
    w = generate("reproduction", seed=1, load=0.5, jobs=20).workload()

    def mean(policy: str, **world: object) -> float:
        told = simulate(
            w, policy=policy, options=SimulationOptions(prove_every=0, objective="flow", **world)
        )
        assert told.metrics["finished"] == 20
        return float(told.metrics["jct_s_mean"])

    assert mean("greedy", misjudged_sizes=1.0) == mean("greedy")
    assert mean("mip", misjudged_sizes=1.0) != mean("mip")
    assert mean("mip", sizes="unknown") != mean("mip")


@pytest.mark.parametrize("sizes", ["predicted", "unknown"])
def test_everything_that_looks_at_a_round_believes_the_same(sizes: str) -> None:
    """One job of 500 on one GPU in rounds of 300 s, of value .6 if its size were known; 300 / 566
    and 1 as far as it is known. Ways to the end, `configure`, the model for other solvers and the
    frontier say what the plan says."""
    p = problem(
        [{"remaining_work": 500, "total_work": 500, "sizes": [1]}],
        [{"gpus": 1, "price_per_gpu_hour": 1}],
        {1: 1.0},
        config={"interval_s": 300, "objective": "progress", "sizes": sizes},
    )
    left = 500 * float(np.exp(0.125)) if sizes == "predicted" else 300.0
    assert (
        job_ways(p, ["j0"]).hours.tolist()
        == configure(p, "j0").hours.tolist()
        == pytest.approx([left / 3600])
    )
    expected_value = 300 / left
    assert decide(p).objective_value == pytest.approx(expected_value)
    assert compile_round(p).model.value.tolist() == pytest.approx([expected_value])
    curve = round_frontier(p, Effort(SolveLimits(), None, 2)).found
    assert curve.value[-1] == pytest.approx(expected_value) and curve.bound[-1] == pytest.approx(
        expected_value
    )
    kept = keep(p, Effort(SolveLimits(), None, 4), 1.0, True, dollars="added")
    assert kept.result.objective_value == pytest.approx(expected_value)
