"""Variants of a job as rows of rates.csv: out of core or distributed, compressed or not, in step
or not.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from builders import snapshot, write_folder
from text_tables import columns

from allocator.api import solve
from allocator.cli.main import run
from formulations.objectives import BUILT_IN as OBJECTIVES


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_where_more_gpus_gain_nothing_nobody_gets_more_than_one(objective: str) -> None:
    """A job that is as fast or faster out of core on one GPU than distributed over 2, 4 and 8 gets
    one, though all eight are free: every further GPU would have no value."""
    config = {"objective": objective, "now_s": 0}
    told = solve(snapshot([{}, {}], rates={1: 3.0, 2: 3.0, 4: 2.0, 8: 2.9}, config=config))
    assert max(told.jobs["gpus"]) <= 1


def test_plans_name_the_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The faster row of a size counts and its variant is in the plan, plan.csv and the table; a job
    whose row has none has none."""
    snap = snapshot(
        jobs=[
            {"min_gpus": 2, "max_gpus": 2, "remaining_work": 1e6},
            {"model": "n", "max_gpus": 1, "remaining_work": 1e6},
        ],
        rates=[
            *columns("model gpu_type gpus work_per_s variant: m A 2 2 async; m A 2 3 compressed"),
            *columns("model gpu_type gpus work_per_s: n A 1 1"),
        ],
    )
    assert solve(snap).jobs["variant"] == ["compressed", None]
    write_folder(snap, tmp_path / "s")
    assert run(["solve", str(tmp_path / "s"), "--out", str(tmp_path / "o")]) == 0
    assert "2 x p0, compressed" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "o" / "plan.csv").open(encoding="utf-8")))
    assert [row["variant"] for row in rows] == ["compressed", ""]


def test_a_speed_of_zero_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job whose model has a speed of 0 on the types there are: a warning names the row, and the
    reason says that the speed is 0, not that no rate is there."""
    snap = snapshot(
        jobs=[{"max_gpus": 1}], rates=columns("model gpu_type gpus work_per_s: m A 1 0")
    )
    detail = solve(snap).jobs["detail"][0]
    assert detail is not None and 'the speed of model "m" is 0 in rates.csv' in detail
    write_folder(snap, tmp_path)
    assert run(["validate", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "work_per_s 0" in told.out + told.err
