"""The workload generators: same seed same bytes, the load that was asked for.

test_shipped_workloads.py holds what they draw to the byte.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from examples import series

from allocator.bench.workloads import GENERATORS, generate
from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.cli import main
from allocator.domain.problem import Market
from allocator.domain.schema.workload_columns import WORKLOAD
from allocator.errors import UsageError
from allocator.performance.table import RateTable

# theirs count jobs
OFFERED = [n for n in GENERATORS if n not in ("reproduction", "heterogeneous")]
# their load counts spot pools only
ON_SPOT = ("deadlines", "exposure")


def column(tables: GeneratedWorkload, name: str) -> np.ndarray:
    """A column of workload.csv as an array."""
    return np.asarray(tables.tables["workload.csv"][name])


@pytest.mark.parametrize("jobs", series([37, 1, 300], 1))
@pytest.mark.parametrize("name", GENERATORS)
def test_any_number_of_jobs_is_a_sound_workload(name: str, jobs: int) -> None:
    """Twice the same arguments give the same bytes, another seed other jobs. The reader takes the
    folder and has nothing to warn of. Submissions are in order and inside the window, and every
    column is a documented one."""
    tables = generate(name, seed=2, jobs=jobs)
    assert generate(name, seed=2, jobs=jobs).files() == tables.files()
    assert generate(name, seed=6, jobs=jobs).files() != tables.files()
    problem = tables.workload().problem
    assert (len(problem.jobs.job_id), problem.warnings) == (jobs, ())
    work = tables.tables["workload.csv"]
    assert set(work) <= {c.name for c in WORKLOAD.columns}
    at = column(tables, "submitted_s")
    assert (np.diff(at) >= 0).all() and at[0] >= 0 and at[-1] <= tables.window_s


def offered_load(tables: GeneratedWorkload, window_s: float, on_spot: bool) -> float:
    """GPU-hours demanded at the request over GPU-hours there are. With several GPU types a GPU
    counts as its speed-up over a V100, as the mean over jobs weighted by their demand."""
    made = tables.workload()
    p, changes = made.problem, made.changes
    table, jobs = RateTable.of(p), p.jobs
    runs_s = [
        jobs.total_work / table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus)[0]
        for t in range(len(p.gpu_types))
    ]
    base = runs_s[p.gpu_types.index("V100") if "V100" in p.gpu_types else 0]
    demand, there = base * jobs.requested_gpus, 0.0
    for i in np.flatnonzero((p.pools.market == Market.SPOT) | (not on_spot)).tolist():
        mine = (changes.pool == i) & (changes.gpus >= 0) & (changes.at_s < window_s)
        gpus = np.append(p.pools.gpus[i], changes.gpus[mine])
        held = np.diff([0.0, *changes.at_s[mine], window_s]) @ gpus
        there += held * np.average(base / runs_s[p.pools.gpu_type[i]], weights=demand)
    return float(demand.sum() / there)


@pytest.mark.parametrize("load", series([1.4, 0.7], 1))
@pytest.mark.parametrize("name", OFFERED)
def test_offered_load_is_what_was_asked_for(name: str, load: float) -> None:
    """GPU-hours demanded over GPU-hours there are: within 0.1 % in the window; up to
    the last submission within a few %.
    """
    tables, on_spot = generate(name, seed=3, load=load, jobs=2_000), name in ON_SPOT
    assert offered_load(tables, tables.window_s, on_spot) == pytest.approx(load, rel=1e-3)
    last = float(column(tables, "submitted_s")[-1])
    assert offered_load(tables, last, on_spot) == pytest.approx(load, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "wavy"}, "reproduction, bursty"),
        ({"name": "mixed", "jobs": 0}, "jobs is 0"),
        ({"name": "bursty", "load": math.nan}, "load is nan"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, says: str) -> None:
    """UsageError, which says which one and what it may be."""
    with pytest.raises(UsageError, match=says):
        generate(**arguments)


def test_readme_tells_how_to_make_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command in README.md gives the same bytes, and leaves a folder alone that is there."""
    first = generate("bursty", seed=9, load=1 / 3, jobs=50, gpus=64)
    command = first.about.split("`")[1].split()
    assert main.run([*command[1:], "--out", str(tmp_path / "again")]) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()} == first.files()
    assert main.run([*command[1:], "--out", str(tmp_path / "again")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_gpus_on_nodes_in_racks(tmp_path: Path) -> None:
    """Nodes of gpus_per_node GPUs, the last one with the rest, two to a rack; every other file is
    as without them.
    """
    plain = generate("bursty", seed=3, jobs=50, gpus=44)
    made = generate("bursty", seed=3, jobs=50, gpus=44, nodes_per_rack=2)
    nodes = made.tables["nodes.csv"]
    assert list(nodes["gpus"]) == [8] * 5 + [4]
    assert [rack[-1] for rack in nodes["rack"]] == list("001122")
    assert {k: v for k, v in made.files().items() if k not in ("nodes.csv", "README.md")} == {
        k: v for k, v in plain.files().items() if k != "README.md"
    }
    assert main.run(["generate", "bursty", "--nodes-per-rack", "0", "--out", str(tmp_path)]) == 2
