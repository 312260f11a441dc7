"""Readers of traces, format by format, on samples that can be checked by hand
(tests/cases/traces.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases.traces import SAMPLES
from commands import Output, call

from allocator.errors import InvalidInput, UsageError
from allocator.io.traces import assemble, gavel, openb, philly, plain, sia
from allocator.io.traces.base import Trace, TraceOptions, TracePool
from allocator.io.traces.curves import draw_curves
from allocator.io.traces.run import import_trace
from allocator.io.traces.selection import ImportSummary, select_jobs
from allocator.io.workloads import read_workload, write_workload


def rows(name: str, folder: Path, **options: object) -> list[dict[str, str]]:
    """workload.csv of a sample, row by row."""
    source, extra = SAMPLES[name](folder)
    given = TraceOptions(extra=extra, **options)  # type: ignore[arg-type]
    cells = import_trace(name, source, given)[0].tables["workload.csv"].columns
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


def test_philly(tmp_path: Path) -> None:
    """Six rows: one repeats another, one has no GPU; the clock starts at the first submission;
    names are lines. 900,000 s become a week unless --max-hours says otherwise.
    """
    trace = philly.read(SAMPLES["philly"](tmp_path)[0], TraceOptions())
    assert trace.jobs.job_id == ("philly-2", "philly-3", "philly-4", "philly-7")
    assert trace.jobs.submitted_s.tolist() == [600, 0, 3600, 7200]
    assert trace.jobs.duration_s.tolist() == [600, 3600, 100.5, 900000]
    assert trace.dropped == {"repeat another row": 1, "have no GPU or no duration": 1}
    assert trace.pools == (TracePool("gpus", "GPU", 1000, 8),)
    assert trace.jobs.tenant == ("vc1", "vc2", "vc1", "vc2")
    for hours, longest in ((None, 604_800), (1.0, 3600), (np.inf, 900_000)):
        chosen, summary = select_jobs(trace, TraceOptions(max_hours=hours), "philly")
        assert chosen.jobs.duration_s.max() == longest
        assert summary.truncated == (longest < 900_000)


def test_window_by_date_and_by_seconds(tmp_path: Path) -> None:
    """From 00:10 for one hour: the jobs of 00:10 and 01:00, on a clock that starts at 00:10."""
    for start in ("2020-03-02 00:10", "2020-03-02T00:10:00", "600"):
        chosen = rows("philly", tmp_path, start=start, hours=1.0)
        assert [(r["job_id"], r["submitted_s"]) for r in chosen] == [
            ("philly-2", "0"),
            ("philly-4", "3000"),
        ]
    assert [r["job_id"] for r in rows("philly", tmp_path, jobs=2)] == ["philly-3", "philly-2"]


def test_sizes(tmp_path: Path) -> None:
    """3 GPUs are no size of the rule, so that job lists its own; ranges are factor x request
    within the caps.
    """
    found = rows("philly", tmp_path, max_factor=4.0, most_gpus=8)
    names = "min_gpus", "requested_gpus", "max_gpus", "sizes"
    assert [" ".join(row[name] for name in names) for row in found] == [
        "1 8 8 ",
        "1 1 4 ",
        "1 3 8 1|2|3|4|8",
        "1 2 8 ",
    ]
    assert {r["sizes"] for r in rows("philly", tmp_path, rigid=True)} == {"1", "2", "3", "8"}
    assert "sizes" not in rows("philly", tmp_path, max_factor=4.0, rule_sizes=True)[0]


def test_what_is_assumed_is_said_everywhere(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the import, in the folder, when it is read and written again, with the results, and in
    their report.
    """
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text("submitted_s,duration_s,gpus\n0,600,2\n5,900,4\n", encoding="utf-8")
    for asked, assumed in (
        ("", "each job runs at the GPUs it asked for, or not at all; every job may be paused"),
        ("--max-factor 2", "each job may run at 1 to 2 times the GPUs it asked for"),
    ):
        assert assumed in call(capsys, f"import csv log.csv {asked} --gpus 8 --out out")[2]
        workload = read_workload("out")
        assert assumed in workload.assumed
        assert read_workload(write_workload("again", workload)).assumed == workload.assumed
    _, table, warnings = call(capsys, "simulate out --policy static --out results")
    document = json.loads(Path("results", "results.json").read_text(encoding="utf-8"))
    page = Path(call(capsys, "report results")[1].strip()).read_text(encoding="utf-8")
    for place in (table, warnings, str(document["warnings"]), page):
        assert assumed in place


