"""What every format of traces must do, whoever wrote it: each registered one goes through the
same checks.
"""

from __future__ import annotations

import gzip
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from cases.traces import SAMPLES
from examples import series
from places import ROOT

from allocator.errors import AllocatorError, InvalidInput
from allocator.io.formats import FORMATS, choose_format
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.run import import_trace
from allocator.io.workloads import read_workload, write_tables
from allocator.performance.table import RateTable

TORN = gzip.compress(b"x,y\n1,2\n" * 99, mtime=0)[:40]
NONSENSE = ["x", "", "-1", "1e999", "nan", "2020-13-45", "1.5", "gres/gpu==", "gres/gpu:=9999999"]
NONSENSE += ["node=0,gres/gpu=1", "2_[1-3]", "7+0", "99999999-0", "Unknown", "9" * 400]
every_format = pytest.mark.parametrize("name", FORMATS)


def sample(name: str, folder: Path) -> tuple[Path, TraceOptions, Trace]:
    source, extra = SAMPLES[name](folder)
    options = TraceOptions(extra=extra)
    return source, options, FORMATS[name].load().read(source, options)


@every_format
def test_auto_recognises_the_format(name: str, tmp_path: Path) -> None:
    """The first format that takes a sample for its own is the right one, and has a section in
    docs/traces.md.
    """
    assert choose_format("auto", SAMPLES[name](tmp_path)[0], FORMATS) == name
    assert f"## {name}" in (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")


@every_format
def test_raw_jobs_are_whole(name: str, tmp_path: Path) -> None:
    """Columns of one length, names distinct, positive sizes and run times; every row kept or
    counted as dropped.
    """
    _, _, trace = sample(name, tmp_path)
    jobs = trace.jobs
    assert {len(getattr(jobs, f.name)) for f in fields(jobs)} == {len(jobs)}
    assert len(set(jobs.job_id)) == len(jobs) > 0 and trace.gpus > 0
    assert (jobs.gpus >= 1).all() and (jobs.duration_s > 0).all()
    assert np.isfinite(jobs.submitted_s).all()
    assert len(jobs) + sum(trace.dropped.values()) == trace.read_rows


@every_format
@pytest.mark.parametrize(("rigid", "factor"), [(False, None), (False, 2.0), (True, None)])
def test_workload_is_valid(name: str, rigid: bool, factor: float | None, tmp_path: Path) -> None:
    """What is written reads back without fault, jobs in order of submission, request within the
    range. The only warning is what is assumed of jobs without speeds.
    """
    source, extra = SAMPLES[name](tmp_path / "in")
    options = TraceOptions(rigid=rigid, max_factor=factor, extra=extra)
    tables, summary = import_trace(name, source, options)
    problem = read_workload(write_tables(tables, tmp_path / "out")).problem
    jobs = problem.jobs
    assumed = tables.config.get("assumed")
    assert problem.warnings == (() if assumed is None else (f"config.toml:1: assumed: {assumed}",))
    assert (assumed is None) == (FORMATS[name].load().read(source, options).speeds is not None)
    assert len(jobs) == summary.jobs > 0
    assert (np.diff(jobs.submitted_s) >= 0).all()
    assert ((jobs.min_gpus <= jobs.requested_gpus) & (jobs.requested_gpus <= jobs.max_gpus)).all()
    if rigid:
        assert (jobs.min_gpus == jobs.max_gpus).all()


@every_format
def test_gzip_and_seed_change_nothing(name: str, tmp_path: Path) -> None:
    """The packed file gives the same tables as the plain one, and the same seed gives them
    again.
    """
    source, extra = SAMPLES[name](tmp_path)
    options = TraceOptions(seed=3, extra=extra)
    plain = import_trace(name, source, options)[0]
    packed = source.with_name(source.name + ".gz")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    assert import_trace(name, packed, options)[0] == plain == import_trace(name, source, options)[0]


@every_format
@pytest.mark.parametrize("factor", [None, 4.0])
def test_traced_run_time_comes_back(name: str, factor: float | None, tmp_path: Path) -> None:
    """Traces without speeds: alone at the size asked for, on its slowest type, a job runs exactly
    as long as traced.

    With measured speeds duration_s is defined from them: their mean over the types, weighted by
    GPUs.
    """
    source, options, trace = sample(name, tmp_path / "in")
    tables, _ = import_trace(
        name, source, TraceOptions(max_hours=np.inf, max_factor=factor, extra=options.extra)
    )
    problem = read_workload(write_tables(tables, tmp_path / "out")).problem
    jobs, pools, rates = problem.jobs, problem.pools, RateTable.of(problem)
    traced = dict(zip(trace.jobs.job_id, trace.jobs.duration_s.tolist(), strict=True))
    for j, job_id in enumerate(jobs.job_id):
        code = jobs.gpu_types[j]
        able = [
            p
            for p in range(len(pools))
            if pools.gpus[p] >= jobs.requested_gpus[j]
            and (code < 0 or problem.type_sets[code][pools.gpu_type[p]])
        ]
        rate = rates.rate(
            np.full(len(able), jobs.model[j]),
            pools.gpu_type[able],
            np.full(len(able), jobs.requested_gpus[j]),
        )[0]
        if trace.speeds is None:
            assert jobs.total_work[j] / np.nanmin(rate) == pytest.approx(traced[job_id], rel=1e-12)
        else:
            there = rate > 0
            mean = np.average(jobs.total_work[j] / rate[there], weights=pools.gpus[able][there])
            assert mean == pytest.approx(traced[job_id], rel=1e-9)


@every_format
@pytest.mark.parametrize("content", [None, b"", b"x,y\n", b"x,y\n1,2\n", TORN, b"\0\1"])
def test_wrong_files_are_faults_that_name_the_file(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    """No such file, empty, header only, other columns, a torn gzip, noise: InvalidInput with the
    path, no crash; asked whether it is this format, a reason each time, also of a folder.
    """
    source, extra = SAMPLES[name](tmp_path)
    source.unlink()
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        import_trace(name, source, TraceOptions(extra=extra))
    assert all(str(source) in fault.file for fault in caught.value.faults)
    recognise = FORMATS[name].load().recognise
    assert recognise(source) and recognise(tmp_path)


@every_format
@pytest.mark.parametrize("nonsense", series(NONSENSE, 1))
def test_every_cell_may_be_wrong(name: str, nonsense: str, tmp_path: Path) -> None:
    """Whatever cell of a sample is replaced by nonsense: read as before or an error of ours,
    with file and line.
    """
    source, extra = SAMPLES[name](tmp_path)
    text = source.read_text(encoding="utf-8")
    sep = next(sign for sign in "\t|," if sign in text)
    lines = text.splitlines()
    for row in range(0 if sep == "\t" else 1, len(lines)):
        for i in range(len(lines[row].split(sep))):
            cells = lines[row].split(sep)
            cells[i] = nonsense
            changed = "\n".join([*lines[:row], sep.join(cells), *lines[row + 1 :]])
            source.write_text(changed, encoding="utf-8")
            try:
                import_trace(name, source, TraceOptions(extra=extra))
            except InvalidInput as error:
                assert {f.line for f in error.faults} == {row + 1}, (str(error), cells)
            except AllocatorError as error:
                assert "\n" not in str(error)
