"""Workload folders: what is read, what is a fault and where, and that writing keeps every value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import Output, call
from everything_workload import EVERY_WORKLOAD, WORKLOAD_TEXTS, workload_content
from examples import series
from text_tables import columns

import allocator
from allocator.domain.problem import State
from allocator.domain.schema.workload_columns import WORKLOAD_TABLES
from allocator.domain.workload import Changes, Workload
from allocator.errors import InvalidInput, UsageError
from allocator.io.folders import parse_folder
from allocator.io.workloads import (
    FOLDER,
    is_workload,
    parse_workload,
    read_workload,
    write_workload,
)

SMALL = {
    "workload.csv": (
        "job_id,submitted_s,model,total_work,max_gpus\nb,20,m,100,2\na,10,m,50,1\nc,20,m,7,1\n"
    ),
    "pools.csv": "pool,gpu_type,gpus\np,A,4\nq,B,6\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,2\n",
}
HEAD = "job_id,submitted_s,model,total_work,max_gpus\n"


def made(**texts: str) -> Workload:
    """The small workload with further or other files: capacity="at_s,pool,gpus\\n..." """
    files = SMALL | {
        name + (".toml" if name == "config" else ".csv"): text for name, text in texts.items()
    }
    return parse_workload("small", {file: text.encode() for file, text in files.items()})


def faults(**texts: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        made(**texts)
    return [str(f) for f in caught.value.faults]


def put(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def assert_changes(changes: Changes, *rows: tuple[float, ...]) -> None:
    """Compare the changes with rows of time, pool, GPUs and price.

    -1 GPUs and a price of nan stay as they are.
    """
    found = changes.at_s, changes.pool, changes.gpus, changes.price_per_gpu_hour
    assert pytest.approx(np.array(rows), nan_ok=True) == np.array(found).T


def test_jobs_by_submission_queued_with_all_their_work() -> None:
    """b and c are submitted at one moment and stay in the order of the file; a comes first."""
    problem = made().problem
    jobs = problem.jobs
    assert jobs.job_id == ("a", "b", "c") and (jobs.requested_gpus == 1).all()
    assert jobs.remaining_work.tolist() == jobs.total_work.tolist() == [50, 100, 7]
    assert (jobs.state == State.QUEUED).all() and not jobs.gpus.any()
    assert problem.received.shape == (3, 2)
    assert problem.warnings == ('pools.csv:3: gpu_type "B" has no rate of any model (pool "q")',)


@pytest.mark.parametrize(
    ("jobs", "config", "start", "words"),
    [
        (SMALL["workload.csv"], "", 10, ""),
        (SMALL["workload.csv"], "now_s = 3", 3, ""),
        (
            SMALL["workload.csv"],
            "now_s = 15",
            10,
            "now_s 15 is after the earliest submitted_s; the",
        ),
        (HEAD, "", 0, "workload.csv: has no jobs"),
        (HEAD, "now_s = 7", 7, "workload.csv: has no jobs"),
    ],
)
def test_start(jobs: str, config: str, start: float, words: str) -> None:
    """The earliest submission, or an earlier now_s; a later one is told. No jobs: a warning; the
    start is now_s, or 0.
    """
    problem = made(workload=jobs, config=config).problem
    assert problem.now_s == start and words in " ".join(problem.warnings)


def test_changes_and_pools_at_the_start() -> None:
    """Start at 10. p: 9 by capacity at 5, 7 by prices at 10 (later wins); q: prices and capacity at
    10, capacity wins. After that one row for each time and pool; where both files speak of GPUs,
    capacity wins; empty rows say nothing."""
    workload = made(
        capacity="at_s,pool,gpus\n30,q,1\n5,p,9\n10,q,2\n20,p,0\n",
        prices=(
            "at_s,pool,price_per_gpu_hour,gpus\n10,p,1.5,7\n10,q,,3\n20,p,2,5\n"
            "40,q,,\n30,p,3,\n15,q,,8\n"
        ),
    )
    assert workload.problem.pools.gpus.tolist() == [7, 2]
    assert workload.problem.pools.price_per_gpu_hour.tolist() == [1.5, 0]
    nan = np.nan
    assert_changes(
        workload.changes, (15, 1, 8, nan), (20, 0, 0, 2), (30, 0, -1, 3), (30, 1, 1, nan)
    )


def test_nodes_count_at_the_start_only() -> None:
    """Two of three nodes are up: 6 GPUs at the start, not 9; later rows are kept as they are."""
    workload = made(
        nodes="node,pool,gpus,state\nx,p,3,up\ny,p,3,up\nz,p,3,down\n",
        capacity="at_s,pool,gpus\n10,p,9\n30,p,5\n",
    )
    assert workload.problem.pools.gpus.tolist() == [6, 6]
    assert (
        "pools.csv:2: gpus 9 by capacity.csv:2, but its up nodes in nodes.csv have 6; 6 count (pool"
        ' "p")' in workload.problem.warnings
    )
    assert_changes(workload.changes, (30, 0, 5, np.nan))


def test_every_fault_of_every_file_at_once() -> None:
    """Located in the files the user has, never in jobs.csv."""
    said = faults(
        workload=(
            "job_id,submitted_s,model,total_work,min_gpus,max_gpus,after\n"
            "a,5,m,10,1,1,\na,x,m,10,4,2,\nb,1,n,0,1,1,b\n"
        ),
        capacity="at_s,pool,gpus\n0,p,-1\nsoon,p,3\n7,r,3\n8,q,1\n8.0,q,2\n9,q,\n",
        config="interval_s = 0",
        tenants="tenant,weight\nx,0\n",
    )
    assert (
        "\n".join(said)
        == """\
