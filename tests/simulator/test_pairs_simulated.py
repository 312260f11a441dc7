"""Two jobs on the same GPUs in the simulated cluster: by hand, and the laws that hold with them
too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import seeds
from text_tables import cells, columns
from worlds import workload

from allocator.domain.problem import secondary_of
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions
from allocator.simulator.world import World

RATES = columns("model gpu_type gpus work_per_s: m A 1 1; m A 2 2; n A 1 1; n A 2 2")
SLOW = columns("model_a model_b gpu_type gpus slowdown_a slowdown_b: m n A 1 2 1.25")
ALIKE = columns(
    "model_a model_b gpu_type gpus slowdown_a slowdown_b: m m A 1 1.5 1.5; n n A 1 1.5 1.5"
)
POOL = {"pool": "p", "gpus": 1, "memory_gb": 10, "sharing": "any"}
# (pool, gpus, primary job) of both jobs
TOGETHER = ((0, 1, -1), (0, 1, 0))
ALONE = ((0, 1, -1), (-1, 0, -1))


def two(
    a: float = 1000, b: float = 1000, job: Any = None, pools: Any = None, changes: Any = ()
) -> World:
    """j0 of model m and j1 of model n with so much work, which slow each other down 2 and 1.25
    times, on one GPU of 36 $/h. `job` has more columns of j0."""
    jobs = [
        {"model": m, "memory_gb": 1, "total_work": work, **more}
        for m, work, more in (("m", a, job or {}), ("n", b, {}))
    ]
    pools = pools or [POOL | {"price_per_gpu_hour": 36}]
    made = workload(jobs, pools=pools, rates=RATES, sharing=SLOW, changes=changes)
    return World(made, SimulationOptions())


def play(world: World, *steps: tuple[Any, float]) -> list[int]:
    """Give each plan until its time; return how many jobs each changed."""
    changed = []
    for plan, until in steps:
        pool, gpus, primary = (np.array(column) for column in zip(*plan, strict=True))
        secondary = secondary_of(primary)
        changed.append(world.apply_allocation(np.arange(len(plan)), pool, gpus, secondary))
        world.advance(until)
    return changed


def test_the_primary_is_moved_and_the_secondary_keeps_the_gpus() -> None:
    """At 100 the primary job goes to the other pool and pauses 30 s; the secondary job goes on
    alone without any. Then it may be the primary job of a job that comes back to it."""
    world = two(pools=[POOL, POOL | {"pool": "q"}])
    assert play(world, (TOGETHER, 100), (((1, 1, -1), (0, 1, -1)), 200)) == [2, 1]
    assert world.remaining.tolist() == pytest.approx([950 - 70, 920 - 100])
    assert world.primary.tolist() == [-1, -1]
    assert play(world, (((0, 1, 1), (0, 1, -1)), 200)) == [1]
    assert world.primary.tolist() == [1, -1] and world.used_gpus().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("every", "left"),
    [
        # j0 wrote a checkpoint at 80, after its secondary job had come at 60: 60 + 10 are safe
        (40, 1000 - 60 - 10),
        # all of it is lost: 60 + 20 units, not 100 x 0.5
        (None, 1000),
    ],
)
def test_lost_machines_hit_both(every: float | None, left: float) -> None:
    """The GPU is gone at 100; j1 has no checkpoint yet and starts again from nothing. Work since
    the last checkpoint counts at the speeds it was done with."""
    world = two(job={"checkpoint_every_s": every}, changes=[(100, 0, None)])
    play(world, (ALONE, 60), (TOGETHER, 99))
    assert world.remaining[0] == pytest.approx(1000 - 60 - 39 * 0.5)
    world.advance(150)
    assert world.remaining.tolist() == pytest.approx([left, 1000])
    assert (world.pool < 0).all() and (world.primary < 0).all() and (world.colocated_job < 0).all()


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
        cells("pool=p gpus=4 memory_gb=10 sharing=any price_per_gpu_hour=2"),
        cells("pool=q gpus=4 memory_gb=10 sharing=any price_per_gpu_hour=1 market=spot region=r")
        | cells("startup_s=15 revocations_per_gpu_hour=20 lifetime_s=900 min_billing_s=60"),
    ]
    changes = [(300, 3, None), (700, 1, 5.0), (1200, 4, None)]
    return workload(jobs, pools=pools, rates=RATES, sharing=SLOW + ALIKE, changes=changes)


def random_plan(world: World, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Pools, sizes and secondary jobs of the active jobs within what the pools have; some as they
    are, some as secondary jobs.
    """
    jobs = world.active
    pool, gpus, secondary = (np.full(len(jobs), value) for value in (-1, 0, -1))
    free, alone = world.capacity.copy(), list[int]()
    for i in rng.permutation(len(jobs)).tolist():
        p, k = int(world.pool[jobs[i]]), int(world.gpus[jobs[i]])
        if p < 0 or rng.random() < 0.5:
            p, k = int(rng.integers(2)), int(rng.integers(1, 3))
        there = [h for h in alone if (pool[h], gpus[h]) == (p, k)]
        if there and rng.random() < 0.4:
            partners = [h for h in there if jobs[h] == world.colocated_job[jobs[i]]]
            h = (partners or there)[0]
            alone.remove(h)
            secondary[h], pool[i], gpus[i] = jobs[i], p, k
        elif k <= free[p] and rng.random() < 0.9:
            alone.append(i)
            pool[i], gpus[i] = p, k
            free[p] -= k
    return jobs, pool, gpus, secondary


@pytest.mark.parametrize("seed", seeds(2, 10))
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
