"""Workload folders: what is read, what is a fault and where, and that writing keeps every value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from everything_workload import EVERY_WORKLOAD, WORKLOAD_TEXTS, workload_content
from examples import examples
from hypothesis import given, strategies as st
from test_schema import breaches, typed
from waiting import in_time

import allocator
from allocator.cli import main
from allocator.domain.problem import State
from allocator.domain.schema.columns import JOBS
from allocator.domain.schema.workload_columns import CELLS, UNDER_WAY, WORKLOAD, WORKLOAD_TABLES
from allocator.domain.workload import Changes, Workload
from allocator.errors import InvalidInput, UsageError
from allocator.io.folders import parse_folder
from allocator.io.json_schema import workload_schema
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


def rows(changes: Changes) -> list[tuple[float, int, int, float | None]]:
    return [
        (t, p, g, None if np.isnan(c) else c)
        for t, p, g, c in zip(
            changes.at_s.tolist(),
            changes.pool.tolist(),
            changes.gpus.tolist(),
            changes.price_per_gpu_hour.tolist(),
            strict=True,
        )
    ]


def test_jobs_by_submission_queued_with_all_their_work() -> None:
    """b and c are submitted at one moment and stay in the order of the file; a comes first."""
    problem = made().problem
    assert problem.jobs.job_id == ("a", "b", "c")
    assert (problem.jobs.state == State.QUEUED).all() and (
        problem.jobs.remaining_work == [50, 100, 7]
    ).all()
    assert (
        problem.jobs.total_work == problem.jobs.remaining_work
    ).all() and not problem.jobs.gpus.any()
    assert (problem.jobs.requested_gpus == 1).all() and problem.received.shape == (3, 2)
    assert problem.warnings == ('pools.csv:3: gpu_type "B" has no rate of any model (pool "q")',)


@pytest.mark.parametrize(
    ("config", "start", "words"),
    [
        ("", 10, ""),
        ("now_s = 3", 3, ""),
        ("now_s = 10", 10, ""),
        (
            "now_s = 15",
            10,
            (
                "config.toml:1: now_s 15 is after the earliest submitted_s; the workload starts"
                " there, at 10"
            ),
        ),
    ],
)
def test_start(config: str, start: float, words: str) -> None:
    """The earliest submission, or an earlier now_s."""
    problem = made(config=config).problem
    assert problem.now_s == start and words in ("", problem.warnings[0])


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
    assert rows(workload.changes) == [
        (15, 1, 8, None),
        (20, 0, 0, 2),
        (30, 0, -1, 3),
        (30, 1, 1, None),
    ]


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
    assert rows(workload.changes) == [(30, 0, 5, None)]


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
    assert said == [
        "capacity.csv:2: gpus -1 is below 0",
        'capacity.csv:3: at_s "soon" is not a number',
        'capacity.csv:4: pool "r" is not in pools.csv',
        'capacity.csv:6: at_s 8.0, pool "q" is already in line 5',
        "capacity.csv:7: gpus is empty",
        "config.toml:1: interval_s 0 must be above 0",
        'tenants.csv:2: weight 0 must be above 0 (tenant "x")',
        'workload.csv:3: submitted_s "x" is not a number (job "a")',
        'workload.csv:3: job_id "a" is already in line 2 (job "a")'.removesuffix(' (job "a")'),
        'workload.csv:3: max_gpus 2 is below min_gpus 4 (job "a")',
        'workload.csv:4: total_work 0 must be above 0 (job "b")',
        'workload.csv:4: model "n" has no row in rates.csv (job "b")',
        'workload.csv:4: after names the job itself (job "b")',
    ]


def test_warnings() -> None:
    """What is ignored or likely a slip, located in workload.csv."""
    problem = made(
        workload=(
            "job_id,submitted_s,model,total_work,max_gpus,state,colour,after,deadline_s\n"
            "job-a,5,m,10,1,running,red,,4\njob-b,6,m,10,1,,,job-aa,\n"
        )
    ).problem
    assert problem.warnings[-4:] == (
        (
            "workload.csv:1: column state is of jobs under way and is ignored; a job of a workload"
            " starts with total_work left and nothing held"
        ),
        'workload.csv:1: column "colour" is not known and is ignored',
        (
            "workload.csv:2: deadline_s 4 is not after submitted_s 5; it is a time on the same"
            ' clock, in seconds (job "job-a")'
        ),
        (
            'workload.csv:3: after "job-aa" is no job of the workload and counts as done; did you'
            ' mean "job-a"? (job "job-b")'
        ),
    )


def test_empty_workload() -> None:
    """No jobs: a warning; the start is now_s, or 0."""
    assert made(workload="job_id,submitted_s,model,total_work,max_gpus\n").problem.now_s == 0
    problem = made(
        workload="job_id,submitted_s,model,total_work,max_gpus\n", config="now_s = 7"
    ).problem
    assert problem.now_s == 7 and "workload.csv: has no jobs" in problem.warnings


def test_wrong_sort_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is not a workload, nor the other way round; each error says what to do."""
    monkeypatch.chdir(tmp_path)
    tmp_path = Path()
    work = put(tmp_path / "work", SMALL)
    snap = put(
        tmp_path / "snap",
        {
            ("jobs.csv" if f == "workload.csv" else f): t.replace("total_work", "remaining_work")
            for f, t in SMALL.items()
        },
    )
    assert is_workload(work) and not is_workload(snap) and not is_workload(tmp_path / "none")
    assert [str(f) for f in _refused(lambda: read_workload(snap))] == [
        f'workload.csv: there is no such file in "{snap}", but a jobs.csv: this is a snapshot, not'
        " a workload; allocator solve decides it, allocator simulate and Problem.to_workload start"
        " its jobs anew"
    ]
    assert [
        str(f) for f in _refused(lambda: allocator.validate(allocator.read_snapshot(work)))
    ] == [
        f'jobs.csv: there is no such file in "{work}", but a workload.csv: this is a workload, not'
        ' a snapshot; run it with "allocator simulate"'
    ]
    assert "there is no such folder" in str(_refused(lambda: read_workload(tmp_path / "none"))[0])
    assert "a workload is a folder with workload.csv" in str(
        _refused(lambda: read_workload(work / "pools.csv"))[0]
    )
    (work / "jobs.csv").write_text("x")
    assert (
        "workload.csv: jobs.csv next to it is no part of a workload and is ignored"
        in read_workload(work).problem.warnings
    )