capacity.csv:2: gpus -1 is below 0
capacity.csv:3: at_s "soon" is not a number
capacity.csv:4: pool "r" is not in pools.csv
capacity.csv:6: at_s 8.0, pool "q" is already in line 5
capacity.csv:7: gpus is empty
config.toml:1: interval_s 0 must be above 0
tenants.csv:2: weight 0 must be above 0 (tenant "x")
workload.csv:3: submitted_s "x" is not a number (job "a")
workload.csv:3: job_id "a" is already in line 2
workload.csv:3: max_gpus 2 is below min_gpus 4 (job "a")
workload.csv:4: total_work 0 must be above 0 (job "b")
workload.csv:4: model "n" has no row in rates.csv (job "b")
workload.csv:4: after names the job itself (job "b")"""
    )


def test_warnings() -> None:
    """What is ignored or likely a slip, located in workload.csv; doubts about prices too."""
    problem = made(
        workload=(
            "job_id,submitted_s,model,total_work,max_gpus,state,shade,after,deadline_s\n"
            "job-a,5,m,10,1,running,red,,4\njob-b,6,m,10,1,,,job-aa,\n"
        ),
        prices="at_s,pool,price_per_gpu_hour,gpus\n60,p,1.5,\n",
    ).problem
    assert (
        "\n".join(problem.warnings[-6:])
        == """\
pools.csv:2: pool "p" has no price_per_gpu_hour; it costs nothing until prices.csv:2 gives one at \
60 (pool "p")
pools.csv:3: gpu_type "B" has no rate of any model (pool "q")
workload.csv:1: column state is of jobs under way and is ignored; a job of a workload starts with \
total_work left and nothing held
workload.csv:1: column "shade" is not known and is ignored
workload.csv:2: deadline_s 4 is not after submitted_s 5; it is a time on the same clock, in \
seconds (job "job-a")
workload.csv:3: after "job-aa" is no job of the workload and counts as done; did you mean \
"job-a"? (job "job-b")"""
    )


def test_recorded_times() -> None:
    """They follow the order of the jobs; without any there are no rows; one that is before another
    is a fault, as is one of a row that stands for several jobs.
    """
    head = "job_id,submitted_s,model,total_work,max_gpus,recorded_start_s,recorded_end_s"
    recorded = made(workload=f"{head}\nb,6,m,10,1,7,\na,5,m,10,1,,9\n").recorded
    assert np.array_equal(recorded.start_s, [np.nan, 7], equal_nan=True)
    assert np.array_equal(recorded.end_s, [9, np.nan], equal_nan=True)
    assert len(made(workload=f"{head}\nb,6,m,10,1,,\n").recorded) == 0
    said = faults(
        workload=f"{head},every_s,times\na,5,m,10,1,4,3,,\nb,5,m,10,1,,4,,\nc,5,m,10,1,,9,7,2\n"
    )
    assert (
        "\n".join(said)
        == """\
workload.csv:2: recorded_start_s 4 is before submitted_s 5 (job "a")
workload.csv:2: recorded_end_s 3 is before recorded_start_s 4 (job "a")
workload.csv:2: recorded_end_s 3 is before submitted_s 5 (job "a")
workload.csv:3: recorded_end_s 4 is before submitted_s 5 (job "b")
workload.csv:4: recorded_end_s is of one job, and this row has several (job "c")"""
    )


def test_wrong_sort_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is not a workload, nor the other way round; each error says what to do."""
    monkeypatch.chdir(tmp_path)
    work = put(Path("work"), SMALL)
    jobs = SMALL["workload.csv"].replace("total_work", "remaining_work")
    snap = put(Path("snap"), SMALL | {"jobs.csv": jobs})
    (snap / "workload.csv").unlink()
    assert [is_workload(path) for path in (work, snap, Path("none"))] == [True, False, False]
    for path, said in (
        (snap, "but a jobs.csv: this is a snapshot, not a workload; allocator solve decides it,"),
        (Path("none"), "there is no such folder"),
        (work / "pools.csv", "a workload is a folder with workload.csv"),
    ):
        with pytest.raises(InvalidInput, match=said):
            read_workload(path)
    with pytest.raises(InvalidInput, match="this is a workload, not a snapshot; run it with"):
        allocator.validate(allocator.read_snapshot(work))
    (work / "jobs.csv").write_text("x")
    words = "workload.csv: jobs.csv next to it is no part of a workload and is ignored"
    assert words in read_workload(work).problem.warnings


