"""Sizes as far as they are known, for everything that looks at a round, and misjudged ones."""

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
from allocator.simulator import SimulationOptions, simulate
from allocator.solvers.base import SolveLimits


@pytest.mark.nightly
def test_misjudged_sizes_are_what_policies_see_and_not_what_happens() -> None:
    """A policy that does not look at sizes does the same; one that does plans otherwise, and all
    jobs still finish.
    """
    w = generate("reproduction", seed=1, load=0.5, jobs=12).workload()

    def mean(policy: str, **world: object) -> float:
        told = simulate(
            w, policy=policy, options=SimulationOptions(prove_every=0, objective="flow", **world)
        )
        assert told.metrics["finished"] == 12
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


@pytest.mark.parametrize(
    ("sizes", "speed", "gpus"), [("unknown", 1.7, 1), ("unknown", 1.9, 8), ("known", 1.1, 8)]
)
def test_gpus_that_hardly_help_a_job_of_unknown_size_stay_free(
    sizes: str, speed: float, gpus: int
) -> None:
    """Alone on 8 GPUs: 7 of them more cost 7/16 of its time, and save 1 - 1 / speed."""
    p = problem(
        [{"remaining_work": 1e6, "sizes": [1, 8]}],
        [{"gpus": 8}],
        {1: 1.0, 8: speed},
        config={"interval_s": 300, "objective": "flow", "sizes": sizes},
        finished=[{"model": "m", "total_work": 1e6}],
    )
    assert list(decide(p).jobs["gpus"]) == [gpus]
