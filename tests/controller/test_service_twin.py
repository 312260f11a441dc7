"""The controller, its queue and ports decide like the simulator: the same rounds, the same
plans.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.twin import Plan, Twin, same_plans, simulated
from places import ROOT

from allocator.bench.workloads.sharing import sharing
from allocator.domain.problem import Pauses, Problem
from allocator.domain.workload import Workload
from allocator.io.workloads import read_workload
from allocator.loop.ticks import latest_tick
from allocator.simulator import simulate
from allocator.simulator.options import SimulationOptions

SOAK = pytest.mark.soak
NUMBERS = ["remaining_work", "attained_gpu_s", "state", "pool", "gpus", "restarts", "largest_gpus"]


def compare(
    workload: Workload, folder: Path, policy: str, react_s: float, **options: Any
) -> list[Plan]:
    """The rounds of both worlds: the same times, the same GPUs for the same jobs, until all jobs
    are done. Ticks of the default simulator are the same to the last bit."""
    expected = simulated(workload, policy, react_s=react_s, **options)
    twin = Twin.of(workload, folder, policy, react_s=react_s)
    found = twin.run(len(expected))
    assert len(found) == len(expected) and all(map(same_plans, found, expected))
    assert twin.machines.breaches == []
    assert twin.queue.counts()["done"] == len(workload.problem.jobs)
    twin.queue.close()
    assert found == expected or math.isfinite(react_s) or options
    return found


@pytest.fixture
def demo() -> Workload:
    """The shipped workload: 24 jobs on 16 GPUs."""
    return read_workload(ROOT / "data" / "workloads" / "demo")


@SOAK
def test_pauses_by_size(demo: Workload, tmp_path: Path) -> None:
    """Twice or half as many GPUs for nothing, other changes for 400 s in place of restart_s: the
    same plans at the same times in both worlds, and others than without pauses.csv."""
    p, sizes = demo.problem, (1, 2, 4, 8)
    rows = [(m, a, b) for m in range(len(p.models)) for a in sizes for b in sizes if a != b]
    model, before, after = np.array(rows).T
    quick = np.maximum(before, after) == 2 * np.minimum(before, after)
    seconds = np.where(quick, 0.0, 400.0)
    pauses = Pauses(model, before, after, seconds, np.full(len(rows), -1))
    workload = replace(demo, problem=replace(p, pauses=pauses))
    assert compare(workload, tmp_path, "mip", math.inf) != simulated(demo, "mip")


@pytest.mark.parametrize(
    ("policy", "react_s", "seed", "jobs", "primaries"),
    [
        ("ffs", 30.0, 2, 8, 3),
        pytest.param("ffs", 30.0, 2, 16, 3, marks=pytest.mark.nightly),
        pytest.param("bsbf", math.inf, 1, 16, 3, marks=SOAK),
        pytest.param("mip", math.inf, 3, 16, 3, marks=SOAK),
        pytest.param("bsbf", 30.0, 1, 14, 1, marks=SOAK),
        pytest.param("mip", math.inf, 1, 14, 1, marks=SOAK),
    ],
)
def test_jobs_on_the_gpus_of_others(
    policy: str, react_s: float, seed: int, jobs: int, primaries: int, tmp_path: Path
) -> None:
    """Pairs, and groups with several primary jobs, are made, parted and left by jobs that are done,
    between rounds too: the same GPUs and the same primary jobs.
    """
    workload = sharing(seed=seed, load=4.0, jobs=jobs, gpus=16, slowdown=(1.05, 1.6)).workload()
    workload = replace(workload, problem=replace(workload.problem, max_primaries=primaries))
    found = compare(workload, tmp_path, policy, react_s, prove_every=0)
    plans = [plan for _, plan in found if plan]
    shared = [entry for plan in plans for entry in plan.values() if entry[2]]
    several = [
        primary
        for plan in plans
        for _, gpus, primary in plan.values()
        if "|" in primary or (primary and plan[primary][1] < gpus)
    ]
    assert len(several) > 3 if primaries > 1 else len(shared) > 10


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["mip", pytest.param("las", marks=SOAK)])
def test_the_same_numbers(policy: str, demo: Workload, tmp_path: Path) -> None:
    """Work that is left, GPU-seconds, seconds by type are the same to the last bit in every round,
    early ones between: a search that may stop within its gap takes the same plan only for the same
    numbers."""
    problems: list[Problem] = []
    simulate(
        demo,
        policy=policy,
        options=SimulationOptions(react_s=40.0, prove_every=0),
        on_round=lambda _state, turn: problems.append(turn.problem),
    )
    twin = Twin.of(demo, tmp_path, policy, react_s=40.0)
    found: list[Problem] = []
    twin.run(len(problems), on_step=lambda turn, _seconds: found.append(turn.problem))
    twin.queue.close()
    assert [p.now_s for p in found] == [p.now_s for p in problems]
    for one, other in zip(found, problems, strict=True):
        for name in NUMBERS:
            values = [getattr(jobs, name).tolist() for jobs in (one.jobs, other.jobs)]
            assert values[0] == values[1], (one.now_s, name)
        assert one.received.tolist() == other.received.tolist()


def test_early_rounds_move_no_tick() -> None:
    """Ticks at 5, 65, 125 ...: a round at 100 lies between tick 1 and tick 2."""
    times = (4.9, 5.0, 64.9, 65.0, 100.0, 125.0 - 1e-9)
    assert [latest_tick(t, 5.0, 60.0) for t in times] == [-1, 0, 0, 1, 1, 2]
