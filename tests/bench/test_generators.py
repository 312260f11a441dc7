"""The workload generators: same seed same bytes, the load that was asked for, the statistics
that were measured.
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
    folder and has nothing to warn of. Submissions are in order and inside the window, requests
    inside ranges that fit some pool, every model has a speed on every type, and every column is a
    documented one."""
    tables = generate(name, seed=2, jobs=jobs)
    assert generate(name, seed=2, jobs=jobs).files() == tables.files()
    assert generate(name, seed=6, jobs=jobs).files() != tables.files()
    problem = tables.workload().problem
    assert (len(problem.jobs.job_id), problem.warnings) == (jobs, ())
    work = tables.tables["workload.csv"]
    assert set(work) <= {c.name for c in WORKLOAD.columns}
    at, low, asked, high = (
        column(tables, c) for c in ("submitted_s", "min_gpus", "requested_gpus", "max_gpus")
    )
    assert (np.diff(at) >= 0).all() and at[0] >= 0 and at[-1] <= tables.window_s
    assert ((low >= 1) & (low <= asked) & (asked <= high)).all()
    pools, curves = (
        tables.tables["pools.csv"],
        tables.tables.get("models.csv") or tables.tables["rates.csv"],
    )
    assert asked.max() <= max(pools["gpus"])
    assert {(q, t) for q in work["model"] for t in pools["gpu_type"]} <= set(
        zip(curves["model"], curves["gpu_type"], strict=True)
    )


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


def test_reproduction_is_the_published_case() -> None:
    """Requests .5/.2/.15/.15, median 40 min, sigma 1.2, at most 1,200 min, exponential gaps, p on
    (.9, .995), four times the request at most 32: each within four standard errors of 40,000 draws.
    """
    tables = generate("reproduction", seed=1, load=0.30, jobs=MANY)
    asked, most, seconds = (
        column(tables, "requested_gpus"),
        column(tables, "max_gpus"),
        st.run_s(tables),
    )
    for k, share in {1: 0.5, 2: 0.2, 4: 0.15, 8: 0.15}.items():
        assert (asked == k).mean() == pytest.approx(
            share, abs=4 * math.sqrt(share * (1 - share) / MANY)
        )
    assert (most == np.minimum(32, 4 * asked)).all()
    inside = np.log(seconds[seconds < 71_999] / 2_400)
    assert np.median(np.log(seconds / 2_400)) == pytest.approx(
        0, abs=4 * 1.25 * 1.2 / math.sqrt(MANY)
    )
    assert inside.std() == pytest.approx(1.2, rel=0.02)
    assert seconds.max() == pytest.approx(72_000, rel=1e-4)
    # P(Z > ln(30) / 1.2)
    assert (seconds > 71_990).mean() == pytest.approx(0.0023, abs=0.001)
    gaps = np.diff(column(tables, "submitted_s"))
    assert gaps.mean() == pytest.approx(200, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1, rel=0.03)
    p = np.array([q["parallel"] for q in tables.tables["models.csv"]["parameters"]])
    assert (p.min(), p.max(), p.mean()) == pytest.approx((0.9, 0.995, 0.9475), abs=0.001)
    assert len(set(tables.tables["models.csv"]["model"])) == MANY


@pytest.fixture(scope="module")
def philly() -> list[GeneratedWorkload]:
    """Three seeds at Philly's rate with Philly's longest durations."""
    return [bursty(seed=s, load=1.0, jobs=MANY, longest_h=1e9) for s in range(3)]


def test_bursty_arrivals_are_far_from_poisson(philly: list[GeneratedWorkload]) -> None:
    """Hourly counts and gaps as on Philly: dispersion 159 there and 1 for Poisson, CV of gaps
    4.1 and 1.
    """
    for tables in philly:
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
    as without them, and pools of capacity.csv have none.
    """
    plain = generate("bursty", seed=3, jobs=50, gpus=44)
    made = generate("bursty", seed=3, jobs=50, gpus=44, nodes_per_rack=2)
    nodes = made.tables["nodes.csv"]
    assert list(nodes["gpus"]) == [8] * 5 + [4]
    assert [rack[-1] for rack in nodes["rack"]] == list("001122")
    assert {k: v for k, v in made.files().items() if k not in ("nodes.csv", "README.md")} == {
        k: v for k, v in plain.files().items() if k != "README.md"
    }
    assert made.workload().problem.pools.gpus.tolist() == [44]
    spot = generate("zones", jobs=20, nodes_per_rack=4)
    changing = set(spot.tables.get("capacity.csv", {}).get("pool", ()))
    assert changing and changing.isdisjoint(spot.tables.get("nodes.csv", {}).get("pool", ()))
    assert main.run(["generate", "bursty", "--nodes-per-rack", "0", "--out", str(tmp_path)]) == 2
