"""`import slurm`: what sacct recorded becomes jobs, and nothing else does."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.traces import SACCT, SAMPLES
from examples import examples
from hypothesis import given, strategies as st

from allocator.cli import main
from allocator.domain.times import parse_slurm_duration
from allocator.errors import AllocatorError, InvalidInput, UsageError
from allocator.io.traces import slurm
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.run import import_trace

HEADER = "JobID|Submit|Start|End|AllocTRES"
HOUR = 3600.0


def read(folder: Path, text: str, **options: object) -> Trace:
    source = folder / "history.txt"
    source.write_text(text, encoding="utf-8")
    return slurm.read(source, TraceOptions(**options))  # type: ignore[arg-type]


def faults(folder: Path, *rows: str, header: str = HEADER) -> list[tuple[int | None, str]]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, "\n".join([header, *rows]))
    return [(fault.line, fault.message) for fault in caught.value.faults]


def test_each_record_that_ran_is_a_job(tmp_path: Path) -> None:
    """Tasks of an array and runs of a requeued one have names, times, GPUs and tenants of their
    own; what never started or has no GPU is counted; a job that still runs has run so far.
    """
    trace = read(tmp_path, SACCT)
    jobs = trace.jobs
    assert jobs.job_id == ("1", "2_1", "2_2", "2_2-2", "5")
    assert jobs.submitted_s.tolist() == [0, 1800, 1800, 2700, 3600]
    assert jobs.duration_s.tolist() == [3600, 600, 300, 7200, 26 * HOUR]
    assert jobs.gpus.tolist() == [2, 8, 8, 8, 4]
    assert jobs.gpu_types == ("a100", "a100", "a100", "a100", "v100")
    assert jobs.tenant == ("vision",) * 4 + ("nlp",)
    assert {why: n for why, n in trace.dropped.items() if n} == {
        "never started, or ran for no time": 2,
        "have no GPU (gres/gpu in AllocTRES or ReqTRES)": 1,
    }
    assert trace.notes == ("ends: 1 COMPLETED, 1 FAILED, 1 REQUEUED, 1 TIMEOUT, 1 RUNNING",)


def test_recorded_times_stand_next_to_the_jobs(tmp_path: Path) -> None:
    """Seconds from the first submission of the window; clones and running jobs have no end."""
    source, extra = SAMPLES["slurm"](tmp_path)
    cells = import_trace("slurm", source, TraceOptions())[0].files["workload.csv"]
    assert cells["recorded_start_s"] == ["10", "1800", "2400", "38700", "3600"]
    assert cells["recorded_end_s"] == ["3610", "2400", "2700", "45900", ""]
    later = TraceOptions(start="2026-11-28 13:30", extra=extra)
    cells = import_trace("slurm", source, later)[0].files["workload.csv"]
    assert cells["recorded_start_s"] == ["0", "600", "36900", "1800"]
    more = TraceOptions(load=9.0, hours=2, extra=extra)
    cells = import_trace("slurm", source, more)[0].files["workload.csv"]
    of = dict(zip(cells["job_id"], cells["recorded_start_s"], strict=True))
    assert of["1"] == "10" and {of[name] for name in of if "~" in name} == {""}


def test_every_assumption_is_in_the_workload_and_in_the_summary(tmp_path: Path) -> None:
    """Sizes, types, pools, nodes, requeued and running jobs; what is given is not assumed."""
    source, _ = SAMPLES["slurm"](tmp_path)
    tables, summary = import_trace("slurm", source, TraceOptions())
    assumed = str(tables.config["assumed"])
    assert assumed == (
        "each job runs at the GPUs it asked for, or not at all; every job may be paused;"
        " each job runs on the GPU type that it had;"
        " there are as many GPUs as ran at once (a100 10, v100 4);"
        " nodes have as many as a job had on one (a100 4, v100 4);"
        " further runs of requeued jobs (1) are jobs of their own;"
        " jobs that still ran (1) were done when sacct was called"
    )
    assert f"assumed: {assumed}" in summary.notes
    assert tables.files["workload.csv"]["min_gpus"] == tables.files["workload.csv"]["max_gpus"]
    given_ = TraceOptions(gpus_by_type={"a100": 16, "v100": 8}, gpus_per_node=8)
    told = str(import_trace("slurm", source, given_)[0].config["assumed"])
    assert "at once" not in told and "nodes have" not in told


def test_pools_are_as_given(tmp_path: Path) -> None:
    """By type, in all, fewer than ran at once (which is said), and of an unknown type."""
    trace = read(tmp_path, SACCT, gpus_by_type={"a100": 9, "v100": 8})
    assert [(p.gpu_type, p.gpus, p.gpus_per_node) for p in trace.pools] == [
        ("a100", 9, 4),
        ("v100", 8, 4),
    ]
    assert "pool a100: 10 GPUs were held at once, more than the 9 that it has here" in trace.notes
    assert [p.gpus for p in read(tmp_path, SACCT, gpus=28).pools] == [20, 8]
    with pytest.raises(UsageError, match='type "a10"; did you mean "a100"'):
        read(tmp_path, SACCT, gpus_by_type={"a10": 9})
    with pytest.raises(UsageError, match="csv does not name the GPU types"):
        import_trace("csv", tmp_path / "x.csv", TraceOptions(gpus_by_type={"a100": 9}))


def test_most_at_once_counts_an_end_before_a_start(tmp_path: Path) -> None:
    """Job 2 takes over the GPUs of job 1 in the same second; job 3 overlaps with it."""
    rows = ["1|0|0|10|gres/gpu=4", "2|0|10|20|gres/gpu=4", "3|0|15|16|gres/gpu=2"]
    trace = read(tmp_path, "\n".join([HEADER, *rows]))
    assert [(p.pool, p.gpus) for p in trace.pools] == [("gpu", 6)]


def test_partitions_may_be_pools(tmp_path: Path) -> None:
    """One type in two partitions becomes two types; a partition of one type keeps its name."""
    header = "JobID|Partition|Submit|Start|End|AllocTRES"
    rows = [
        "1|long|0|0|9|gres/gpu:a100=4,gres/gpu=4,node=1",
        "2|short|0|0|9|gres/gpu:a100=2,gres/gpu=2,node=1",
        "3|old|0|0|9|gres/gpu:v100=1,gres/gpu=1,node=1",
    ]
    text = "\n".join([header, *rows])
    trace = read(tmp_path, text, extra={"pools": ("partition",), "tenant": ("partition",)})
    assert trace.jobs.gpu_types == ("a100@long", "a100@short", "v100")
    assert [p.gpus for p in trace.pools] == [4, 2, 1]
    assert trace.jobs.tenant == ("long", "short", "old")
    with pytest.raises(InvalidInput, match="no column Partition, which --pools partition needs"):
        read(tmp_path, SACCT.replace("Partition", "Place"), extra={"pools": ("partition",)})
    with pytest.raises(UsageError, match="--pools node: one of type, partition"):
        read(tmp_path, text, extra={"pools": ("node",)})


def test_priorities_may_be_weights(tmp_path: Path) -> None:
    """In proportion to their mean; a priority of 0 counts as 1."""
    trace = read(tmp_path, SACCT, extra={"weight": ("priority",)})
    assert trace.jobs.weight.tolist() == pytest.approx([40 / 17.5, *[10 / 17.5] * 3, 1])
    assert read(tmp_path, SACCT).jobs.weight.tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("cell", "types", "gpus"),
    [
        ("cpu=1,gres/gpu=3,node=1", ("gpu",), [3]),
        ("gres/gpu:a100=3", ("a100",), [3]),
        ("gres/gpu:1g.10gb=2,gres/gpu=2", ("1g.10gb",), [2]),
        ("gres/gpu:a100=0,gres/gpu=2", ("gpu",), [2]),
        ("gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2", (), []),
        ("gres/gpu:a100=1,gres/gpu=2", (), []),
        ("gres/gpumem=4,gres/shard=2", (), []),
        ("gres/gpu=0", (), []),
    ],
)
def test_gpus_by_type(cell: str, types: tuple[str, ...], gpus: list[int], tmp_path: Path) -> None:
    """With a type or without; several types at once and shares are left out."""
    jobs = read(tmp_path, f"{HEADER}\n1|0|0|9|{cell}").jobs
    assert jobs.gpu_types == types and jobs.gpus.tolist() == gpus


def test_requested_gpus_count_where_none_were_recorded(tmp_path: Path) -> None:
    """ReqTRES counts if AllocTRES is empty or not there."""
    header = "JobID|Submit|Start|End|ReqTRES"
    assert read(tmp_path, f"{header}\n1|0|0|9|gres/gpu=4").jobs.gpus.tolist() == [4]
    rows = ["1|0|0|9||gres/gpu=4", "2|0|0|9|gres/gpu=2|gres/gpu=4"]
    text = "\n".join([f"{HEADER}|ReqTRES", *rows])
    assert read(tmp_path, text).jobs.gpus.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("submit", "start", "end"),
    [
        ("2026-03-28T23:59:30", "2026-03-28T23:59:50", "2026-03-29T00:00:20"),
        ("1774742370", "1774742390", "1774742420"),
        ("2026-03-28T23:59:30+00:00", "2026-03-28T23:59:50+00:00", "2026-03-29T00:00:20+00:00"),
        ("2026-03-29T00:59:30+01:00", "2026-03-29T00:59:50+01:00", "2026-03-29T02:00:20+02:00"),
    ],
)
def test_times_across_midnight_and_summer_time(
    submit: str, start: str, end: str, tmp_path: Path
) -> None:
    """Dates, dates with a zone, and seconds give the same 30 s and the same origin."""
    trace = read(tmp_path, f"{HEADER}\n1|{submit}|{start}|{end}|gres/gpu=1")
    assert trace.jobs.duration_s.tolist() == [30.0] and trace.origin_s == 1774742370.0


@pytest.mark.parametrize("nothing", ["Unknown", "None", "N/A", ""])
def test_jobs_without_a_start_or_an_end(nothing: str, tmp_path: Path) -> None:
    """Without a start it never ran; without an end it runs, for as long as Elapsed says."""
    header = f"{HEADER}|Elapsed"
    rows = [
        f"1|0|{nothing}|5|gres/gpu=1|00:00:00",
        f"2|0|1|{nothing}|gres/gpu=1|2-00:00:01",
        f"3|0|1|{nothing}|gres/gpu=1|",
    ]
    trace = read(tmp_path, "\n".join([header, *rows]))
    assert trace.jobs.job_id == ("2",) and trace.jobs.duration_s.tolist() == [2 * 86400 + 1]
    assert trace.dropped["never started, or ran for no time"] == 1
    assert trace.dropped["still run, and no Elapsed says for how long"] == 1


@pytest.mark.parametrize(
    ("cell", "limit"),
    [("1-00:00:00", "86400"), ("00:10:00", "600"), ("UNLIMITED", ""), ("Partition_Limit", ""),
     ("00:00:00", ""), ("", "")],
)  # fmt: skip
def test_time_limits(cell: str, limit: str, tmp_path: Path) -> None:
    """Where the user gave one."""
    rows = ["1|0|0|9|gres/gpu=1|" + cell, "2|0|0|9|gres/gpu=1|2:00"]
    (tmp_path / "h").write_text("\n".join([f"{HEADER}|Timelimit", *rows]), encoding="utf-8")
    files = import_trace("slurm", tmp_path / "h", TraceOptions())[0].files
    assert files["workload.csv"]["time_limit_s"] == [limit, "120"]


def test_steps_and_times_that_go_back_are_counted(tmp_path: Path) -> None:
    """12.batch is a step; an end before the start, and a start before the submission."""
    rows = [
        "1|0|0|9|gres/gpu=1",
        "1.batch|0|0|9|gres/gpu=1",
        "2|0|9|3|gres/gpu=1",
        "3|5|4|9|gres/gpu=1",
    ]
    trace = read(tmp_path, "\n".join([HEADER, *rows]))
    assert trace.jobs.job_id == ("1",)
    assert trace.dropped["are steps of jobs"] == 1
    assert trace.dropped["have times that go back"] == 2


@pytest.mark.parametrize("sign", ["\t", ";", "^", ","])
def test_any_delimiter_and_any_order(sign: str, tmp_path: Path) -> None:
    """The columns are found by name, and the delimiter in the header; others are ignored."""
    header = ["End", "JobName", "AllocTRES", "Start", "JobID", "Submit"]
    row = ["9", "a|b" if sign != "|" else "", "gres/gpu=2", "1", "7", "0"]
    jobs = read(tmp_path, f"{sign.join(header)}\r\n{sign.join(row)}\r\n").jobs
    assert jobs.job_id == ("7",) and jobs.duration_s.tolist() == [8.0]


def test_bad_lines_are_faults_with_their_line(tmp_path: Path) -> None:
    """Cells too many, no id, no submission, no date, no number of GPUs, another cluster."""
    assert faults(tmp_path, "1|0|0|9|gres/gpu=1", "2|a|b|0|0|9|gres/gpu=1") == [
        (
            3,
            'the row has 7 cells, the header 5; if a name or comment has "|" in it, leave out its'
            " column or call sacct with another --delimiter",
        )
    ]
    assert faults(tmp_path, "|0|0|9|", "2||0|9|") == [(2, "JobID is empty"), (3, "Submit is empty")]
    date = "2026-11-28T13:00:00"
    assert faults(tmp_path, *[f"1|{date}|{date}|{date}|"] * 2, f"2|{date}|13:00|{date}|") == [
        (4, 'Start "13:00" is not a date like 2017-10-09 08:00:05')
    ]
    assert faults(tmp_path, "1|0|0|9|gres/gpu=many", "1|0|0|9|node=-1") == [
        (2, '"gres/gpu=many" has no whole number of gres/gpu'),
        (3, '"node=-1" has no whole number of node'),
    ]
    header = f"{HEADER}|Cluster"
    assert faults(tmp_path, "1|0|0|9||a", "1|0|0|9||b", header=header) == [
        (3, 'Cluster "b" after "a"; import one cluster at a time (sacct --clusters)')
    ]
    header = f"{HEADER}|Elapsed"
    assert faults(tmp_path, "1|0|0||gres/gpu=1|soon", header=header) == [
        (2, 'Elapsed "soon" is no time of Slurm: write minutes, h:min:s or days-h:min:s')
    ]
    assert faults(tmp_path, header="JobID|Submit|Start") == [
        (
            1,
            "has no column End, AllocTRES or ReqTRES; print it by sacct --allusers --duplicates"
            " --allocations --parsable2 --format=ALL",
        )
    ]


@examples(20, 200)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    "1",
                    "2_[1-3]",
                    "7+0",
                    "1.0",
                    "",
                    "Unknown",
                    "2026-11-28T13:00:00",
                    "0",
                    "1e999",
                    "-5",
                    "nan",
                    "gres/gpu=4",
                    "gres/gpu:a=2,gres/gpu=2",
                    "gres/gpu==",
                    "node=0,gres/gpu=1",
                    "1-00:00:00",
                    "99999999-0",
                    "é\x85|",
                    "9" * 400,
                    "gres/gpu:=9999999",
                ]
            ),
            min_size=6,
            max_size=6,
        ),
        max_size=6,
    )
)
def test_no_record_is_an_internal_error(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]]
) -> None:
    """Whatever stands in the cells: a workload, or faults of ours."""
    source = tmp_path_factory.mktemp("fuzz") / "history.txt"
    lines = ["JobID|Submit|Start|End|AllocTRES|Elapsed", *map("|".join, cells)]
    source.write_text("\n".join(lines), encoding="utf-8")
    try:
        tables, _ = import_trace("slurm", source, TraceOptions())
    except InvalidInput as error:
        assert all(fault.file == str(source) for fault in error.faults)
    except AllocatorError as error:
        assert "no job is left" in str(error)
    else:
        assert len(tables.files["workload.csv"]["job_id"]) <= len(cells)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("1:30", 90), ("00:00:00", 0), ("100:00:00", 360000), ("1-0", 86400),
        ("1-06:30", 109800), ("365-00:00:00", 31536000), ("00:01.123", 1),
    ],
)  # fmt: skip
def test_durations_of_slurm(text: str, seconds: float) -> None:
    """As man sbatch has them."""
    assert parse_slurm_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1:2:3:4", "1.5h", "١", "1:234"])
def test_no_durations_of_slurm(text: str) -> None:
    """What Slurm refuses."""
    with pytest.raises(ValueError, match="is no time of Slurm"):
        parse_slurm_duration(text)


def test_command_reads_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sacct ... | allocator import slurm -` with GPUs by type; a wrong --gpus is 2."""
    source, _ = SAMPLES["slurm"](tmp_path)
    out = tmp_path / "out"
    with source.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        argv = ["import", "slurm", "-", "--gpus", "a100=16,v100=8", "--out", str(out)]
        assert main.run(argv) == 0
    said = capsys.readouterr().err
    assert "8 jobs read, 3 dropped: 2 never started" in said and "assumed: " in said
    assert "a100,a100,16,4" in (out / "pools.csv").read_text()
    assert main.run(["import", "slurm", str(source), "--gpus", "a100=x", "--out", "o"]) == 2
    assert np.isfinite(slurm.read(source, TraceOptions()).origin_s)