def test_columns_of_any_table(tmp_path: Path) -> None:
    """Names by --map, duration from end - start, one condition; jobs of one model share a curve.
    A field, a column or a unit that does not exist: the error lists those that do.
    """
    source, _ = SAMPLES["csv"](tmp_path)

    def read(**extra: tuple[str, ...]) -> Trace:
        return plain.read(source, TraceOptions(extra=extra))

    trace = read(map=("model=network", "job_id=id"), where=("state=COMPLETED",))
    jobs = trace.jobs
    assert jobs.job_id == ("a", "b", "d") and jobs.submitted_s.tolist() == [0, 60, 120]
    assert jobs.duration_s.tolist() == [100, 1000, 10]
    assert jobs.model == ("bert", "resnet", "bert")
    models = draw_curves(jobs.model, TraceOptions())
    assert models[0] == models[2] and models[0].startswith("bert overhead-")
    assert trace.dropped["excluded by --where"] == 1
    assert read(unit=("ms",)).jobs.duration_s.tolist() == pytest.approx([0.1, 1.0, 0.2, 0.01])
    for option, value, says in (
        ("map", "when=submit_time", "FIELD one of submitted_s"),
        ("where", "colour=red", "COLUMN one of id"),
        ("unit", "weeks", "one of ms, s, min, h"),
    ):
        with pytest.raises(UsageError, match=says):
            read(**{option: (value,)})
    with pytest.raises(InvalidInput, match=r'csv:1: has no column "gpu_nm".*mean "gpu_num"'):
        read(map=("gpus=gpu_nm",))


def test_openb(tmp_path: Path) -> None:
    """Pods without GPU or start are dropped, parts become whole GPUs, pools are (type, GPUs per
    node).
    """
    trace = openb.read(SAMPLES["alibaba-openb"](tmp_path)[0], TraceOptions())
    assert trace.pools == (
        TracePool("T4-2", "T4", 4, 2, 0.4),
        TracePool("T4-4", "T4", 4, 4, 0.4),
        TracePool("V100", "V100", 8, 8),
    )
    assert trace.jobs.job_id == ("pod-0", "pod-1", "pod-4")
    assert trace.jobs.duration_s.tolist() == [1000, 500, 200]  # deletion - scheduled
    assert trace.jobs.gpu_types == ("", "T4", "V100|T4")
    assert trace.dropped == {"ask for no GPU": 1, "never ran": 1}
    # the folder stands for its pod list
    assert openb.read(tmp_path, TraceOptions()).jobs.job_id == trace.jobs.job_id


def test_openb_needs_its_nodes(tmp_path: Path) -> None:
    """Without a node list next to the pods the error says which option names it."""
    source, _ = SAMPLES["alibaba-openb"](tmp_path)
    nodes = (tmp_path / "openb_node_list_gpu_node.csv").rename(tmp_path / "elsewhere.csv")
    with pytest.raises(UsageError, match="--nodes FILE"):
        openb.read(source, TraceOptions())
    assert openb.read(source, TraceOptions(extra={"nodes": (str(nodes),)})).gpus == 16


def test_gavel(tmp_path: Path) -> None:
    """Steps per second of jobs alone, zeros and spread types left out; a job of 4 without a
    speed is dropped. A job of 400 s cut to 0.1 h keeps 90 % of its steps.
    """
    trace = gavel.read(SAMPLES["gavel"](tmp_path)[0], TraceOptions(gpus=24))
    assert [(p.gpu_type, p.gpus) for p in trace.pools] == [("k80", 12), ("v100", 12)]
    speeds = trace.speeds
    assert speeds is not None
    known = {*zip(speeds.gpu_type, speeds.gpus.tolist(), speeds.work_per_s.tolist(), strict=True)}
    assert known == {
        ("k80", 1, 2.0),
        ("k80", 2, 4.0),
        ("v100", 1, 6.0),
        ("v100", 2, 8.0),
        ("v100", 1, 1.0),
    }
    assert trace.jobs.work.tolist() == [1200, 6000]
    assert trace.dropped == {"have no measured speed at their size": 1}
    # nothing beyond 2 was measured
    assert [r["max_gpus"] for r in rows("gavel", tmp_path)] == ["2", "2"]
    chosen, _ = select_jobs(replace(trace, max_hours=0.1), TraceOptions(), "gavel")
    assert chosen.jobs.work[0] == pytest.approx(1080)


def test_gavel_in_ten_cells(tmp_path: Path) -> None:
    """The longer layout: work, GPUs, weight and arrival stand elsewhere."""
    source, _ = SAMPLES["gavel"](tmp_path)
    source.write_text("Net (batch size 4)\trun\tdir\t-n\t1\t800\t2\t3\t-1.0\t17\n", "utf-8")
    jobs = gavel.read(source, TraceOptions()).jobs
    assert (jobs.work[0], jobs.gpus[0], jobs.weight[0], jobs.submitted_s[0]) == (800, 2, 3, 17)
    source.write_text("\x85\nNet\trun\t1\n", "utf-8")  # one line, as in an editor
    with pytest.raises(InvalidInput, match=":2: has 3 cells between tabs, not 7 or 10"):
        gavel.read(source, TraceOptions())


