"""Two jobs on the same GPUs in the simulated cluster: by hand, and the laws that hold with them
too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import workload

from allocator.domain.workload import Workload
from allocator.loop.gpu_places import find_unmoved_jobs
from allocator.simulator import SimulationOptions
from allocator.simulator.results.records import spans_table
from allocator.simulator.world import World

SLOW = [
    {
        "model_a": "m",
        "model_b": "n",
        "gpu_type": "A",
        "gpus": 1,
        "slowdown_a": 2.0,
        "slowdown_b": 1.25,
    }
]
RATES = [{"model": m, "gpu_type": "A", "gpus": k, "work_per_s": k} for m in "mn" for k in (1, 2)]


def two(
    a: dict[str, Any] | None = None,
    b: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    **more: Any,
) -> Workload:
    """j0 of model m and j1 of model n, which slow each other down 2 and 1.25 times, on one GPU."""
    jobs = [
        {"model": m, "memory_gb": 1, "total_work": 1000, **(own or {})}
        for m, own in (("m", a), ("n", b))
    ]
    return workload(
        jobs,
        pools=[
            {
                "pool": "p",
                "gpus": 1,
                "memory_gb": 10,
                "sharing": "any",
                "price_per_gpu_hour": 36,
                **(pool or {}),
            }
        ],
        rates=RATES,
        sharing=SLOW,
        **more,
    )


def apply_allocation(world: World, *plan: tuple[int, int, int]) -> int:
    """(pool, gpus, primary job) of every job."""
    pool, gpus, primary = (np.array(column) for column in zip(*plan, strict=True))
    return world.apply_allocation(np.arange(len(plan)), pool, gpus, primary)


def test_the_secondary_goes_on_alone_at_once_and_pays_from_then_on() -> None:
    """j0 holds the GPU at half its speed: 1000 s of it... j1 on the same GPU does 0.8 a second. j0
    has 400 units: done at 800, when j1 has 640 done; the other 360 take 360 s. The GPU costs 0.01
    $/s: 8 for j0, 3.60 for j1."""
    world = World(two({"total_work": 400}), SimulationOptions())
    assert apply_allocation(world, (0, 1, -1), (0, 1, 0)) == 2
    assert world.used_gpus().tolist() == [1] and world.next_completion() == 800
    world.advance(5000)
    assert world.finished_s.tolist() == [800, 1160]
    assert world.dollars.tolist() == pytest.approx([8, 3.6])
    assert world.attained.tolist() == [800, 360] and world.ran.tolist() == [800, 1160]
    assert world.received[:, 0].tolist() == [800, 1160]
    assert list(map(list, zip(*spans_table(world).values(), strict=True))) == [
        ["j0", "p", 1, 0, 800, ""],
        ["j1", "p", 1, 0, 800, "j0"],
        ["j1", "p", 1, 800, 1160, ""],
    ]


def test_the_primary_is_fast_again_when_its_secondary_is_done() -> None:
    """j1 has 80 units, done at 100; j0 has done 50 by then, the other 950 take 950 s."""
    world = World(two(b={"total_work": 80}), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(5000)
    assert world.finished_s.tolist() == [1050, 100] and world.dollars.tolist() == pytest.approx(
        [10.5, 0]
    )


def test_both_done_at_the_same_moment() -> None:
    """400 units at 0.5 and 640 at 0.8: both at 800."""
    world = World(two({"total_work": 400}, {"total_work": 640}), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(5000)
    assert world.finished_s.tolist() == [800, 800] and world.used_gpus().tolist() == [0]


def test_a_secondary_joins_a_running_job_that_has_no_pause() -> None:
    """j0 alone to 100; j1 comes with the pool's start-up of 20 s, j0 is slow from 100 on."""
    world = World(two(pool={"startup_s": 20}), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (-1, 0, -1))
    world.advance(120)
    assert world.remaining[0] == 900
    assert apply_allocation(world, (0, 1, -1), (0, 1, 0)) == 1
    world.advance(240)
    assert world.remaining.tolist() == pytest.approx([900 - 120 * 0.5, 1000 - 100 * 0.8])
    assert world.starts.tolist() == [1, 1]


