"""The workload generators: same seed same bytes, the load that was asked for.

test_shipped_workloads.py holds what they draw to the byte.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from cases import statistics as st
from examples import series

from allocator.bench.workloads import GENERATORS, generate
from allocator.bench.workloads.clusters import bursty
from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.cli import main
from allocator.domain.schema.workload_columns import WORKLOAD
from allocator.errors import UsageError

MANY = 40_000
# theirs count jobs
OFFERED = [n for n in GENERATORS if n not in ("reproduction", "heterogeneous")]
# their load counts these markets only
ON_SPOT = {"deadlines": ("spot",), "exposure": ("spot",)}


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


@pytest.mark.parametrize("load", series([1.4, 0.7], 1))
@pytest.mark.parametrize("name", OFFERED)
def test_offered_load_is_what_was_asked_for(name: str, load: float) -> None:
    """GPU-hours demanded over GPU-hours there are: exact in the window; up to the last
    submission within a few %.
    """
    tables, markets = generate(name, seed=3, load=load, jobs=2_000), ON_SPOT.get(name, st.MARKETS)
    assert st.offered_load(tables, markets=markets) == pytest.approx(load, rel=1e-4)
    last = float(column(tables, "submitted_s")[-1])
    assert st.offered_load(tables, last, markets) == pytest.approx(load, rel=0.05)


def test_bursty_arrivals_are_far_from_poisson() -> None:
    """Hourly counts and gaps as on Philly: dispersion 159 there and 1 for Poisson, CV of gaps
    4.1 and 1.
    """
    for seed in range(2):
        tables = bursty(seed=seed, load=1.0, jobs=MANY, longest_h=1e9)
        at = column(tables, "submitted_s")
        counts, gaps = np.bincount((at // 3_600).astype(int)), np.diff(at)
        assert 38 < counts.mean() < 46 and 9 < np.median(counts) < 20
        assert 130 < np.quantile(counts, 0.95) < 260 and 80 < counts.var() / counts.mean() < 300
        assert 3 < gaps.std() / gaps.mean() < 5.5 and 4 <= np.median(gaps) <= 12
        assert 0.18 < (gaps <= 2).mean() < 0.32


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
