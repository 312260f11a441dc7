"""Readers of published job traces; each turns one format into a workload (docs/traces.md).

To add a format, write a module with two functions, and add one line to `FORMATS` of io/formats.py:

    recognise(source: Path) -> str
        Return "" if the source has this format, and the reason if not. It reads only the beginning
        of the file, and never raises.

    read(source: Path, options: TraceOptions) -> Trace
        Return the jobs of the trace as columns. Rows that are dropped are counted by reason.

Then `run.import_trace` cuts the window, truncates long jobs, thins or clones the jobs to the load
that was asked for, and makes the files of the workload, for every format alike.
tests/io/test_traces_seam.py runs every registered format through the same checks on a sample of a
few lines.
"""
