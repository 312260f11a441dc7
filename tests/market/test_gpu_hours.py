"""GPU-hours of a calendar month: by hand, in a simulation of three months, and in advice."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from advice_rounds import command, entry, take_advice
from builders import snapshot, write_folder
from examples import series
from hypothesis import given, strategies as st
from worlds import workload

from allocator.domain.times import month_start_s
from allocator.simulator.run import simulate

DAY = 86_400.0
HOUR = 3600.0


@given(st.integers(0, 4_000_000_000))
def test_months_are_those_of_the_calendar(now_s: int) -> None:
    """The first of the month and of the next one at midnight in UTC."""
    day = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    first = datetime.datetime(day.year, day.month, 1, tzinfo=datetime.UTC)
    after = (first + datetime.timedelta(days=32)).replace(day=1)
    assert month_start_s(now_s) == first.timestamp()
    assert month_start_s(now_s, 1) == after.timestamp()


@pytest.mark.nightly
def test_three_simulated_months() -> None:
    """One job of 4 GPUs for 1,000 h, in rounds of 6 h, with 1,000 GPU-hours a month: it runs from
    the first of each month until less than a round of it is left, and ends in April."""
    jobs = [{"total_work": 4 * 1000 * HOUR, "tenant": "t", "min_gpus": 4, "max_gpus": 4}]
    s = simulate(
        workload(
            jobs,
            4,
            config={"interval_s": 6 * HOUR, "restart_s": 0},
            tenants=[{"tenant": "t", "gpu_hours_per_month": 1000}],
        )
    )
    spans = s.spans[["from_s", "to_s"]].to_numpy() / HOUR
    starts = [month_start_s(n * 31 * DAY) / HOUR for n in range(5)]
    assert spans[:, 0].tolist() == starts
    assert (spans[:4, 1] - spans[:4, 0]).tolist() == [246.0] * 4
    assert spans.sum(axis=0) @ [-1, 1] == pytest.approx(1000)


@pytest.mark.parametrize("objective", series(["progress", "maxmin"], 1))
def test_reason_and_advice_hold(objective: str, tmp_path: Path) -> None:
    """Two jobs of 2 GPUs in a round of an hour, 3 GPU-hours left of 9: one of them waits for the
    quota. With the 10 that `explain` advises it starts; all advice comes true."""
    round_ = snapshot(
        [{"min_gpus": 2, "max_gpus": 2, "remaining_work": 9e5, "tenant": "t"} for _ in "ab"],
        tenants=[{"tenant": "t", "gpu_hours_per_month": 9, "gpu_hours_used": 6}],
        config={"interval_s": 3600, "objective": objective},
    )
    folder = write_folder(round_, tmp_path / "round")
    [waits] = [n for n in ("j0", "j1") if not (entry(folder, n, ("--gap", "0")) or {})["gpus"]]
    told = json.loads(command("explain", folder, waits, "--format", "json")[1])
    assert told["got"]["reason"] == "quota"
    assert 'the monthly limit of GPU-hours of tenant "t"' in told["got"]["detail"]
    assert {"tenants.t.gpu_hours_per_month": "10"} in [c["values"] for c in told["changes"]]
    assert {*take_advice(folder, waits, ())} == {"true"}