def _refused(call: object) -> tuple[object, ...]:
    with pytest.raises(InvalidInput) as caught:
        call()  # type: ignore[operator]
    return caught.value.faults


def test_columns_are_those_of_a_job_that_has_not_started() -> None:
    """Every column of jobs.csv is in workload.csv or only for jobs under way; those of sessions
    are in workload.csv only.
    """
    names = [c.name for c in WORKLOAD.columns if c not in CELLS]
    assert sorted([*names, *UNDER_WAY]) == sorted(c.name for c in JOBS.columns)
    assert all("jobs.csv" not in c.doc for t in WORKLOAD_TABLES.values() for c in t.columns)


@pytest.mark.parametrize("file", list(WORKLOAD_TABLES))
def test_every_column_is_used_and_optional_ones_have_an_effect(file: str) -> None:
    """Without an optional column the workload is another one; without a required one it is
    refused.
    """
    whole = workload_content(parse_workload("all", EVERY_WORKLOAD))
    raw = parse_folder("all", EVERY_WORKLOAD, FOLDER)
    for column in WORKLOAD_TABLES[file].columns:
        cells = raw.tables[file].columns
        assert any(cells[column.name]), column.name
        frame = pd.DataFrame({n: c for n, c in cells.items() if n != column.name})
        less = {**EVERY_WORKLOAD, file: frame.to_csv(index=False).encode()}
        if column.required or column.name in (  # none without another
            "amount",
            "until_s",
            "every_s",
            "times",
            "sessions_per_hour",
            "session_s",
            "compute_s",
            "state_gb_s",
        ):
            assert any(
                column.name in str(f)
                for f in _refused(lambda less=less: parse_workload("all", less))
            )
        # there capacity.csv has a word too
        elif (file, column.name) != ("prices.csv", "gpus"):
            assert workload_content(parse_workload("all", less)) != whole, column.name


