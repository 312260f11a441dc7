"""Check the readers of traces on the published files, and print figures of each as Markdown.

    python scripts/reproductions/check_real_traces.py FOLDER

FOLDER has the files of docs/traces.md in any subfolders. Each file that `allocator import auto`
recognises is imported into a temporary folder, read back and checked. There must be no fault or
warning, every row must be kept or counted as dropped, and run times at the requested size must be
those of the trace. The exit code is 1 if any file fails or none was found.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from allocator.domain.workload import Workload
from allocator.errors import AllocatorError
from allocator.io.traces import registry
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.run import import_trace, recognise_format, write_tables
from allocator.io.workloads import read_workload
from allocator.performance.table import RateTable

NAMES = ("*.csv", "*.csv.gz", "*.trace", "*.trace.gz")
# parts of a format, not traces on their own
OTHERS = ("placements", "scalability", "validation", "node_list")


def main() -> int:
    """Print a row per trace; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=3, help="files per format (default 3)")
    args = parser.parse_args()
    print(
        "| file | format | rows | dropped | cut | jobs | hours | GPUs | GPU-hours | load | GPUs"
        " asked: mean, max | run time s: p50, p90, p99 | CPU s | check |\n" + "|---" * 14 + "|"
    )
    seen: dict[str, int] = {}
    bad = 0
    for path in sorted({p for pattern in NAMES for p in args.folder.rglob(pattern)}):
        if any(word in path.name for word in OTHERS):
            continue
        try:
            name = recognise_format(path)
        except AllocatorError:
            continue
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= args.limit:
            bad += row(path, args.folder, name)
    missing = [name for name in registry.FORMATS if name not in seen]
    print(f"\nformats without a file here: {', '.join(missing) or 'none'}")
    return 1 if bad or not seen else 0


def row(path: Path, root: Path, name: str) -> bool:
    """Print the figures of one file; return True if it fails."""
    began = time.process_time()
    try:
        tables, summary = import_trace(name, path, TraceOptions(max_hours=np.inf))
        with tempfile.TemporaryDirectory() as folder:
            write_tables(tables, folder)
            seconds = time.process_time() - began
            workload = read_workload(folder)
    except AllocatorError as error:
        first = str(error).splitlines()[0]
        print(f"| {path.relative_to(root)} | {name} |" + " |" * 11 + f" {first} |")
        return True
    trace = registry.load(name).read(path, TraceOptions(max_hours=np.inf))
    wrong = faults(trace, workload, summary.jobs)
    kept = set(workload.problem.jobs.job_id)
    run = trace.jobs.duration_s[[i for i, job in enumerate(trace.jobs.job_id) if job in kept]]
    asked = workload.problem.jobs.requested_gpus
    cut = int((run > trace.max_hours * 3600).sum())
    print(
        f"| {path.relative_to(root)} | {name} | {summary.read_rows} |"
        f" {sum(summary.dropped.values())} | {cut} | {summary.jobs} | {summary.span_s / 3600:.1f} |"
        f" {summary.gpus} | {summary.gpu_hours:.0f} | {summary.load:.3f} | {asked.mean():.2f},"
        f" {asked.max()} | {', '.join(f'{q:.0f}' for q in np.percentile(run, (50, 90, 99)))} |"
        f" {seconds:.1f} | {'; '.join(wrong) or 'ok'} |"
    )
    return bool(wrong)


def faults(trace: Trace, workload: Workload, jobs: int) -> list[str]:
    """Return what is wrong with an imported workload."""
    problem = workload.problem
    found = list(problem.warnings[:2])
    if (
        len(problem.jobs) != jobs
        or len(trace.jobs) + sum(trace.dropped.values()) != trace.read_rows
    ):
        found.append("rows are lost")
    traced = dict(zip(trace.jobs.job_id, trace.jobs.duration_s.tolist(), strict=True))
    rates, own = RateTable.of(problem), problem.jobs
    slowest = np.full(len(own), np.inf)
    sets = np.vstack([*problem.type_sets, np.ones(len(problem.gpu_types), dtype=bool)])
    for p in range(len(problem.pools)):
        t = problem.pools.gpu_type[p]
        rate = rates.rate(own.model, np.full(len(own), t), own.requested_gpus)[0]
        able = (
            sets[own.gpu_types][:, t] & (own.requested_gpus <= problem.pools.gpus[p]) & (rate > 0)
        )
        slowest[able] = np.minimum(slowest[able], rate[able])
    if not np.isfinite(slowest).all():
        found.append("a job has no speed at the size it asks for")
    if trace.speeds is None:
        wanted = np.array([traced[job] for job in own.job_id])
        off = np.abs(own.total_work / slowest - wanted) / wanted
        if off.max() > 1e-12:
            found.append(f"a run time is off by {off.max():.1e}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
