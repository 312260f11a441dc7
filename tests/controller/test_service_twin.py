"""The controller, its queue and ports decide like the simulator: the same rounds, the same
plans.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases.twin import Plan, Twin, same_plans, simulated

from allocator.bench.workloads.sharing import sharing
from allocator.domain.workload import Workload

SOAK = pytest.mark.soak


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


@pytest.mark.parametrize(
    ("policy", "react_s", "seed", "jobs", "primaries"),
    [
        pytest.param("ffs", 30.0, 2, 8, 3, marks=pytest.mark.nightly),
        pytest.param("ffs", 30.0, 2, 16, 3, marks=pytest.mark.nightly),
        pytest.param("bsbf", math.inf, 1, 16, 3, marks=SOAK),
        pytest.param("mip", math.inf, 3, 16, 3, marks=SOAK),
        pytest.param("bsbf", 30.0, 1, 14, 1, marks=pytest.mark.nightly),
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
