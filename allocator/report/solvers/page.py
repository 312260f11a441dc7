"""The page of a solver benchmark: the tables of table.py and the pictures of pictures.py."""

from __future__ import annotations

from pathlib import Path

from allocator.report.page import draw, write_page
from allocator.report.solvers.pictures import figures
from allocator.report.solvers.results import read_results
from allocator.report.solvers.table import HEAD, NO_LIES, describe_lies, tables

CAPTION = {
    "curves": "One line per seed; lower and further left is better; a line ends with its run.",
    "sizes": "Median of the seeds, bars to the best and the worst.",
}


def write_solver_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a folder of `allocator bench solvers --out`; return its path.

    The parameters are those of policies.write_policy_report.
    """
    results = read_results(folder)
    pictures = draw(
        (name, title, CAPTION[name.partition("-")[0]], figure)
        for name, title, figure in figures(results)
    )
    return write_page(
        Path(out) if out else Path(folder) / "report.html",
        "solvers.html",
        pictures,
        title="Solver benchmark",
        machine=results.machine,
        head=HEAD,
        tables=tables(results),
        lies=describe_lies(results),
        no_lies=NO_LIES,
    )
