"""The controller, its queue and ports decide like the simulator: the same rounds, the same plans."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from allocator.bench.twin import Twin, alike, simulated
from allocator.control.ticks import tick_at
from allocator.files.workloads import read_workload

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("policy", "react_s"), [("mip", math.inf), ("srtf", math.inf), ("mip", 40.0)])
def test_the_shipped_workload(policy: str, react_s: float, tmp_path: Path) -> None:
    """24 jobs on 16 GPUs: every round at the same time, the same GPUs for the same jobs; also with early ones."""
    workload = read_workload(ROOT / "data" / "workloads" / "demo")
    expected = simulated(workload, policy, react_s=react_s)
    twin = Twin.of(workload, tmp_path, policy, react_s=react_s)
    found = twin.run(len(expected))
    assert len(found) == len(expected) and all(map(alike, found, expected))
    if math.isinf(react_s):
        assert found == expected
    else:
        start, interval = workload.problem.now_s, workload.problem.interval_s
        assert any((at - start) % interval for at, _ in found), "there were no early rounds"
    assert twin.machines.breaches == [] and twin.queue.counts()["done"] == len(workload.problem.jobs)
    twin.queue.close()


def test_early_rounds_move_no_tick() -> None:
    """Ticks at 5, 65, 125 ...: a round at 100 lies between tick 1 and tick 2."""
    assert [tick_at(t, 5.0, 60.0) for t in (4.9, 5.0, 64.9, 65.0, 100.0, 125.0 - 1e-9)] == [-1, 0, 0, 1, 1, 2]
