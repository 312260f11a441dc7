"""Variants of a job as rows of rates.csv: out of core or distributed, compressed or not, in step
or not.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from builders import problem, snapshot, write_folder
from hypothesis import given, settings, strategies as st

from allocator.api import solve
from allocator.cli.main import run
from allocator.io.json_schema import result_schema
from allocator.performance.table import RateTable
from formulations.objectives import BUILT_IN as OBJECTIVES

A = {"gpu_type": "A"}


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 1.0), st.floats(0.1, 1.0), st.floats(0.1, 1.0)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(OBJECTIVES),
    st.sampled_from(("reserved", "on_demand")),
)
def test_where_more_gpus_gain_nothing_nobody_gets_more_than_one(
    shares: list[tuple[float, float, float]], objective: str, market: str
) -> None:
    """A job that is as fast or faster out of core on one GPU than distributed over 2, 4 and 8 gets
    one, though all eight are free: every further GPU would have no value."""
    rates = [
        {"model": f"m{i}", **A, "gpus": k, "work_per_s": 3.0 * s}
        for i, some in enumerate(shares)
        for k, s in zip((1, 2, 4, 8), (1.0, *some), strict=True)
    ]
    told = solve(
        snapshot(
            [{"model": f"m{i}"} for i in range(len(shares))],
            [{"market": market, "price_per_gpu_hour": 1.0}],
            rates,
            config={"objective": objective, "now_s": 0},
        )
    )
    assert max(told.jobs["gpus"]) <= 1


@given(st.floats(0.1, 5), st.floats(0.01, 5), st.floats(0.1, 20), st.floats(1.1, 10))
def test_compression_where_the_link_is_slow(
    compute: float, codec: float, link: float, ratio: float
) -> None:
    """A step takes compute + link, compressed compute + codec + link / ratio seconds: the
    compressed row counts exactly where link (1 - 1/ratio) > codec."""
    rows = [
        {**A, "gpus": 2, "work_per_s": 1 / (compute + link)},
        {
            **A,
            "gpus": 2,
            "work_per_s": 1 / (compute + codec + link / ratio),
            "variant": "compressed",
        },
    ]
    p = problem([{}], [{}], rows)
    _, row = RateTable.of(p).rate(np.array([0]), np.array([0]), np.array([2]))
    gain = link * (1 - 1 / ratio) - codec
    if abs(gain) > 1e-9:
        assert p.rates.variant[row[0]] == ("compressed" if gain > 0 else "")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_synchronous_or_not_as_rows(n: int) -> None:
    """Steps of a worker that take 1 or 3 s, each half of the time: n workers in step wait for the
    slowest, so they run at m / E[max] = 2 / (3 - 2 (1/2)^n) of n times one worker; without waiting
    at all of it, at the efficiency of stale gradients. The row of the asynchronous variant counts
    where that is less of a loss."""
    longest = 3.0 - 2.0 * 0.5**n
    for stale, wanted in (
        (2 / longest - 0.05, "synchronous"),
        (2 / longest + 0.05, "asynchronous"),
    ):
        rows = [
            {**A, "gpus": n, "work_per_s": n / longest, "variant": "synchronous"},
            {
                **A,
                "gpus": n,
                "work_per_s": n / 2,
                "efficiency": min(1.0, stale),
                "variant": "asynchronous",
            },
        ]
        p = problem([{}], [{}], rows)
        _, row = RateTable.of(p).rate(np.array([0]), np.array([0]), np.array([n]))
        assert p.rates.variant[row[0]] == wanted


def test_plans_name_the_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The faster row of a size counts and its variant is in plan.json, plan.csv and the table; a
    job whose row has none has none. The schema of plan.json has it."""
    snap = snapshot(
        jobs=[
            {"job_id": "a", "model": "m", "min_gpus": 2, "max_gpus": 2, "remaining_work": 1e6},
            {"job_id": "b", "model": "n", "min_gpus": 1, "max_gpus": 1, "remaining_work": 1e6},
        ],
        pools=[{"pool": "p", "gpu_type": "A", "gpus": 4}],
        rates=[
            {"model": "m", "gpu_type": "A", "gpus": 2, "work_per_s": 2, "variant": "async"},
            {"model": "m", "gpu_type": "A", "gpus": 2, "work_per_s": 3, "variant": "compressed"},
            {"model": "n", "gpu_type": "A", "gpus": 1, "work_per_s": 1},
        ],
    )
    assert solve(snap).jobs["variant"] == ["compressed", None]
    write_folder(snap, tmp_path / "s")
    assert run(["solve", str(tmp_path / "s"), "--out", str(tmp_path / "o")]) == 0
    assert "2 x p, compressed" in capsys.readouterr().out
    plan = json.loads((tmp_path / "o" / "plan.json").read_text(encoding="utf-8"))
    assert [job["variant"] for job in plan["jobs"]] == ["compressed", None]
    rows = list(csv.DictReader((tmp_path / "o" / "plan.csv").open(encoding="utf-8")))
    assert [row["variant"] for row in rows] == ["compressed", ""]
    assert "variant" in result_schema()["properties"]["jobs"]["items"]["properties"]


def test_a_speed_of_zero_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job whose model has a speed of 0 on the types there are: a warning names the row, and the
    reason says that the speed is 0, not that no rate is there."""
    snap = snapshot(
        jobs=[{"job_id": "a", "model": "m", "max_gpus": 1, "remaining_work": 1e6}],
        pools=[{"pool": "p", "gpu_type": "A", "gpus": 4}],
        rates=[{"model": "m", "gpu_type": "A", "gpus": 1, "work_per_s": 0}],
    )
    detail = solve(snap).jobs["detail"][0]
    assert detail is not None and 'the speed of model "m" is 0 in rates.csv' in detail
    write_folder(snap, tmp_path)
    assert run(["validate", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "work_per_s 0" in told.out + told.err
