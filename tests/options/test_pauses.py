"""pauses.csv: what a row does to a simulation, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem, snapshot
from worlds import workload

from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput
from allocator.simulator.run import simulate


def row(a: int, b: int, pause: float, **more: Any) -> dict[str, Any]:
    return {"model": "m", "from_gpus": a, "to_gpus": b, "pause_s": pause, **more}


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