def test_sia_workload(tmp_path: Path) -> None:
    """The best batch at each size; work and restart of the application; calibrated speeds unless
    told otherwise.

    100 progress take 100 steps at batch 10 and 40 at batch 40. One GPU, batch 10: 2
    s a step, so 0.5 progress/s; two in one node 1.5 s; eight on nodes of four, batch 40: local 5, 2
    s, so 100 / (40 x 2). 8 GPUs on 2 nodes of 8 are not packed.

    With `tuned` each (application, batch size) is a model of its own, with speeds at that batch
    only.
    """
    source, _ = SAMPLES["sia"](tmp_path)

    def read(**extra: str) -> Any:
        return sia.read(source, TraceOptions(extra={name: (word,) for name, word in extra.items()}))

    sure, rough = (read(calibrate=word).speeds for word in ("yes", "no"))
    useful = sure.work_per_s * sure.efficiency
    assert rough.work_per_s * rough.efficiency == pytest.approx(1.2 * useful)
    by = dict(zip(zip(sure.gpu_type, sure.gpus.tolist(), strict=True), 1.2 * useful, strict=True))
    hand = {("T4", 1): 0.5, ("T4", 2): 1 / 1.5, ("T4", 8): 1.25}
    assert {key: by[key] for key in hand} == pytest.approx(hand) and ("RTX2080Ti", 8) not in by
    jobs = read().jobs
    assert jobs.work.tolist() == [100, 100, 100] and set(jobs.restart_s) == {30.0}
    sizes = [r["requested_gpus"] + r["max_gpus"] for r in rows("sia", tmp_path)]
    assert sizes == ["18", "38", "28"]
    tuned = read(speed="tuned")
    pairs = zip(tuned.speeds.model, tuned.speeds.batch_size.tolist(), strict=True)
    assert {*pairs} == {("tiny-10", 10), ("tiny-40", 40), ("tiny-20", 20)}
    assert set(read(speed="batches").speeds.batch_size.tolist()) == {10, 40}
    assert set(read(speed="samples").speeds.efficiency.tolist()) == {1.0}


def test_cluster_of_another_size_keeps_its_shares() -> None:
    """24 + 24 + 16 GPUs in nodes of 4, 8 and 8, halved: 12 + 8 + 8, and the 4 left over make one
    more node of 4.
    """
    assert [p.gpus for p in assemble.scale_pools(sia.POOLS, 32)] == [16, 8, 8]
    assert sum(p.gpus for p in assemble.scale_pools(sia.POOLS, 128)) == 128
    with pytest.raises(UsageError, match="less than one node"):
        assemble.scale_pools(sia.POOLS, 3)


@pytest.mark.parametrize("load", [0.05, 0.7, 1.0, 2.5])
def test_load_is_met(tmp_path: Path, load: float) -> None:
    """Of 2,000 jobs over a day, thinned or cloned, the GPU-seconds asked for come within 1 % of the
    share wanted; the window does not grow. Thinned jobs are those of the whole trace, with the same
    curve and time; another seed keeps others.
    """
    rng = np.random.default_rng(0)
    jobs = {
        "submitted_s": np.sort(rng.uniform(0, 86400, 2000)),
        "duration_s": rng.lognormal(6, 2, 2000) + 0.1,
        "gpus": 2 ** rng.integers(0, 4, 2000),
    }
    pd.DataFrame(jobs).to_csv(tmp_path / "jobs.csv", index=False)

    def read(**options: Any) -> tuple[set[tuple[str, ...]], ImportSummary]:
        given = TraceOptions(hours=24, gpus=64, max_factor=4.0, **options)
        tables, summary = import_trace("csv", tmp_path / "jobs.csv", given)
        cells = tables.tables["workload.csv"].columns
        names = "job_id", "submitted_s", "total_work"
        return {*zip(*(cells[name] for name in names), strict=True)}, summary

    whole, given = read()
    found, summary = read(load=load)
    assert summary.load == pytest.approx(load, rel=0.01) and len(found) == summary.jobs
    assert all(0 <= float(at_s) < 86400 for _, at_s, _ in found)
    assert (found < whole) == (summary.clones == 0) == (load < given.load)
    assert read(load=load) == (found, summary) and read(load=load, seed=1)[0] != found


def test_jobs_too_large_for_the_cluster_are_dropped(tmp_path: Path) -> None:
    """On 4 GPUs the job of 8 cannot run."""
    source, _ = SAMPLES["philly"](tmp_path)
    summary = import_trace("philly", source, TraceOptions(gpus=4))[1]
    assert (summary.jobs, summary.dropped["ask for more GPUs than any pool for them has"]) == (3, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": 4, "gpus_per_node": 8}, "--gpus 4 is less than --gpus-per-node 8"),
        ({"load": 1.0, "jobs": 1}, "give --hours"),
        ({"load": 1e9}, "too many"),
        ({"start": "1e7"}, r"no job is left of 6: .*outside the window"),
        ({"start": "yesterday"}, "neither seconds nor a date"),
        ({"curves": (0.1,)}, "that takes --max-factor"),
        ({"rule_sizes": True}, "that takes --max-factor"),
    ],
)
def test_options_that_cannot_be_met(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """Less than one node, a load of jobs at one moment or of far too many copies, a window with no
    job, curves nobody asked for: usage errors that say so."""
    with pytest.raises(UsageError, match=words):
        rows("philly", tmp_path, **options)