def test_schema_describes_what_is_read() -> None:
    """The workload that uses everything keeps `allocator schema workload`."""
    raw = parse_folder("all", EVERY_WORKLOAD, FOLDER)
    document = {"config.toml": raw.config} | {
        file: [
            {
                n: (
                    typed(file, n, c)
                    if file not in ("workload.csv", "capacity.csv", "node_events.csv")
                    else _value(file, n, c)
                )
                for n, c in zip(t.columns, row, strict=True)
                if c
            }
            for row in zip(*t.columns.values(), strict=True)
        ]
        for file, t in raw.tables.items()
    }
    assert list(breaches(document, workload_schema())) == []


def _value(file: str, name: str, text: str) -> object:
    kind = WORKLOAD_TABLES[file].column(name).kind
    if kind in ("number", "integer"):
        return int(float(text)) if kind == "integer" else float(text)
    return text in ("true", "yes") if kind == "boolean" else text


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
        "workload": pd.DataFrame(
            {
                "job_id": ["a", "b"],
                "submitted_s": [1.5, 0.5],
                "model": "m",
                "total_work": [1e6, 2],
                "max_gpus": [4, 2],
                "sizes": [[1, 4], None],
            }
        ),
        "pools": pd.DataFrame({"pool": ["p"], "gpu_type": ["A"], "gpus": [4]}),
        "rates": pd.DataFrame(
            {"model": ["m"], "gpu_type": ["A"], "gpus": [1], "work_per_s": [0.1]}
        ),
        "capacity": pd.DataFrame({"at_s": [9], "pool": ["p"], "gpus": [0]}),
    }
    folder = allocator.write_workload(tmp_path / "w", frames, config={"interval_s": 60})
    problem = allocator.read_workload(folder).problem
    assert (
        problem.jobs.job_id == ("b", "a")
        and problem.interval_s == 60
        and problem.size_lists[0].tolist() == [1, 4]
    )
    with pytest.raises(InvalidInput, match=r"capacity\.csv:2: pool"):
        write_workload(tmp_path / "x", {**frames, "capacity": frames["capacity"].assign(pool="q")})
    with pytest.raises(UsageError, match='no table "jobs"'):
        write_workload(tmp_path / "x", {"jobs": frames["workload"]})
    assert not (tmp_path / "x").exists()
    del frames["capacity"]
    with pytest.raises(UsageError, match=r"holds config\.toml, capacity\.csv"):
        write_workload(tmp_path / "w", frames)


