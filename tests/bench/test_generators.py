"""The workload generators: same seed same bytes, the load that was asked for, the statistics
that were measured.
"""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import statistics as st

from allocator.bench.workloads import GENERATORS, generate
from allocator.bench.workloads.clusters import bursty, diurnal
from allocator.bench.workloads.parts.figures import FIGURES
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


@pytest.mark.parametrize("jobs", [1, 37, 300])
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


@pytest.mark.parametrize("load", [0.7, 1.4])
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


def test_bursty_sizes_and_work(philly: list[GeneratedWorkload]) -> None:
    """Shares by GPU count, and 2 % of the jobs with about four fifths of the work."""
    for tables in philly:
        asked = column(tables, "requested_gpus")
        work_h = asked * st.run_s(tables) / 3_600
        for k, share in {1: 0.9317, 2: 0.0221, 4: 0.0227, 8: 0.0200}.items():
            assert (asked == k).mean() == pytest.approx(share, rel=0.5 if k > 1 else 0.02)
        # measured: .484 of the GPU time
        assert 0.35 < work_h[asked == 8].sum() / work_h.sum() < 0.6
        large = work_h >= 100  # measured: 2.07 % and 82.5 %
        assert 0.01 < large.mean() < 0.03 and 0.75 < work_h[large].sum() / work_h.sum() < 0.90


def test_bursty_durations_depend_on_size(philly: list[GeneratedWorkload]) -> None:
    """Medians and quartiles given 1 and 8 GPUs are within a third of the measured ones (means of
    three seeds).
    """
    for k in (1, 8):
        got = np.mean(
            [
                np.log(
                    np.quantile(st.run_s(t)[column(t, "requested_gpus") == k], (0.25, 0.5, 0.75))
                )
                for t in philly
            ],
            axis=0,
        )
        assert np.abs(got - np.log(FIGURES["philly"]["duration_s"][str(k)][1:4])).max() < math.log(
            4 / 3
        )


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


def test_bursty_sweeps_are_alike(philly: list[GeneratedWorkload]) -> None:
    """Neighbours within two seconds mostly share tenant, model and size; the first tenant has
    half of the jobs.
    """
    tables = philly[0]
    at, tenant, model, asked = (
        column(tables, c) for c in ("submitted_s", "tenant", "model", "requested_gpus")
    )
    near = np.diff(at) <= 2
    same = (tenant[1:] == tenant[:-1]) & (asked[1:] == asked[:-1]) & (model[1:] == model[:-1])
    assert same[near].mean() > max(0.6, same[~near].mean() + 0.2)
    assert 0.4 < (tenant == "sweeps").mean() < 0.6


def test_diurnal_follows_the_clock() -> None:
    """Submissions by hour of the day and by weekday correlate with Venus' above .98; night to
    day is about 1 to 9.
    """
    tables = diurnal(seed=1, load=0.8, jobs=MANY, longest_h=1e9)
    at = column(tables, "submitted_s")
    weeks = np.bincount((at // 3_600).astype(int))
    weeks = weeks[: len(weeks) // 168 * 168].reshape(-1, 7, 24)
    hours = weeks.sum(axis=(0, 1))
    assert np.corrcoef(hours, FIGURES["venus"]["hours"])[0, 1] > 0.99
    assert np.corrcoef(weeks.sum(axis=(0, 2)), FIGURES["venus"]["weekdays"])[0, 1] > 0.98
    assert 7 < hours.max() / hours.min() < 12
    assert MANY / (tables.window_s / 3_600) == pytest.approx(
        FIGURES["venus"]["jobs_per_h"], rel=0.05
    )


def test_diurnal_jobs() -> None:
    """Median 206 s and mean 6,652 s as on Helios (a tail that wide: the mean within a fifth),
    6.7 GPUs.
    """
    tables = diurnal(seed=1, load=0.8, jobs=MANY, longest_h=1e9)
    seconds = st.run_s(tables)
    assert np.median(seconds) == pytest.approx(206, rel=0.05)
    assert seconds.mean() == pytest.approx(6_652, rel=0.2)
    assert column(tables, "requested_gpus").mean() == pytest.approx(6.73, rel=0.1)


def test_mixed_speeds_and_prices() -> None:
    """Relative speeds inside the measured ranges, c inside 0.005-0.15 on a V100, prices and the
    budget as documented: 0.8 x (16 x 0.18 + 24 x 1.95 + 16 x 3.67 + 8 x 6.88) = 131."""
    tables = generate("mixed", seed=1, jobs=2_000)
    curves = tables.tables["models.csv"]
    known = {
        (q, t): p
        for q, t, p in zip(curves["model"], curves["gpu_type"], curves["parameters"], strict=True)
    }
    for (model, gpu_type), q in known.items():
        low, high = FIGURES["speed"]["relative"][gpu_type]
        assert low * 0.999 <= q["rate_1"] / known[model, "V100"]["rate_1"] <= high * 1.001
        assert 0.005 * 0.69 <= q["c"] <= 0.15 * 1.41
    assert tables.config["budget_per_hour"] == 131
    assert 0.2 < np.mean([t is not None for t in tables.tables["workload.csv"]["gpu_types"]]) < 0.3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "wavy"}, "reproduction, bursty"),
        ({"name": "bursti"}, 'did you mean "bursty"'),
        ({"name": "mixed", "load": 0.0}, "load is 0"),
        ({"name": "mixed", "jobs": 0}, "jobs is 0"),
        ({"name": "mixed", "seed": -1}, "seed is -1"),
        ({"name": "bursty", "load": math.nan}, "load is nan"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, says: str) -> None:
    """UsageError, which says which one and what it may be."""
    with pytest.raises(UsageError, match=says):
        generate(**arguments)


def test_command_writes_a_folder_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`generate` writes what the function makes, says nothing on standard output, and leaves
    what is there alone.
    """
    out = tmp_path / "made"
    assert main.run(["generate", "mixed", "--seed", "4", "--jobs", "30", "--out", str(out)]) == 0
    assert {p.name: p.read_bytes() for p in out.iterdir()} == generate(
        "mixed", seed=4, jobs=30
    ).files()
    assert capsys.readouterr().out == ""
    assert main.run(["generate", "mixed", "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err
    with (out / "workload.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 30


def test_command_lists_the_generators(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name on standard output: each with its line, and nothing heavy is loaded for it."""
    assert main.run(["generate"]) == 0
    out = capsys.readouterr().out
    assert all(g.about in out for g in GENERATORS.values())
    code = (
        "import sys, allocator.bench.workloads; assert {'numpy', 'pandas'}.isdisjoint(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_readme_tells_how_to_make_it_again(tmp_path: Path) -> None:
    """The command in README.md gives the same bytes."""
    first = generate("bursty", seed=9, load=1 / 3, jobs=50, gpus=64)
    command = first.about.split("`")[1].split()
    assert main.run([*command[1:], "--out", str(tmp_path / "again")]) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()} == first.files()


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
    mixed = generate("mixed", nodes_per_rack=4)
    problem = mixed.workload().problem
    assert problem.has_nodes.all() and not any("nodes" in w for w in problem.warnings)
    spot = generate("zones", jobs=20, nodes_per_rack=4)
    changing = set(spot.tables.get("capacity.csv", {}).get("pool", ()))
    assert changing and changing.isdisjoint(spot.tables.get("nodes.csv", {}).get("pool", ()))
    assert main.run(["generate", "bursty", "--nodes-per-rack", "0", "--out", str(tmp_path)]) == 2
