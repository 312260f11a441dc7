"""Write the report that fits a source: by the files in a folder, or of a queue."""

from __future__ import annotations

from pathlib import Path

from allocator.errors import UsageError
from allocator.io.plans import PLAN_JSON
from allocator.report.journal_page import LAST, write_queue_report
from allocator.report.nodes.plan_page import write_plan_report
from allocator.report.policies import REPORT, write_policy_report, write_simulation_report
from allocator.report.runs import RESULTS, RESULTS_JSON
from allocator.report.solvers.page import write_solver_report

RUNS = "runs.csv"


def write_report(
    source: Path | str,
    out: Path | str | None = None,
    last: int | None = None,
    snapshot: Path | str | None = None,
) -> Path:
    """Write the report of a simulation, a benchmark, a plan or a queue; return its path.

    Parameters
    ----------
    source : the folder of a simulation or of a benchmark of policies or solvers, or the path or URL
    of a queue.
    out : the HTML file, NAME.html, or a folder for report.html. The default is the folder of the
    source, or QUEUE.report.
    last : how many rounds of a queue to show.
    snapshot : the snapshot of a plan on nodes, if it is not in the folder of the plan.

    Raises
    ------
    UsageError
        If the source is none of these.
    """
    folder = Path(source)
    if out is not None and Path(out).suffix.lower() not in (".html", ".htm"):
        out = Path(out) / REPORT
    if "://" in str(source) or folder.is_file():
        return write_queue_report(str(source), out, LAST if last is None else last)
    if not folder.is_dir():
        raise UsageError(f'"{folder}" is neither a folder nor a queue')
    if last is not None:
        raise UsageError(f'"{folder}" is a folder; only queues have a last round')
    if (folder / PLAN_JSON).is_file():
        return write_plan_report(folder, out, snapshot)
    for name, write in (
        (RESULTS_JSON, write_simulation_report),
        (RESULTS, write_policy_report),
        (RUNS, write_solver_report),
    ):
        if (folder / name).is_file():
            return write(folder, out)
    raise UsageError(
        f'"{folder}" holds no results: neither {RESULTS_JSON} (allocator simulate --out), nor'
        f" {RESULTS} (allocator bench policies --out), nor {RUNS} (allocator bench solvers --out),"
        f" nor {PLAN_JSON} (allocator solve --out)"
    )
