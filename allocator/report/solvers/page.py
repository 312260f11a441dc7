"""The page of a solver benchmark: the tables of solver_table.py and the pictures of
solver_pictures.py in one file.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from allocator.io.plans import write_files
from allocator.report.charts.style import available, bytes_of, report_style
from allocator.report.page import Picture, page, picture_html, table
from allocator.report.solvers.pictures import figures
from allocator.report.solvers.results import read_results
from allocator.report.solvers.table import markdown

CAPTION = {
    "curves": "One line per seed; lower and further left is better; a line ends with its run.",
    "sizes": "Median of the seeds, bars to the best and the worst.",
}


def write_solver_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Report of what `allocator bench solvers --out` left; as policies.write_policy_report."""
    results = read_results(folder)
    out = Path(out) if out else Path(folder) / "report.html"
    drawn = []
    if available():
        with report_style():
            drawn = [
                Picture(
                    name,
                    title,
                    CAPTION[name.partition("-")[0]],
                    bytes_of(figure, "svg"),
                    bytes_of(figure, "png"),
                )
                for name, title, figure in figures(results)
            ]
        write_files(
            out.parent / "pictures",
            {
                f"{p.name}.{kind}": content
                for p in drawn
                for kind, content in (("svg", p.svg), ("png", p.png))
            },
        )
    parts = [
        "<h1>Solver benchmark</h1>",
        *map(picture_html, drawn),
        "<h2>Tables</h2>",
        as_html(markdown(results)),
        (
            "<p class=caption>Median / worst over the seeds; CPU seconds until the gap in the head"
            " was proven.</p>"
        ),
    ]
    write_files(out.parent, {out.name: page("Solver benchmark", parts)})
    return out


def as_html(text: str) -> str:
    """The Markdown of solver_table.markdown as HTML: paragraphs, bold, lists and tables, nothing
    more.
    """
    return "\n".join(_block(block) for block in text.strip().split("\n\n"))


def _block(block: str) -> str:
    lines = block.splitlines()
    if lines[0].startswith("| "):
        head, *body = (
            [_words(c) for c in line.strip("| ").split(" | ")]
            for line in lines
            if "|---" not in line
        )
        return table(head, body)
    if lines[0].startswith("- "):
        return f"<ul>{''.join(f'<li>{_words(line[2:])}</li>' for line in lines)}</ul>"
    return f"<p>{_words(' '.join(lines))}</p>"


def _words(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
