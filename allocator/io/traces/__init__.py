"""Readers of published job traces: each turns one real format into a workload
(docs/workload-format.md).

The seam (how to add a format): one module with three functions, and one line in `registry.FORMATS`.

    recognise(source: Path) -> str                       "" = mine, else why not; sees the head
                                                         only, never raises
    read(source: Path, options: Options) -> Trace        the raw jobs as columns; what was dropped
                                                         and why is counted
    workload(trace: Trace, options: Options) -> Tables   the files of the workload, after the jobs
                                                         were selected

Between the last two `run.import_trace` cuts the window, truncates, and thins or clones to the load
wanted, alike for every format. Most formats give `assemble.workload` as their third function.
tests/io/test_traces_seam.py runs every registered format through the same checks on a sample of a
few lines.
"""
