"""`import slurm`: what sacct recorded becomes jobs, and nothing else does."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from cases.traces import SACCT, SAMPLES
from commands import Output, call
from text_tables import cases

from allocator.domain.times import parse_slurm_duration
from allocator.errors import InvalidInput, UsageError
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.run import import_trace
from allocator.io.traces.sites import slurm

HEADER = "JobID|Submit|Start|End|AllocTRES"
HOUR = 3600.0


def read(folder: Path, text: str, **options: object) -> Trace:
    source = folder / "history.txt"
    source.write_text(text, encoding="utf-8")
    return slurm.read(source, TraceOptions(**options))  # type: ignore[arg-type]


def faults(folder: Path, text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(folder, text)
    return "; ".join(f"{fault.line}: {fault.message}" for fault in caught.value.faults)


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
        "have no GPU": 1,
    }
    assert trace.notes == ("ends: 1 COMPLETED, 1 FAILED, 1 REQUEUED, 1 TIMEOUT, 1 RUNNING",)


def test_recorded_times_stand_next_to_the_jobs(tmp_path: Path) -> None:
    """Seconds from the first submission of the window; clones and running jobs have no end."""
    source, extra = SAMPLES["slurm"](tmp_path)

    def cells(**options: object) -> dict[str, list[str]]:
        given_ = TraceOptions(extra=extra, **options)  # type: ignore[arg-type]
        return import_trace("slurm", source, given_)[0].tables["workload.csv"].columns

    found = cells()
    assert found["recorded_start_s"] == ["10", "1800", "2400", "38700", "3600"]
    assert found["recorded_end_s"] == ["3610", "2400", "2700", "45900", ""]
    later = cells(start="2026-11-28 13:30")
    assert later["recorded_start_s"] == ["0", "600", "36900", "1800"]
    more = cells(load=9.0, hours=2)
    of = dict(zip(more["job_id"], more["recorded_start_s"], strict=True))
    assert of["1"] == "10" and {of[name] for name in of if "~" in name} == {""}


def test_every_assumption_is_in_the_workload_and_in_the_summary(tmp_path: Path) -> None:
    """Sizes, types, pools, nodes, requeued and running jobs; what is given is not assumed."""
    source, _ = SAMPLES["slurm"](tmp_path)
    tables, summary = import_trace("slurm", source, TraceOptions())
    assumed = str(tables.config["assumed"])
    assert assumed == (
        "each job runs at the GPUs it asked for, or not at all; every job may be paused;"
        " each job runs on the GPU type that it had;"
        " there are as many nodes as could hold what ran at once (GPUs: a100 12, v100 4);"
        " nodes have as many as a job had on one (a100 4, v100 4);"
        " further runs of requeued jobs (1) are jobs of their own;"
        " jobs that still ran (1) were done when the records were made"
    )
    assert f"assumed: {assumed}" in summary.notes
    assert (
        tables.tables["workload.csv"].columns["min_gpus"]
        == tables.tables["workload.csv"].columns["max_gpus"]
    )
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
    """Job 2 takes over the GPUs of job 1 in the same second; job 3 overlaps, on the second node."""
    rows = ["1|0|0|10|gres/gpu=4", "2|0|10|20|gres/gpu=4", "3|0|15|16|gres/gpu=2"]
    trace = read(tmp_path, "\n".join([HEADER, *rows]))
    assert [(p.pool, p.gpus) for p in trace.pools] == [("gpu", 8)]


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
    ("columns", "record", "job"),
    cases("""