def test_the_primary_is_moved_and_the_secondary_keeps_the_gpus() -> None:
    """At 100 the primary job goes to the other pool and pauses 30 s; the secondary job goes on
    alone without any. Then it may be the primary job of a job that comes back to it."""
    pools = [{"pool": p, "gpus": 1, "memory_gb": 10, "sharing": "any"} for p in "pq"]
    jobs = [{"model": m, "memory_gb": 1, "total_work": 1000} for m in "mn"]
    world = World(workload(jobs, pools=pools, rates=RATES, sharing=SLOW), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(100)
    assert apply_allocation(world, (1, 1, -1), (0, 1, -1)) == 1
    world.advance(200)
    assert world.remaining.tolist() == pytest.approx(
        [950 - 70, 920 - 100]
    ) and world.primary.tolist() == [-1, -1]
    assert apply_allocation(world, (0, 1, 1), (0, 1, -1)) == 1 and world.primary.tolist() == [1, -1]
    assert world.used_gpus().tolist() == [1, 0]


def test_who_changes_places_pays_and_nobody_moves() -> None:
    """Primary and secondary job exchange their parts at 100: no pause, no start, and j1 pays from
    then on."""
    world = World(two(), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(100)
    assert apply_allocation(world, (0, 1, 1), (0, 1, -1)) == 0
    world.advance(200)
    assert world.remaining.tolist() == pytest.approx([900, 840]) and world.starts.tolist() == [1, 1]
    assert world.dollars.tolist() == pytest.approx([1, 1])


def test_lost_machines_hit_both() -> None:
    """The GPU is gone at 100. j0 wrote a checkpoint at 80 (every 40 s), after its secondary job had
    come at 60: it has 60 + 10 of 1000 done; j1 has none and starts again from nothing."""
    world = World(two({"checkpoint_every_s": 40}, changes=[(100, 0, None)]), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (-1, 0, -1))
    world.advance(60)
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(150)
    assert world.remaining.tolist() == pytest.approx([1000 - 60 - 10, 1000])
    assert (world.pool < 0).all() and (world.primary < 0).all() and (world.colocated_job < 0).all()


def test_work_since_the_last_checkpoint_counts_at_the_speeds_it_was_done_with() -> None:
    """Without checkpoints after 60 s alone and 40 s together: all of it is lost, 60 + 20 units,
    not 100 x 0.5.
    """
    world = World(two(changes=[(100, 0, None)]), SimulationOptions())
    apply_allocation(world, (0, 1, -1), (-1, 0, -1))
    world.advance(60)
    apply_allocation(world, (0, 1, -1), (0, 1, 0))
    world.advance(99)
    assert world.remaining[0] == pytest.approx(1000 - 60 - 39 * 0.5)
    world.advance(150)
    assert world.remaining[0] == 1000


@pytest.mark.parametrize(
    ("alike", "primary", "holder", "stays"),
    [
        ([1, 1], [-1, 0], [0, 0], [1, 1]),  # as before
        ([1, 1], [1, -1], [0, 0], [1, 1]),  # they exchange their parts
        # split, and both stay in the pool: the secondary job has to move
        ([1, 1], [-1, -1], [0, 0], [1, 0]),
        (
            [0, 1],
            [-1, -1],
            [0, 0],
            [0, 1],
        ),  # the primary leaves, the secondary keeps the GPUs
        ([1, 0], [-1, 0], [0, 1], [1, 0]),  # a secondary job comes
        # the same from GPUs of its own elsewhere in the pool
        ([1, 1], [-1, 0], [0, 1], [1, 0]),
        ([0, 1], [-1, 0], [0, 1], [0, 1]),  # the primary job comes to its secondary job
    ],
)
def test_who_stays_on_its_gpus(
    alike: list[int], primary: list[int], holder: list[int], stays: list[int]
) -> None:
    """Two jobs: same pool and size as before, planned primary job, who holds what they run on
    now."""
    found = find_unmoved_jobs(
        np.arange(2), np.array(alike, bool), np.array(primary), np.array(holder)
    )
    assert found.tolist() == [bool(s) for s in stays]


def crowd(seed: int) -> Workload:
    """Eight jobs of two models on a reserved and a spot pool with start-ups, revocations, a
    capacity that changes.
    """
    rng = np.random.default_rng(seed)
    jobs = [
        {
            "model": "mn"[int(rng.integers(2))],
            "memory_gb": 1,
            "total_work": float(rng.uniform(50, 2000)),
            "max_gpus": 2,
            "synchronous": bool(rng.random() < 0.5),
            "preemptible": True,
            "checkpoint_every_s": 60 if rng.random() < 0.5 else None,
        }
        for _ in range(8)
    ]
    pools = [
        {"pool": "p", "gpus": 4, "memory_gb": 10, "sharing": "any", "price_per_gpu_hour": 2},
        {
            "pool": "q",
            "gpus": 4,
            "memory_gb": 10,
            "sharing": "any",
            "price_per_gpu_hour": 1,
            "market": "spot",
            "region": "r",
            "startup_s": 15,
            "revocations_per_gpu_hour": 20,
            "lifetime_s": 900,
            "min_billing_s": 60,
        },
    ]
    return workload(
        jobs,
        pools=pools,
        rates=RATES,
        sharing=SLOW
        + [
            {
                "model_a": m,
                "model_b": m,
                "gpu_type": "A",
                "gpus": 1,
                "slowdown_a": 1.5,
                "slowdown_b": 1.5,
            }
            for m in "mn"
        ],
        changes=[(300, 3, None), (700, 1, 5.0), (1200, 4, None)],
    )


def random_plan(world: World, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Pools, sizes and primary jobs of the active jobs within what the pools have; some as they
    are, some as secondary jobs.
    """
    jobs = world.active
    place = {int(j): i for i, j in enumerate(jobs)}
    pool, gpus, primary = (
        np.full(len(jobs), -1),
        np.zeros(len(jobs), np.int64),
        np.full(len(jobs), -1),
    )
    free = world.capacity.copy()
    taken = set()
    for i in rng.permutation(len(jobs)).tolist():
        j, luck = int(jobs[i]), rng.random()
        p, k = (
            (int(world.pool[j]), int(world.gpus[j]))
            if luck < 0.5 and world.pool[j] >= 0
            else (int(rng.integers(2)), int(rng.integers(1, 3)))
        )
        there = [
            h
            for h in range(len(jobs))
            if pool[h] == p and gpus[h] == k and primary[h] < 0 and h not in taken
        ]
        if rng.random() < 0.4 and there:
            h = place.get(int(world.colocated_job[j]), -1)
            h = h if h in there else there[0]
            pool[i], gpus[i], primary[i] = p, k, jobs[h]
            taken |= {h, i}
        elif k <= free[p] and luck < 0.9:
            pool[i], gpus[i] = p, k
            free[p] -= k
    return jobs, pool, gpus, primary


@pytest.mark.parametrize("seed", range(10))
def test_laws_whatever_the_plans_are(seed: int) -> None:
    """Pairs come, part, exchange parts, lose servers and machines, fail and fall back. Never more
    GPUs than there are; colocated jobs are mutual and on the same pool and size; GPU-seconds are
    those of own spans, seconds those of all spans; rented dollars are what tenants' jobs paid for;
    work left is between nothing and all; every job ends."""
    w, rng = crowd(seed), np.random.default_rng(seed + 1000)
    world = World(
        w,
        SimulationOptions(
            seed=seed,
            failures_per_gpu_hour=1.0,
            noise=0.2,
            misjudged=0.2,
            startup_spread=0.3,
            spot_batch=2.0 if seed % 2 else 1.0,
            checkpoints="young-daly" if seed % 3 else "given",
        ),
    )
    for _ in range(400):
        if world.is_over:
            break
        world.apply_allocation(*random_plan(world, rng))
        here = world.active[world.pool[world.active] >= 0]
        secondaries = here[world.primary[here] >= 0]
        primaries = world.primary[secondaries]
        assert (world.used_gpus() <= world.capacity).all() and len(np.unique(primaries)) == len(
            primaries
        )
        assert (world.colocated_job[secondaries] == primaries).all() and (
            world.colocated_job[primaries] == secondaries
        ).all()
        assert (world.primary[primaries] == -1).all() and (
            world.colocated_job[here] >= 0
        ).sum() == 2 * len(secondaries)
        assert (world.pool[secondaries] == world.pool[primaries]).all() and (
            world.gpus[secondaries] == world.gpus[primaries]
        ).all()
        assert not set(world._spot.servers) - set(
            here[(world.primary[here] < 0) & (world.pool[here] == 1)].tolist()
        )
        world.advance(world.now + float(rng.uniform(1, 200)))
        total = w.problem.jobs.total_work
        assert ((world.remaining >= -1e-9 * total) & (world.remaining <= total * (1 + 1e-12))).all()
    assert world.is_over
    rows = np.concatenate(world.spans)
    length, own = rows[:, 4] - rows[:, 3], rows[:, 5] < 0
    job = rows[:, 0].astype(int)
    assert np.bincount(job, length * own * rows[:, 2], 8) == pytest.approx(world.attained)
    assert np.bincount(job, length * rows[:, 2], 8) == pytest.approx(world.ran)
    assert np.bincount(job, length, 8) == pytest.approx(world.received.sum(axis=1))
    assert world.rented.sum() <= world.dollars.sum() + 1e-9
