"""The policy `horizon`: the single round at H = 1, plans that pay for their pauses, time limits,
the same twice.
"""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from examples import count, series
from fakes.random_rounds import random_snapshot
from waiting import in_time

from allocator.bench.workloads import generate
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import Infeasible, InvalidInput, UsageError
from allocator.options.announced_capacity import gpus_ahead
from allocator.options.instance_building import compile_round
from allocator.options.look_ahead import build_horizon
from allocator.simulator import SimulationOptions
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
from allocator.solvers.horizon import look_ahead
from formulations.horizon.intervals import follow
from formulations.model.choices import choices
from formulations.objectives import BUILT_IN, get_objective

# the objective flow spreads pauses in a single round
LINEAR = [name for name in BUILT_IN if name != "flow" and get_objective(name).linear is not None]
EXACT = SolveLimits(time_s=300.0, gap=0.0)


@pytest.mark.parametrize("objective", series(LINEAR, 2))
def test_one_interval_is_the_single_round(objective: str) -> None:
    """With H = 1 every option has the value that the round gives it, and the look ahead finds what
    `mip` finds.
    """
    seen = 0
    for seed in range(count(4, 20)):
        folder = random_snapshot(np.random.default_rng([seed, 6]), 6)
        # the look ahead has no reservations
        folder.config.update(objective=objective, reserve_after_s=1e9)
        p = validate(folder.snapshot())
        try:
            best = decide(p, limits=EXACT)
        except Infeasible:
            continue
        round_ = compile_round(p, prunes=False)
        x = build_horizon(round_, choices(round_.model), gpus_ahead(round_.problem, 1))
        gain = follow(x, x.job, np.arange(x.n)[:, None]).gain
        money = p.pools.min_billing_s[round_.instance.pool] == 0
        assert gain[money] == pytest.approx(round_.instance.value[money], rel=1e-9, abs=1e-12)
        assert look_ahead(x, EXACT, solver=registry.get("highs")).gain == pytest.approx(
            best.objective_value, abs=1e-7
        )
        assert decide(
            p, policy="horizon", horizon=1, limits=EXACT
        ).objective_value == pytest.approx(best.objective_value, rel=1e-9)
        seen += 1
    assert seen >= 2


def test_a_change_is_paid_from_all_intervals() -> None:
    """From 1 to 4 GPUs, three times as fast, after a pause of 250 s of a round of 300: a loss for
    one round (150 against 300), a gain for six. A job that ends within the round stays as it
    is."""

    def gpus(horizon: int, work: float) -> object:
        p = problem(
            [
                {
                    "state": "running",
                    "pool": "p0",
                    "gpus": 1,
                    "sizes": [1, 4],
                    "remaining_work": work,
                    "restart_s": 250,
                }
            ],
            [{"gpus": 4}],
            {1: 1.0, 4: 3.0},
            config={"objective": "completion"},
        )
        return decide(p, policy="horizon", horizon=horizon).jobs["gpus"][0]

    assert (gpus(1, 5000), gpus(6, 5000), gpus(6, 290)) == (1, 4, 1)


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_time_limits_are_kept(limit: float) -> None:
    """Two hundred jobs: a plan within the limit and a second; with too little time the single
    round's.
    """
    p = generate("reproduction", seed=0, load=4.0, jobs=200).workload().problem
    with in_time(limit + 1.0):
        r = decide(p, policy="horizon", horizon=12, limits=SolveLimits(time_s=limit))
    assert any(gpus for gpus in r.jobs["gpus"])
    if limit == 0:
        assert r.fallback is not None and any("too short to look ahead" in w for w in r.warnings)


def test_how_good_it_is_and_what_it_does_not_know() -> None:
    """The bound of the look ahead is told; the objective `cost` is decided as a single round."""
    p = problem([{}, {"remaining_work": 5e4}], [{"gpus": 4}])
    assert decide(p, policy="horizon").solver_choice.startswith("look ahead: 6 intervals, within")
    r = decide(p, policy="horizon", objective="cost")
    assert r.fallback == "mip" and "no look ahead" in r.warnings[-1]


def test_how_far_it_looks_is_checked() -> None:
    """From 1 to 48 intervals, in the file, in the call and in a simulation."""
    with pytest.raises(InvalidInput, match="rounds"):
        problem([{}], config={"horizon": {"rounds": 0}})
    with pytest.raises(UsageError, match="from 1 to 48"):
        decide(problem([{}]), policy="horizon", horizon=49)
    with pytest.raises(UsageError, match="from 1 to 48"):
        SimulationOptions(horizon=0)
    two = decide(problem([{}, {}], config={"horizon": {"rounds": 2}}), policy="horizon")
    assert two.solver_choice is not None and "2 intervals" in two.solver_choice
