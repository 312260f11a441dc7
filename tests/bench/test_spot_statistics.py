"""Generated availability and prices have the statistics of measured spot markets, over many
seeds.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from allocator.bench.workloads.parts import availability as spot

DAYS, SEEDS, REGIONS, MACHINES = 45, 24, (3, 2), 16
REGION_OF = [r for r, count in enumerate(REGIONS) for _ in range(count)]


@cache
def drawn() -> list[list[spot.StepFunction]]:
    """45 days of five zones, 24 times."""
    return [
        spot.zones(np.random.default_rng(s), REGIONS, MACHINES, DAYS * 86_400.0)
        for s in range(SEEDS)
    ]


def stretches(up: bool) -> np.ndarray:
    """Hours of all complete stretches in which a zone had a machine, or had none."""
    out = []
    for zone in (z for zones in drawn() for z in zones):
        there = zone.value > 0
        moves = np.append(True, np.diff(there.astype(int)) != 0)
        out.append((np.diff(zone.at_s[moves]) / 3600)[there[moves][:-1] == up])
    return np.concatenate(out)


def test_share_of_time() -> None:
    """A machine can be had .88 of the time (measured .88 to .91 in one region), and 6.8 to 8.8
    of 16 are held.
    """
    t = np.arange(0, DAYS * 86_400, 600.0)
    held = np.array([z.at(t) for zones in drawn() for z in zones])
    assert (held > 0).mean() == pytest.approx(0.88, abs=0.02)
    assert 6.8 < held.mean() < 8.8 and held.max() == MACHINES


def test_zones_of_a_region_fail_together() -> None:
    """Correlation of being up: .25 to .59 within a region, .03 to .27 between regions; theory
    for the means.
    """
    t = np.arange(0, DAYS * 86_400, 600.0)
    same, other = [], []
    for zones in drawn():
        c = np.corrcoef([(z.at(t) > 0).astype(float) for z in zones])
        for i in range(len(zones)):
            for j in range(i):
                (same if REGION_OF[i] == REGION_OF[j] else other).append(c[i, j])
    assert 0.25 < np.mean(same) < 0.59 and 0.03 < np.mean(other) < 0.27
    for values, common in ((same, spot.REGION * spot.MARKET), (other, spot.MARKET)):
        theory = spot.UP * (1 - common) / (common * (1 - spot.UP))
        assert np.mean(values) == pytest.approx(theory, abs=0.06)
