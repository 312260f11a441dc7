"""Write the report that fits a folder, by the files in it."""

from pathlib import Path

from allocator.errors import UsageError
from allocator.io.plans import PLAN_JSON
from allocator.report.nodes import write_plan_report
from allocator.report.policies import REPORT, write_policy_report, write_simulation_report
from allocator.report.runs import RESULTS, RESULTS_JSON
from allocator.report.solvers import write_solver_report

RUNS = "runs.csv"


def write_report(
    folder: Path | str, out: Path | str | None = None, snapshot: Path | str | None = None
) -> Path:
    """Write the report of a simulation, a benchmark or a plan; return its path.

    Parameters
    ----------
    folder : of a simulation, of a benchmark of policies or solvers, or of a plan.
    out : the HTML file, NAME.html, or a folder for report.html. The default is the folder.
    snapshot : the snapshot of a plan on nodes, if it is not in the folder of the plan.

    Raises
    ------
    UsageError
        If the folder holds none of these.
    """
    folder = Path(folder)
    page = name_page(folder if out is None else out)
    if not folder.is_dir():
        raise UsageError(f'"{folder}" is neither a folder nor a queue')
    if (folder / PLAN_JSON).is_file():
        return write_plan_report(folder, page, snapshot)
    for name, write in (
        (RESULTS_JSON, write_simulation_report),
        (RESULTS, write_policy_report),
        (RUNS, write_solver_report),
    ):
        if (folder / name).is_file():
            return write(folder, page)
    raise UsageError(
        f'"{folder}" holds no results: neither {RESULTS_JSON} (allocator simulate --out), nor'
        f" {RESULTS} (allocator bench policies --out), nor {RUNS} (allocator bench solvers --out),"
        f" nor {PLAN_JSON} (allocator solve --out)"
    )


def name_page(out: Path | str) -> Path:
    """Return the HTML file of NAME.html, or of a folder."""
    return Path(out) if Path(out).suffix.lower() in (".html", ".htm") else Path(out) / REPORT
