"""pauses.csv: which row counts, what it does to plans and simulations, and what is wrong with
one.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem, snapshot
from worlds import workload

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import InvalidInput
from allocator.options.instance_building import compile_round
from allocator.simulator.run import simulate
from allocator.solvers.base import SolveLimits

RUNS = {"state": "running", "pool": "p0", "gpus": 4, "remaining_work": 10_000}


def row(a: int, b: int, pause: float, **more: Any) -> dict[str, Any]:
    return {"model": "m", "from_gpus": a, "to_gpus": b, "pause_s": pause, **more}


def pauses_of(p: Problem) -> dict[tuple[str, int], float]:
    """Pause of every option of the first job."""
    m = compile_round(p, prunes=False).option_table
    return {
        (p.pools.pool[q], k): s
        for j, q, k, s in zip(
            m.job.tolist(), m.pool.tolist(), m.gpus.tolist(), m.pause_s.tolist(), strict=True
        )
        if j == 0
    }


def test_rows_by_hand() -> None:
    """From 4 GPUs: 8 cost 5 s, 2 nothing, on type B 100 s; 1 is in no row: restart_s. Start-up is
    added, keeping is free, and a row of another model or another size counts for nothing."""
    p = problem(
        [RUNS],
        [{}, {"gpu_type": "B", "startup_s": 20}],
        pauses=[
            row(4, 8, 5),
            row(4, 2, 0),
            row(4, 2, 100, gpu_type="B"),
            row(2, 1, 1),
            {**row(4, 1, 9), "model": "other"},
        ],
    )
    assert pauses_of(p) == {
        ("p0", 1): 30,
        ("p0", 2): 0,
        ("p0", 4): 0,
        ("p0", 8): 5,
        ("p1", 1): 50,
        ("p1", 2): 120,
        ("p1", 4): 50,
        ("p1", 8): 25,
    }


def test_a_free_change_is_taken_and_a_dear_one_is_not() -> None:
    """300 s on 4 GPUs are 1200 units, on 8 after 200 s only 800. The audit recomputes the value."""
    for pause, gpus in ((0.0, 8), (200.0, 4)):
        result = decide(problem([RUNS], pauses=[row(4, 8, pause)]), limits=SolveLimits(gap=0.0))
        assert result.jobs["gpus"][0] == gpus
        assert result.objective_value == pytest.approx(max(1200, 8 * (300 - pause)) / 10_000)


def test_simulated_changes_take_that_long() -> None:
    """Alone a job does 2400 units on 8 GPUs in its first round; then a heavier one needs 4 of them,
    and 1800 units are left at rate 4: from 300 s on, or after the pause of the row, whatever
    restart_s says."""
    for pause in (100.0, 0.0):
        w = workload(
            [
                {"total_work": 4200, "max_gpus": 8},
                {
                    "submitted_s": 10,
                    "total_work": 5000,
                    "min_gpus": 4,
                    "max_gpus": 4,
                    "weight": 100,
                },
            ],
            gpus=8,
            rates={4: 4.0, 8: 8.0},
            pauses=[row(8, 4, pause)],
            config={"restart_s": 250},
        )
        assert simulate(w, policy="mip").jobs["finished_s"].tolist()[0] == 300 + pause + 1800 / 4


def test_faults_and_warnings() -> None:
    """Every cell by the rules; the same change twice; names that nothing has a rate for."""
    with pytest.raises(InvalidInput) as error:
        validate(snapshot([{}], pauses=[row(4, 8, 5), row(4, 8, 6), row(0, 8, -1)]))
    assert [str(f) for f in error.value.faults] == [
        'pauses.csv:3: model "m", gpu_type "", from_gpus 4, to_gpus 8 is already in line 2',
        "pauses.csv:4: from_gpus 0 is below 1",
        "pauses.csv:4: pause_s -1 is below 0",
    ]
    p = problem([{}], pauses=[row(4, 8, 5, gpu_type="B"), {**row(4, 8, 5), "model": "mm"}])
    assert [w for w in p.warnings if "pauses" in w] == [
        'pauses.csv:2: gpu_type "B" has no rate',
        'pauses.csv:3: model "mm" has no rate; did you mean "m"?',
    ]
