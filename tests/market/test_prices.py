"""Bad prices in a snapshot and in a workload, as `allocator validate` says them: faults by cell,
doubts as warnings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.cli import main
from allocator.domain.rules.snapshot_rules import validate
from allocator.io.snapshots import read_snapshot

POOLS = (
    "pool,gpu_type,gpus,market,price_per_gpu_hour\n"
    "cheap,A,4,on_demand,2\ndear,A,4,on_demand,3\nspot,A,4,spot,{spot}\nother,B,4,spot,9\n"
)
PRICES = "at_s,pool,price_per_gpu_hour,gpus\n"
RATES = "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,B,1,1\n"
JOBS = {
    "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus\nj,m,0,100,1\n",
    "workload.csv": "job_id,model,total_work,max_gpus,submitted_s\nj,m,100,1,0\n",
}


@pytest.fixture(params=tuple(JOBS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A snapshot and a workload with two pools on demand and one spot pool of type A, one spot
    pool of type B.
    """
    (tmp_path / request.param).write_text(JOBS[request.param])
    (tmp_path / "rates.csv").write_text(RATES)
    return tmp_path


def said(
    folder: Path, capsys: pytest.CaptureFixture[str], spot: str = "1", prices: str = ""
) -> tuple[int, str]:
    """Exit code and standard error."""
    (folder / "pools.csv").write_text(POOLS.format(spot=spot))
    (folder / "prices.csv").write_text(PRICES + prices)
    code = main.run(["validate", str(folder)])
    return code, capsys.readouterr().err


def test_good_prices_say_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal to the price on demand is no doubt; neither is a type without any pool on demand."""
    assert said(folder, capsys, "2", "60,spot,1.5,\n90,other,20,\n90,spot,,0\n") == (0, "")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("-1", "price_per_gpu_hour -1 is below 0"),
        ("$0.35", 'price_per_gpu_hour "$0.35" is not a number'),
        ("0.35 USD", 'price_per_gpu_hour "0.35 USD" is not a number'),
        ("nan", "is not a"),
        ("inf", "is not a"),
    ],
)
def test_faults(folder: Path, capsys: pytest.CaptureFixture[str], cell: str, message: str) -> None:
    """Negative prices, currency text, nan and inf: the cell's file and line, in both files at
    once.
    """
    code, err = said(folder, capsys, cell, f"60,spot,{cell},\n")
    lines = [line for line in err.splitlines() if message in line]
    assert code == 3 and len(lines) == 2
    assert "pools.csv:4:" in lines[0] and "prices.csv:2:" in lines[1]


def test_spot_above_on_demand_is_doubted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both pools are named, by name and line, and the cheapest one on demand counts."""
    code, err = said(folder, capsys, "2.5", "60,spot,2.6,\n70,spot,1.9,\n")
    assert code == 0 and err.splitlines() == [
        (
            'warning: pools.csv:4: spot price_per_gpu_hour 2.5 is above that of pool "cheap", 2,'
            ' which has "A" on demand (pools.csv:2) (pool "spot")'
        ),
        (
            'warning: prices.csv:2: pool "spot" is spot; its price_per_gpu_hour 2.6 is above that'
            ' of pool "cheap", 2, which has "A" on demand (pools.csv:2)'
        ),
    ]


def test_gaps_are_doubted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A price only from a later time on, and a row that gives nothing; a pool that is not there
    is a fault.
    """
    code, err = said(folder, capsys, "", "60,spot,1.5,\n50,spot,1.2,\n90,other,,\n")
    assert code == 0 and err.splitlines() == [
        (
            'warning: pools.csv:4: pool "spot" has no price_per_gpu_hour; it costs nothing until'
            ' prices.csv:3 gives one at 50 (pool "spot")'
        ),
        "warning: prices.csv:4: gives neither price_per_gpu_hour nor gpus; nothing changes",
    ]
    code, err = said(folder, capsys, "1", "60,spto,1.5,\n")
    assert (
        code == 3 and 'prices.csv:2: pool "spto" is not in pools.csv; did you mean "spot"?' in err
    )


def test_a_snapshot_with_a_price_in_force_now_has_no_gap(tmp_path: Path) -> None:
    """Prices before now_s are those of the round: no doubt about them."""
    for name, text in (
        ("jobs.csv", JOBS["jobs.csv"]),
        ("rates.csv", RATES),
        ("pools.csv", POOLS.format(spot="")),
        ("prices.csv", PRICES + "0,spot,1.5,\n"),
    ):
        (tmp_path / name).write_text(text)
    assert validate(read_snapshot(tmp_path)).warnings == ()
