"""Servers that vanish, and bills: by hand, and against the laws they are drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import count
from worlds import workload

from allocator.simulator import Simulation, SimulationOptions, simulate
from allocator.simulator.revocations import SpotServers

HOUR = 3600.0


def spot(gpus: int = 2, **columns: Any) -> dict[str, Any]:
    """A spot pool "p"."""
    return {"pool": "p", "gpus": gpus, "market": "spot", "price_per_gpu_hour": 36, **columns}


def alone(
    job: dict[str, Any], pool: dict[str, Any], changes: Any = (), **options: Any
) -> Simulation:
    """One job that asks for all GPUs, rate k on k."""
    k = pool["gpus"]
    rates = {n: float(n) for n in range(1, k + 1)}
    return simulate(
        workload(
            [{"requested_gpus": k, "max_gpus": k, "restart_s": 30, **job}],
            pools=[pool],
            rates=rates,
            changes=changes,
        ),
        policy="static",
        options=SimulationOptions(prove_every=0, **options),
    )


def finished(s: Simulation) -> float:
    return float(s.jobs["finished_s"][0])


def test_a_synchronous_job_falls_back_waits_and_restarts() -> None:
    """Servers up at 10, dead at 110: 100 s of work, 80 of them safe (checkpoint every 40 s). Up
    again at 120, ready at 150, dead at 220: 70 s, 40 safe. Ready at 260 with 320 - 2 x 120 = 80
    left: done at 300."""
    s = alone({"total_work": 320, "checkpoint_every_s": 40}, spot(startup_s=10, lifetime_s=100))
    assert finished(s) == 300 and s.metrics["revocations"] == 4 and s.metrics["restarts"] == 0
    assert s.metrics["dollars"] == pytest.approx(300 * 2 * 0.01)


def test_an_asynchronous_job_loses_one_share_until_the_replacement_is_there() -> None:
    """However its servers die: work done = (GPUs x time up - 50 s for each server lost) x 1;
    exact, for any seed.
    """
    for seed in range(count(7, 20)):
        s = alone(
            {"total_work": 4 * HOUR, "synchronous": "false"},
            spot(4, startup_s=50, revocations_per_gpu_hour=5.0),
            seed=seed,
        )
        lost = s.metrics["revocations"]
        up = 4 * (finished(s) - 50)
        assert lost > 0 and up - 50 * lost <= 4 * HOUR + 1e-6 <= up - 50 * (lost - 4) + 1e-6


def test_burst_of_the_first_hour() -> None:
    """Hazard .01 per hour, 8 times that in the first: 1 - exp(-.08) die in it, 1 - exp(-.08 -
    .05) within six hours.
    """
    p = workload([{}], pools=[spot(1, revocations_per_gpu_hour=0.01)])
    lives = SpotServers(p, SimulationOptions(spot_burst=8))._draw_lifetimes(0, 0, 100_000) / HOUR
    for hours, share in ((1, 1 - np.exp(-0.08)), (6, 1 - np.exp(-0.13)), (60, 1 - np.exp(-0.67))):
        assert np.mean(lives < hours) == pytest.approx(share, abs=4 * np.sqrt(share / 1e5))


def test_batches_keep_the_hazard_and_take_several() -> None:
    """32 GPUs, 0.2 per GPU-hour, batches of 4: 1.6 events an hour, each server's hazard as before;
    the number taken by an event is binomial with mean 4."""
    p = workload(
        [{"requested_gpus": 32, "max_gpus": 32}],
        pools=[spot(32, revocations_per_gpu_hour=0.2)],
        rates={32: 32.0},
    )
    zone = SpotServers(p, SimulationOptions(spot_batch=4, seed=3))
    zone.start(0, 0, 32, 0.0)
    taken = []
    for _ in range(2000):
        at, z = zone.next_event()
        struck = zone.strike(z, np.array([0]), np.array([0]), at)
        taken.append(int(struck[0][1].sum()) if struck else 0)
    assert np.mean(taken) == pytest.approx(4, abs=4 * np.sqrt(4 * 7 / 8 / 2000))
    assert np.var(taken) == pytest.approx(3.5, rel=0.15)
    assert at / HOUR == pytest.approx(2000 / 1.6, rel=4 / np.sqrt(2000))


def test_one_zone_is_struck_at_once_and_others_are_not() -> None:
    """Pools of one region share their events; those of another have their own."""
    pools = [
        spot(4, revocations_per_gpu_hour=1.0) | {"pool": n, "region": r}
        for n, r in (("a", "east"), ("b", "east"), ("c", "west"))
    ]
    zone = SpotServers(workload([{}, {}, {}], pools=pools), SimulationOptions(spot_batch=8))
    for j in range(3):
        zone.start(j, j, 4, 0.0)
    struck = zone.strike(0, np.arange(3), np.arange(3), zone.next_event()[0])
    assert (
        [j for j, _ in struck] == [0, 1]
        and all(lost.all() for _, lost in struck)
        and len(zone.next_event_s) == 2
    )


@pytest.mark.parametrize(
    "victims, ends", [("youngest", {(600.0, 1)}), ("random", {(600.0, 1), (900.0, 0)})]
)
def test_a_smaller_pool_takes_the_youngest_or_anybody(victims: str, ends: Any) -> None:
    """Two jobs of one GPU, the second started at 300; at 450 one GPU goes. Over seeds, both may
    be hit at random.
    """
    seen = set()
    for seed in range(6):
        s = simulate(
            workload(
                [{"total_work": 600}, {"submitted_s": 300}],
                changes=[(450, 1, None)],
                pools=[spot(2)],
            ),
            policy="static",
            options=SimulationOptions(victims=victims, seed=seed),
        )
        seen.add((float(s.jobs["finished_s"].min()), int(s.jobs["revocations"].argmax())))
        assert s.metrics["revocations"] == 1
    assert {v for _, v in seen} == {v for _, v in ends}


def test_an_asynchronous_job_shrinks_with_its_pool() -> None:
    """4 GPUs from 0; at 100 one goes: 600 - 400 = 200 left at rate 3. Synchronous: all is lost, and
    it waits for the round at 300, when it may run on its least size."""
    changes = [(100, 3, None)]
    s = alone({"total_work": 600, "synchronous": "false"}, spot(4), changes)
    assert finished(s) == pytest.approx(100 + 200 / 3) and s.metrics["revocations"] == 1
    assert alone({"total_work": 600}, spot(4), changes).metrics["revocations"] == 4


def test_hazards_do_not_strike_what_a_trace_describes() -> None:
    """A pool in capacity.csv, and --revocations 0: nothing else is revoked."""
    pool = spot(2, revocations_per_gpu_hour=50.0)
    assert alone({"total_work": HOUR}, pool, [(9e9, 1, None)]).metrics["revocations"] == 0
    assert alone({"total_work": HOUR}, pool, revocations=0.0).metrics["revocations"] == 0
    assert alone({"total_work": HOUR, "synchronous": "false"}, pool).metrics["revocations"] > 0


def test_checkpoints_cost_their_time() -> None:
    """5 s after every 45 s of work: 90 % of the time is work. Without an interval, and by
    default, no cost.
    """
    pool = spot(1)
    costly = alone({"total_work": 900, "checkpoint_every_s": 45, "checkpoint_s": 5}, pool)
    assert finished(costly) == pytest.approx(1000)
    assert finished(alone({"total_work": 900, "checkpoint_s": 5}, pool)) == 900
    assert finished(alone({"total_work": 900, "checkpoint_every_s": 45}, pool)) == 900


def test_young_daly_takes_the_hazard_of_all_servers() -> None:
    """checkpoint_s 4, 2 GPUs at 1 per GPU-hour: sqrt(2 x 4 x 1800) = 120 s."""
    from allocator.simulator.run import initial_state

    state = initial_state(
        workload(
            [{"requested_gpus": 2, "max_gpus": 2, "checkpoint_s": 4}],
            pools=[spot(revocations_per_gpu_hour=1.0)],
        ),
        "static",
        SimulationOptions(checkpoints="young-daly"),
    )
    world = state.cluster.world
    world.apply_allocation(np.array([0]), np.array([0]), np.array([2]))
    assert world.cycle_s[0] == pytest.approx(124) and world.rate[0] == pytest.approx(2 * 120 / 124)


def test_bills() -> None:
    """100 s on one GPU at 36 $/h, billed for ten minutes: 6 dollars. A reserved pool of two: 2 x
    100 s, used or not, though the job's own share is 1."""
    assert alone({"total_work": 100}, spot(1, min_billing_s=600)).metrics[
        "bill_dollars"
    ] == pytest.approx(6)
    pool = {"pool": "p", "gpus": 2, "price_per_gpu_hour": 36}
    s = simulate(workload([{"total_work": 100}], pools=[pool]), policy="static")
    assert (s.metrics["dollars"], s.metrics["bill_dollars"]) == (pytest.approx(1), pytest.approx(2))


def test_synchronous_jobs_wait_for_the_last_server_asynchronous_ones_begin_with_the_first() -> None:
    """The same four servers: synchronous at 4 from the last on, asynchronous at 1, 2, 3 and 4."""
    pool = spot(4, startup_s=60, revocations_per_gpu_hour=1e-9)
    for seed in range(count(4, 10)):
        t, u = (
            finished(
                alone({"total_work": 800, "synchronous": sync}, pool, seed=seed, startup_spread=0.5)
            )
            for sync in ("true", "false")
        )
        servers = SpotServers(
            workload([{}], pools=[pool]), SimulationOptions(seed=seed, startup_spread=0.5)
        )
        up = servers.start(0, 0, 4, 0.0).up_s
        assert t == pytest.approx(up.max() + 200) and u == pytest.approx((800 + up.sum()) / 4)
