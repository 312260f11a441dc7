"""Which report a folder wants, told by the files in it."""

from __future__ import annotations

from pathlib import Path

from allocator.errors import UsageError
from allocator.report.policies import write_policy_report, write_simulation_report
from allocator.report.runs import RESULTS, RESULTS_JSON
from allocator.report.solver_page import write_solver_report

RUNS = "runs.csv"


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a simulation, a policy benchmark or a solver benchmark; returns the path of the page.

    out: the HTML file (default: report.html in the folder). Raises UsageError if the folder is none of these.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f'"{folder}" is not a folder')
    for name, write in ((RESULTS_JSON, write_simulation_report), (RESULTS, write_policy_report),
                        (RUNS, write_solver_report)):
        if (folder / name).is_file():
            return write(folder, out)
    raise UsageError(f'"{folder}" holds no results: neither {RESULTS_JSON} (allocator simulate --out), nor {RESULTS} '
                     f"(allocator bench policies --out), nor {RUNS} (allocator bench solvers --out)")
