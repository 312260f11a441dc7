"""What is announced decides better: GPUs that leave, and a price that rises."""

from __future__ import annotations

import pytest
from places import ROOT

import allocator
from allocator.simulator import SimulationOptions

EXAMPLES = ROOT / "data" / "examples" / "announced"


def ends(case: str, policy: str, announce_s: float = 7200.0) -> tuple[float, float]:
    """Minutes until the only job is done, and dollars."""
    found = allocator.simulate(
        allocator.read_workload(EXAMPLES / case),
        policy=policy,
        options=SimulationOptions(announce_s=announce_s, prove_every=0),
    )
    return float(found.jobs["finished_s"][0]) / 60, float(found.metrics["dollars"])


def test_gpus_that_leave() -> None:
    """12 units a second for 15 minutes and then nothing, or 8 for good; a change costs 10 minutes
    and what was not saved. A single round starts on the fast pool and loses 15 minutes: 60 minutes
    more from there. Staying on the slow pool takes 60, and so does looking ahead; without the
    announcement it knows no better."""
    assert ends("capacity", "mip") == (75.0, 0.0)
    assert ends("capacity", "horizon") == (60.0, 0.0)
    assert ends("capacity", "horizon", 0.0) == (75.0, 0.0)


def test_a_price_that_rises() -> None:
    """2 dollars per GPU-hour for 15 minutes, then 20. Four GPUs take 5500/4 s and pay the high
    price for 475 s of them; eight are done after 5500/6.4 s, before it rises."""
    minutes, dollars = ends("price", "mip")
    assert minutes == pytest.approx(5500 / 4 / 60)
    assert dollars == pytest.approx(4 * (900 * 2 + (5500 / 4 - 900) * 20) / 3600)
    minutes, dollars = ends("price", "horizon")
    assert minutes == pytest.approx(5500 / 6.4 / 60)
    assert dollars == pytest.approx(8 * 2 * 5500 / 6.4 / 3600)
