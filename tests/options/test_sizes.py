"""Sizes as far as they are known, for everything that looks at a round, and misjudged ones."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem

from allocator.bench.workloads import generate
from allocator.engine.decision import decide
from allocator.engine.frontier.jobs import job_ways
from allocator.engine.frontier.rounds import keep, round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.options.configure import configure
from allocator.options.instance_building import compile_round
from allocator.simulator import SimulationOptions, simulate
from allocator.solvers.base import SolveLimits


@pytest.mark.nightly
def test_misjudged_sizes_are_what_policies_see_and_not_what_happens() -> None:
    """A policy that does not look at sizes does the same; one that does plans otherwise, and all
    jobs still finish.
    """
    w = generate("reproduction", seed=3, load=0.5, jobs=12).workload()

    def mean(policy: str, **world: object) -> float:
        told = simulate(
            w, policy=policy, options=SimulationOptions(prove_every=0, objective="flow", **world)
        )
        assert told.metrics["finished"] == 12
        return float(told.metrics["jct_s_mean"])

    assert mean("greedy", misjudged_sizes=1.0) == mean("greedy")
    assert mean("mip", misjudged_sizes=1.0) != mean("mip") != mean("mip", sizes="unknown")


@pytest.mark.parametrize("sizes", ["predicted", "unknown"])
def test_everything_that_looks_at_a_round_believes_the_same(sizes: str) -> None:
    """One job of 500 on one GPU in rounds of 300 s, of value .6 if its size were known; 300 / 566
    and 1 as far as it is known. Ways to the end, `configure`, the model for other solvers and the
    frontier say what the plan says."""
    p = problem(
        [{"remaining_work": 500, "sizes": [1]}],
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
    curve = round_frontier(p, Effort(SolveLimits(), None, 2)).found.points
    kept = keep(p, Effort(SolveLimits(), None, 4), 1.0, True, dollars="added").result
    values = [decide(p).objective_value, kept.objective_value, curve.value[-1], curve.bound[-1]]
    values += compile_round(p).model.value.tolist()
    assert values == pytest.approx([300 / left] * 5)


def test_gpus_that_hardly_help_a_job_of_unknown_size_stay_free() -> None:
    """Alone on 8 GPUs: 7 of them more save 19/8 (speed - 1), and cost (8 - speed) / 4."""
    for speed, gpus in (1.6, 1), (1.7, 8):
        p = problem(
            [{}],
            rates={1: 1.0, 8: speed},
            config={"objective": "flow", "sizes": "unknown"},
            finished=[{"model": "m", "total_work": 1e6}],
        )
        assert decide(p).jobs["gpus"] == [gpus]


def test_learned_sizes_that_hardly_differ_do_not_stop_a_job() -> None:
    """What the other job has done makes it seem to be shorter by a tenth, or by a quarter."""
    for work, gpus in (1900, [1, 0]), (1700, [0, 1]):
        p = problem(
            [
                {"total_work": work, "state": "running", "pool": "p0", "gpus": 1},
                {"total_work": 2000},
            ],
            [{"gpus": 1}],
            config={"objective": "flow", "sizes": "unknown"},
        )
        assert decide(p).jobs["gpus"] == gpus