@pytest.mark.parametrize("file", series([*list(WORKLOAD_TABLES)[1:], "workload.csv"], 5))
def test_every_column_is_used_and_optional_ones_have_an_effect(file: str) -> None:
    """Without an optional column the workload is another one; without a required one it is
    refused.
    """
    whole = workload_content(parse_workload("all", EVERY_WORKLOAD))
    raw = parse_folder("all", EVERY_WORKLOAD, FOLDER)
    needed = (
        "amount until_s every_s times sessions_per_hour session_s compute_s state_gb_s leaves_s"
    )
    for column in WORKLOAD_TABLES[file].columns:
        cells = raw.tables[file].columns
        assert any(cells[column.name]), column.name
        frame = pd.DataFrame({n: c for n, c in cells.items() if n != column.name})
        less = {**EVERY_WORKLOAD, file: frame.to_csv(index=False).encode()}
        lasts = (file, column.name) == ("reservations.csv", "until_s")  # for good without an end
        if column.required or (column.name in needed.split() and not lasts):  # another needs it
            with pytest.raises(InvalidInput, match=column.name):
                parse_workload("all", less)
        # there capacity.csv has a word too
        elif (file, column.name) != ("prices.csv", "gpus"):
            assert workload_content(parse_workload("all", less)) != whole, column.name


def test_everything_survives_writing(tmp_path: Path) -> None:
    """Every file and column, twice over."""
    first = parse_workload("all", EVERY_WORKLOAD)
    again = read_workload(write_workload(tmp_path / "w", first))
    assert workload_content(again) == workload_content(first)
    assert {p.name for p in (tmp_path / "w").iterdir()} == set(WORKLOAD_TEXTS)
    write_workload(tmp_path / "v", again)
    for path in (tmp_path / "w").iterdir():
        assert path.read_bytes() == (tmp_path / "v" / path.name).read_bytes()


def test_frames(tmp_path: Path) -> None:
    """Frames are checked, written and read; what would change their meaning is not written
    next to them.
    """
    frames = {
        "workload": "job_id submitted_s model total_work max_gpus: a 1.5 m 1e6 4; b 0.5 m 2 2",
        "pools": "pool gpu_type gpus: p A 4",
        "rates": "model gpu_type gpus work_per_s: m A 1 0.1",
        "capacity": "at_s pool gpus: 9 p 0",
    }
    made = {name: pd.DataFrame(columns(text)) for name, text in frames.items()}
    made["workload"]["sizes"] = [[1, 4], None]
    folder = allocator.write_workload(tmp_path / "w", made, config={"interval_s": 60})
    problem = allocator.read_workload(folder).problem
    assert problem.jobs.job_id == ("b", "a") and problem.interval_s == 60
    assert problem.size_lists[0].tolist() == [1, 4]
    with pytest.raises(InvalidInput, match=r"capacity\.csv:2: pool"):
        write_workload(tmp_path / "x", made | {"capacity": made["capacity"].assign(pool="q")})
    with pytest.raises(UsageError, match='no table "jobs"'):
        write_workload(tmp_path / "x", {"jobs": made["workload"]})
    assert not (tmp_path / "x").exists()
    del made["capacity"]
    with pytest.raises(UsageError, match=r"holds config\.toml, capacity\.csv"):
        write_workload(tmp_path / "w", made)


def test_command_line(tmp_path: Path, capsys: Output) -> None:
    """validate takes a workload; schema prints its columns, and nothing of jobs.csv."""
    folder = put(tmp_path / "w", {**SMALL, "capacity.csv": "at_s,pool,gpus\n30,p,2\n"})
    code, out, warning = call(capsys, f"validate {folder}")
    valid = "valid: 3 jobs, 2 pools, 10 GPUs, 1 tenant, 1 model, 1 rate, 1 change\n"
    assert (code, out) == (0, valid) and warning.startswith("warning: pools.csv:3")
    (folder / "capacity.csv").write_text("at_s,pool,gpus\n30,p,x\n")
    fault = 'capacity.csv:2: gpus "x" is not a whole number\n'
    assert call(capsys, f"validate {folder}") == (3, "", warning + fault)
    schema = call(capsys, "schema workload")[1]
    assert '"capacity.csv"' in schema and "jobs.csv" not in schema