AllocTRES -> cpu=1,gres/gpu=3,node=1 -> 3 gpu
AllocTRES -> gres/gpu:a100=3 -> 3 a100
AllocTRES -> gres/gpu:1g.10gb=2,gres/gpu=2 -> 2 1g.10gb
AllocTRES -> gres/gpu:a100=0,gres/gpu=2 -> 2 gpu
AllocTRES -> gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2 -> none
AllocTRES -> gres/gpu:a100=1,gres/gpu=2 -> none
AllocTRES -> gres/gpumem=4,gres/shard=2 -> none
AllocTRES -> gres/gpu=0 -> none
ReqTRES -> gres/gpu=4 -> 4 gpu
AllocTRES|ReqTRES -> |gres/gpu=4 -> 4 gpu
AllocTRES|ReqTRES -> gres/gpu=2|gres/gpu=4 -> 2 gpu
"""),
)
def test_gpus_of_a_record(columns: str, record: str, job: str, tmp_path: Path) -> None:
    """With a type or without; several types at once and shares are left out. ReqTRES counts if
    AllocTRES is empty or not there.
    """
    jobs = read(tmp_path, f"JobID|Submit|Start|End|{columns}\n1|0|0|9|{record}").jobs
    found = [f"{n} {kind}" for n, kind in zip(jobs.gpus, jobs.gpu_types, strict=True)]
    assert found == [job] * (job != "none")


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
    assert trace.dropped["still run, and nothing says for how long"] == 1


def test_time_limits(tmp_path: Path) -> None:
    """Where the user gave one."""
    limits = ["1-00:00:00", "00:10:00", "UNLIMITED", "Partition_Limit", "00:00:00", "", "2:00"]
    rows = [f"{i}|0|0|9|gres/gpu=1|{limit}" for i, limit in enumerate(limits)]
    (tmp_path / "h").write_text("\n".join([f"{HEADER}|Timelimit", *rows]), encoding="utf-8")
    files = import_trace("slurm", tmp_path / "h", TraceOptions())[0].tables
    assert files["workload.csv"].columns["time_limit_s"] == ["86400", "600", "", "", "", "", "120"]


def test_steps_and_times_that_go_back_are_counted(tmp_path: Path) -> None:
    """12.batch is a step; an end before the start, and a start before the submission."""
    rows = ["1|0|0|9|", "1.batch|0|0|9|", "2|0|9|3|", "3|5|4|9|"]
    trace = read(tmp_path, "\n".join([HEADER, *(f"{row}gres/gpu=1" for row in rows)]))
    assert trace.jobs.job_id == ("1",)
    assert trace.dropped["are steps of jobs"] == 1
    assert trace.dropped["have times that go back"] == 2


@pytest.mark.parametrize("sign", ["\t", ";", "^", ","])
def test_any_delimiter_and_any_order(sign: str, tmp_path: Path) -> None:
    """The columns are found by name, and the delimiter in the header; others are ignored."""
    text = "End|JobName|AllocTRES|Start|JobID|Submit\r\n9|a/b|gres/gpu=2|1|7|0\r\n"
    jobs = read(tmp_path, text.replace("|", sign).replace("/b", "|b")).jobs
    assert jobs.job_id == ("7",) and jobs.duration_s.tolist() == [8.0]


DAY = "2026-11-28T13:00:00"
BAD = f"""
{HEADER};1|0|0|9|gres/gpu=1;2|a|b|0|0|9|gres/gpu=1 -> 3: the row has 7 cells, the header 5; \
if a name or comment has "|" in it, leave out its column or call sacct with another --delimiter
{HEADER};|0|0|9|;2||0|9| -> 2: JobID is empty; 3: Submit is empty
{HEADER};1|{DAY}|{DAY}|{DAY}|;1|{DAY}|{DAY}|{DAY}|;2|{DAY}|13:00|{DAY}| -> \
4: Start "13:00" is not a date like 2017-10-09 08:00:05
{HEADER};1|0|0|9|gres/gpu=many;1|0|0|9|node=-1 -> \
2: "gres/gpu=many" has no whole number of gres/gpu; 3: "node=-1" has no whole number of node
{HEADER}|Cluster;1|0|0|9||a;1|0|0|9||b -> \
3: Cluster "b" after "a"; import one cluster at a time (sacct --clusters)
{HEADER}|Elapsed;1|0|0||gres/gpu=1|soon -> \
2: Elapsed "soon" is no time of Slurm: write minutes, h:min:s or days-h:min:s
JobID|Submit|Start -> 1: has no column End, AllocTRES or ReqTRES; print it by sacct --allusers \
--duplicates --allocations --parsable2 --format=ALL
"""


@pytest.mark.parametrize(("rows", "said"), cases(BAD), ids=range(7))
def test_bad_lines_are_faults_with_their_line(rows: str, said: str, tmp_path: Path) -> None:
    """Cells too many, no id, no submission, no date, no number of GPUs, another cluster."""
    assert faults(tmp_path, rows.replace(";", "\n")) == said


@pytest.mark.parametrize(
    ("text", "seconds"),
    cases("""
30 -> 1800
1:30 -> 90
00:00:00 -> 0
100:00:00 -> 360000
1-0 -> 86400
1-06:30 -> 109800
365-00:00:00 -> 31536000
00:01.123 -> 1
"""),
)
def test_durations_of_slurm(text: str, seconds: str) -> None:
    """As man sbatch has them."""
    assert parse_slurm_duration(text) == float(seconds)


def test_command_reads_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """`sacct ... | allocator import slurm -` with GPUs by type; a wrong --gpus is 2."""
    source, _ = SAMPLES["slurm"](tmp_path)
    out = tmp_path / "out"
    with source.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        code, _, said = call(capsys, f"import slurm - --gpus a100=16,v100=8 --out {out}")
    assert code == 0 and "8 jobs read, 3 dropped: 2 never started" in said and "assumed: " in said
    assert "a100,a100,16,4" in (out / "pools.csv").read_text()
    assert call(capsys, f"import slurm {source} --gpus a100=x --out o")[0] == 2


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("kueue", "ml/a 4 0 300 3900, ml/b 8 0 1800 3600, ml/b-2 8 3600 7200 10800"),
        ("prometheus", "ml/p 2 0 120 300"),
    ],
)
def test_records_of_kubernetes(name: str, jobs: str, tmp_path: Path) -> None:
    """Workloads with a preemption of which an event tells; a pod between samples."""
    files = (
        import_trace(name, SAMPLES[name](tmp_path)[0], TraceOptions())[0]
        .tables["workload.csv"]
        .columns
    )
    names = "job_id", "requested_gpus", "submitted_s", "recorded_start_s", "recorded_end_s"
    assert ", ".join(map(" ".join, zip(*map(files.get, names), strict=True))) == jobs
