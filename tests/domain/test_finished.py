"""finished.csv on its way through simulations; its faults are in test_validation.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import workload

from allocator.io.problem_tables import snapshot_folder
from allocator.io.workloads import read_workload, write_workload
from allocator.simulator.cluster import TraceDrivenCluster
from allocator.simulator.options import SimulationOptions


@pytest.mark.parametrize(("sizes", "seen"), [("known", []), ("unknown", [70.0, 600.0])])
def test_a_simulation_shows_jobs_that_are_done(
    sizes: str, seen: list[float], tmp_path: Path
) -> None:
    """Those of the workload's own finished.csv first; where sizes are known, no file."""
    given = {"finished": [{"model": "m", "total_work": 70}]} if sizes == "unknown" else {}
    world = workload(
        jobs=[{"total_work": 600}, {"total_work": 5000}], config={"sizes": sizes}, **given
    )
    write_workload(tmp_path, world)
    world = read_workload(tmp_path)
    cluster = TraceDrivenCluster(world, SimulationOptions())
    cluster.world.finished_s[0] = 1.0
    tables = snapshot_folder(cluster.observe()).tables
    assert ("finished.csv" in tables) == bool(seen)
    if seen:
        assert list(map(float, tables["finished.csv"].texts("total_work"))) == seen
