"""finished.csv: what is wrong with it, and its way through files, the API and simulations."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import snapshot
from worlds import workload

import allocator
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput
from allocator.io.problem_tables import snapshot_folder
from allocator.io.workloads import read_workload, write_workload
from allocator.simulator.cluster import TraceDrivenCluster
from allocator.simulator.options import SimulationOptions


def test_rows_are_checked() -> None:
    rows = [
        {"model": "", "total_work": 5},
        {"model": "m", "total_work": 0},
        {"model": "m", "total_work": None},
    ]
    with pytest.raises(InvalidInput) as info:
        validate(snapshot([{}], finished=rows, config={"sizes": "unknown"}))
    assert [str(f) for f in info.value.faults] == [
        "finished.csv:2: model is empty",
        "finished.csv:3: total_work 0 must be above 0",
        "finished.csv:4: total_work is empty",
    ]


def test_rows_that_teach_nothing_are_a_warning() -> None:
    """A model that looks like a slip; and sizes that are known."""
    rows = [{"model": "m", "total_work": 5}, {"model": "bret", "total_work": 5}]
    p = validate(
        snapshot(
            [{"model": "bert"}],
            rates=[{"model": "bert", "gpu_type": "A", "gpus": 1, "work_per_s": 1}],
            finished=rows[1:],
        )
    )
    assert p.warnings == (
        'finished.csv: counts only where sizes is "unknown"; config.toml says "known"',
        'finished.csv:2: model "bret" has no rate and no job; did you mean "bert"?',
    )
    assert validate(snapshot([{}], finished=rows[:1], config={"sizes": "unknown"})).warnings == ()


def test_records_are_rows() -> None:
    problem = allocator.Problem.build(
        jobs=[allocator.Job("a", "bert", remaining_work=500, max_gpus=1)],
        pools=[allocator.Pool("a100", "A100", 8)],
        rates=[allocator.Rate("bert", "A100", 1, 3.0)],
        finished=[allocator.FinishedJob("bert", 90.0), allocator.FinishedJob("bert", 80.0)],
        sizes="unknown",
    )
    assert problem.checked.finished.model.tolist() == [0, 0]
    assert problem.checked.finished.total_work.tolist() == [90.0, 80.0]


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
