"""The controller, its queue and ports decide like the simulator: the same rounds, the same plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.bench.twin import Twin, simulated
from allocator.files.workloads import read_workload

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("policy", ["mip", "srtf"])
def test_the_shipped_workload(policy: str, tmp_path: Path) -> None:
    """24 jobs on 16 GPUs: every round at the same time, with the same GPUs for the same jobs."""
    workload = read_workload(ROOT / "data" / "workloads" / "demo")
    expected = simulated(workload, policy)
    twin = Twin.of(workload, tmp_path, policy)
    assert twin.run(len(expected)) == expected
    assert twin.machines.breaches == [] and twin.queue.counts()["done"] == len(workload.problem.jobs)
    twin.queue.close()
