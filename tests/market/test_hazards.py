"""Revocations by region and age: the mean over a run, what it leaves of a speed, the choice of a
region, the simulator, and the way from lifetimes to pools.csv.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from commands import Output, call
from places import ROOT
from test_lifetimes import played
from worlds import workload

from allocator.domain.problem import Floats
from allocator.domain.schema.cells import parse_hazard
from allocator.performance.fit.transient import fit_hazard_of_places
from allocator.performance.lost_time import useful_share
from allocator.simulator import SimulationOptions
from allocator.simulator.revocations import SpotServers

HOUR = 3600.0
HAZARDS = {  # per hour by age: an early burst, servers that wear out, and a burst that ends
    "burst": ((0.0, 0.6), (1.0, 0.03)),
    "worn": ((0.0, 0.02), (3.0, 0.4)),
    "brief": ((0.0, 1.2), (0.5, 0.0)),
}
TEXTS = {name: "|".join(f"{a}:{h}" for a, h in law) for name, law in HAZARDS.items()}
JOB = {"min_gpus": 4, "max_gpus": 4, "requested_gpus": 4, "restart_s": 30.0, "checkpoint_s": 20.0}


def draw_lives(random: np.random.Generator, law: tuple[tuple[float, float], ...], n: int) -> Floats:
    """Draw hours that servers live, (n,), by the pieces one after the other."""
    lives = np.full(n, np.inf)
    ends = [a for a, _ in law[1:]] + [np.inf]
    for (start, rate), end in zip(law, ends, strict=True):
        wait = random.exponential(1.0 / rate, n) if rate else np.full(n, np.inf)
        lives = np.where(np.isinf(lives) & (start + wait < end), start + wait, lives)
    return lives


@pytest.mark.parametrize("name", HAZARDS)
@pytest.mark.parametrize("hours", [0.7, 20.0])
def test_useful_share_is_that_of_servers_drawn_one_by_one(name: str, hours: float) -> None:
    """Mean time of 400 jobs on four servers with checkpoints every 600 s: the share of useful
    time is within 3 % of the formula's, and that claims at most 1 % (or 3 errors) too much."""
    pool = {"gpus": 4, "market": "spot", "startup_s": 60.0, "hazard_by_age": TEXTS[name]}
    job = JOB | {"remaining_work": 4 * HOUR * hours, "checkpoint_every_s": 600.0}
    p = problem([job], [pool], {4: 4.0})
    claimed = useful_share(p, *(np.array([x]) for x in (0, 0, 4, 4.0)))[0]
    random = np.random.default_rng(0)

    def lives(count: int) -> Floats:
        return draw_lives(random, HAZARDS[name], count) * HOUR

    took = np.array([played(HOUR * hours, 4, lives, 20.0, 600.0, 90.0)[0] for _ in range(400)])
    share = HOUR * hours / took.mean()
    error = share * took.std() / took.mean() / np.sqrt(len(took))
    assert claimed == pytest.approx(share, rel=0.03, abs=3 * error)
    assert claimed <= share * 1.01 + 3 * error


def test_the_simulator_draws_lives_by_the_hazard() -> None:
    """100,000 servers of each pool: shares dead by an age; twice the hazard with `revocations`
    2; with batches, a server of an age dies at its hazard."""
    pool = {"pool": "p", "gpus": 64, "market": "spot"}

    def servers(name: str, **options: float) -> SpotServers:
        pools = [pool | {"hazard_by_age": TEXTS[name]}]
        return SpotServers(workload([{}], pools=pools), SimulationOptions(**options))

    for name, law in HAZARDS.items():
        lives = servers(name, revocations=2)._draw_lifetimes(0, 0, 100_000)
        drawn = draw_lives(np.random.default_rng(1), tuple((a, 2 * h) for a, h in law), 100_000)
        for age in (0.25, 1.0, 2.0, 6.0):
            share = float(np.mean(drawn < age))
            slack = 5 * np.sqrt(share / 1e5) + 1e-4
            assert np.mean(lives < age * HOUR) == pytest.approx(share, abs=slack)
    zone, taken, at = servers("burst", spot_batch=4), np.zeros(64), 0.0
    zone.start(0, 0, 64, 0.0)
    while at < 400 * HOUR:
        at, z = zone.next_event()
        zone.servers[0].up_s[:] = at - 0.5 * HOUR * np.repeat([1, 4], 32)  # half of them are young
        for _, lost in zone.strike(z, np.array([0]), np.array([0]), at):
            taken += lost
    assert taken[:32].sum() == pytest.approx(32 * 400 * 0.6, rel=0.05)
    assert taken[32:].sum() == pytest.approx(32 * 400 * 0.03, rel=0.2)


def test_places_lean_to_the_mean_of_all() -> None:
    """By hand: 3 of 4 servers revoked in 40 h in one place, none of 2 in 20 h in the other: 3 of
    60 h in all, so 1 in 20 h is added to each."""
    hours = [10.0] * 6
    fits = fit_hazard_of_places(hours, [True] * 3 + [False] * 3, [("a",)] * 4 + [("b",)] * 2)
    assert fits["a",].hazard.per_hour == pytest.approx([4 / 60])
    assert fits["b",].hazard.per_hour == pytest.approx([1 / 40])
    assert fits["b",].seen.tolist() == [0] and fits["b",].hours.tolist() == [20]


def test_from_lifetimes_to_pools(tmp_path: Path, capsys: Output) -> None:
    """`spot fit hazard` by region, then `spot hazards`, give the pools of the example."""
    folder, table = ROOT / "data" / "examples" / "regions", tmp_path / "table.csv"
    fit = f"spot fit hazard {folder / 'lifetimes.csv'} --ages 0,1 --format csv"
    table.write_text(call(capsys, fit)[1], encoding="utf-8")
    line = f"spot hazards {table} --pools {folder / 'pools.csv'} --format csv"
    made = csv.DictReader(io.StringIO(call(capsys, line)[1]))
    shipped = csv.DictReader((folder / "pools.csv").open(encoding="utf-8"))
    for a, b in zip(made, shipped, strict=True):
        found, given = (parse_hazard(row.pop("hazard_by_age")) for row in (a, b))
        assert found.per_hour == pytest.approx(given.per_hour, rel=1e-4) and a == b
    table.write_text("from_h,per_hour\n1,0.5\n", encoding="utf-8")
    code, _, err = call(capsys, line)
    assert code == 3 and "must ascend from 0" in err