NAMES = (
    st.text(
        st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="|"),
        min_size=1,
        max_size=6,
    )
    .map(str.strip)
    .filter(bool)
)
TIMES = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-30)
POSITIVE = st.floats(1e-29, 1e29)


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, pd.DataFrame]:
    """Frames of a small workload with odd names and numbers."""
    models, types, pools, ids = (
        draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)) for _ in range(4)
    )
    some, n = st.sampled_from, len(ids)

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=n, max_size=n))

    size, maybe = st.integers(1, 9), lambda values: st.none() | values
    jobs = {
        "job_id": ids,
        "submitted_s": column(TIMES),
        "model": column(some(models)),
        "total_work": column(POSITIVE),
        "max_gpus": [9] * n,
        "requested_gpus": column(maybe(size)),
        "sizes": column(maybe(st.lists(size, min_size=1, max_size=3))),
        "gpu_types": column(maybe(st.lists(some(types), min_size=1))),
        "tenant": column(maybe(NAMES)),
        "weight": column(maybe(POSITIVE)),
        "deadline_s": column(maybe(TIMES)),
        "preemptible": column(maybe(st.booleans())),
        "restart_s": column(
            maybe(st.floats(0, 1e9).map(abs).filter(lambda x: x == 0 or x > 1e-30))
        ),
        "resizes_left": column(maybe(st.integers(0, 10**15))),
    }
    frames = {
        "workload": jobs,
        "pools": {
            "pool": pools,
            "gpu_type": [draw(some(types)) for _ in pools],
            "gpus": [7] * len(pools),
            "price_per_gpu_hour": [draw(POSITIVE) for _ in pools],
        },
        "rates": {
            "model": models * len(types),
            "gpu_type": [t for t in types for _ in models],
            "gpus": 1,
            "work_per_s": [draw(POSITIVE) for _ in types for _ in models],
            "variant": draw(maybe(NAMES)),
        },
    }
    for file, value in (("capacity", st.integers(0, 10**7)), ("prices", POSITIVE)):
        moves = draw(st.lists(st.tuples(TIMES, some(pools)), max_size=4, unique=True))
        frames[file] = {
            "at_s": [t for t, _ in moves],
            "pool": [p for _, p in moves],
            "gpus" if file == "capacity" else "price_per_gpu_hour": [draw(value) for _ in moves],
        }
    return {
        name: pd.DataFrame(
            {k: pd.Series(v, dtype=object) if isinstance(v, list) else v for k, v in f.items()}
        )
        for name, f in frames.items()
    }


@examples(30, 60)
@given(workloads())
def test_read_of_written_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, frames: dict[str, pd.DataFrame]
) -> None:
    """All arrays, to the last bit, whatever the names and numbers."""
    folder = tmp_path_factory.mktemp("round")
    first = read_workload(write_workload(folder / "a", frames))
    again = read_workload(write_workload(folder / "b", first))
    assert workload_content(again) == workload_content(first)


def test_82_000_jobs_in_two_seconds(tmp_path: Path) -> None:
    """As many as the largest public trace has, in no order, with sizes and tenants; several
    times faster in truth.
    """

    rng, n = np.random.default_rng(0), 82_000
    most = 2 ** rng.integers(0, 5, n)
    jobs = pd.DataFrame(
        {
            "job_id": [f"application_{i}" for i in range(n)],
            "submitted_s": rng.uniform(0, 1e7, n),
            "model": rng.choice(["a", "b"], n),
            "total_work": rng.lognormal(8, 2, n),
            "max_gpus": most,
            "tenant": rng.choice([f"t{i}" for i in range(14)], n),
            "sizes": [f"1|{k}" for k in most],
        }
    )
    frames = {
        "workload": jobs,
        "pools": pd.DataFrame({"pool": ["p"], "gpu_type": ["A"], "gpus": [1000]}),
        "rates": pd.DataFrame({"model": ["a", "b"], "gpu_type": "A", "gpus": 1, "work_per_s": 1.0}),
    }
    folder = write_workload(tmp_path / "w", frames)
    with in_time(2.0):
        assert len(read_workload(folder).problem.jobs) == n


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """validate takes a workload; solve says what to do with one; schema prints its columns."""
    folder = str(put(tmp_path / "w", {**SMALL, "capacity.csv": "at_s,pool,gpus\n30,p,2\n"}))
    assert main.run(["validate", folder]) == 0
    said = capsys.readouterr()
    assert said.out == "valid: 3 jobs, 2 pools, 10 GPUs, 1 tenant, 1 model, 1 rate, 1 change\n"
    assert said.err.startswith("warning: pools.csv:3")
    (tmp_path / "w" / "capacity.csv").write_text("at_s,pool,gpus\n30,p,x\n")
    assert main.run(["validate", folder]) == 3
    assert capsys.readouterr().err == said.err + 'capacity.csv:2: gpus "x" is not a whole number\n'
    assert main.run(["solve", folder]) == 3
    assert 'run it with "allocator simulate"' in capsys.readouterr().err
    assert main.run(["schema", "workload"]) == 0
    assert '"capacity.csv"' in capsys.readouterr().out
