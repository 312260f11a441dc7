"""A job on the GPUs of several jobs, and idle ones, in the simulated cluster: by hand, and over
whole workloads.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from examples import series
from text_tables import columns
from worlds import workload

from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.sharing import sharing
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.results.records import spans_table
from allocator.simulator.world import World


def three(**more: Any) -> Workload:
    """Two jobs of one GPU and one of four GPUs, on four GPUs at 36 $/h. Next to n the jobs m are
    half as fast, next to m the job n does 0.8."""
    sizes = (("m", 400, 1), ("m", 100, 1), ("n", 1000, 4))
    jobs = [
        {"model": model, "memory_gb": 1, "total_work": work, "min_gpus": k, "max_gpus": k}
        for model, work, k in sizes
    ]
    pool = {"pool": "p", "gpus": 4, "memory_gb": 10, "sharing": "any", "price_per_gpu_hour": 36}
    rates = columns("model gpu_type gpus work_per_s: m A 1 1; m A 4 1; n A 1 1; n A 4 1")
    slow = columns("model_a model_b gpu_type gpus slowdown_a slowdown_b: m n A 1 2 1.25")
    return workload(jobs, pools=[pool], rates=rates, sharing=slow, **more)


def apply_allocation(world: World, *plan: tuple[int, int, int]) -> int:
    """(pool, gpus, secondary job) of every job."""
    pool, gpus, secondary = (np.array(column) for column in zip(*plan, strict=True))
    return world.apply_allocation(np.arange(len(plan)), pool, gpus, secondary)


TOGETHER = ((0, 1, 2), (0, 1, 2), (0, 4, -1))


def test_it_goes_on_with_the_gpus_of_those_that_end() -> None:
    """j1 has 100 units, done at 200; j0 400 units, done at 800. j2 does 0.8 a second until then,
    640 units; the other 360 take 360 s. It pays for two GPUs, then for three, then for four."""
    world = World(three(), SimulationOptions())
    assert apply_allocation(world, *TOGETHER) == 3
    assert world.used_gpus().tolist() == [4] and world.own.tolist() == [1, 1, 2]
    world.advance(5000)
    assert world.finished_s.tolist() == [800, 200, 1160]
    assert world.attained.tolist() == [800, 200, 2 * 200 + 3 * 600 + 4 * 360]
    assert world.dollars.tolist() == pytest.approx([8, 2, 36.4])
    assert world.ran.tolist() == [800, 200, 4 * 1160]
    assert list(map(list, zip(*spans_table(world).values(), strict=True))) == [
        ["j0", "p", 1, 0, 800, ""],
        ["j1", "p", 1, 0, 200, ""],
        ["j2", "p", 4, 0, 200, "j0|j1"],
        ["j2", "p", 4, 200, 800, "j0"],
        ["j2", "p", 4, 800, 1160, ""],
    ]


def test_lost_gpus_take_its_own_part_first() -> None:
    """One GPU less at 100: the job that began last loses, here j2 with its two GPUs."""
    world = World(three(changes=[(100, 3, None)]), SimulationOptions())
    apply_allocation(world, *TOGETHER)
    world.advance(101)
    assert world.pool.tolist() == [0, 0, -1] and world.used_gpus().tolist() == [2]


@pytest.mark.parametrize("policy", series(["ffs", "bsbf", "mip"], 1))
def test_whole_workloads(policy: str) -> None:
    """Every job ends, every round passes the audit, groups run, and no pool gives more GPUs than it
    has: those of a job less those of the jobs that its span names."""
    w = sharing(Asked("sharing", 1, 1.5, 30, 32)).workload()
    w = dataclasses.replace(w, problem=dataclasses.replace(w.problem, max_primaries=3))
    done = simulate(w, policy=policy, options=SimulationOptions(prove_every=0))
    assert not done.unfinished
    spans = done.spans
    groups = spans["shared_with"].str.contains("|", regex=False)
    assert groups.any() or policy == "mip"
    for at in np.unique(spans["from_s"]):
        now = spans[(spans["from_s"] <= at) & (spans["to_s"] > at)]
        gpus = dict(zip(now["job_id"], now["gpus"], strict=True))
        named = [name for cell in now["shared_with"] if cell for name in cell.split("|")]
        assert len(named) == len(set(named))
        held = sum(gpus.values()) - sum(gpus[name] for name in named)
        assert held <= 32
