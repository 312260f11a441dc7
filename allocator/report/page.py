"""Write one HTML file that needs nothing else.

Style and pictures are inside. There is no script and no reference to another address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from allocator.io.plans import write_files
from allocator.report.chart import Chart, to_html, to_svg
from allocator.report.theme import read_theme
from allocator.report.visible import show_hidden

if TYPE_CHECKING:
    from jinja2 import Environment

LEAD = Markup('<p class="lead">{}</p>')
NOTE = Markup('<p class="alert">{}</p>')
TEXT = Markup("<p>{}</p>")
QUIET = Markup('<p class="quiet">{}</p>')
HEADING = Markup("<h2>{}</h2>")


@dataclass(frozen=True)
class Picture:
    """A chart of a page: name of its file without ending, and what it shows."""

    name: str
    title: str
    caption: str
    chart: Chart

    @property
    def html(self) -> Markup:
        """The chart as an element of HTML."""
        return to_html(self.chart)


@dataclass(frozen=True)
class Table:
    """A table; the first column has headings, `text` are numbers of columns with sentences."""

    caption: str
    head: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    text: Sequence[int] = ()


def write_page(
    out: Path, title: str, parts: Sequence[Picture | Table | Markup], about: str = ""
) -> Path:
    """Write a page, and its pictures to the folder `pictures` next to it; return its path.

    Each file is written whole or not at all.
    """
    files = {f"{part.name}.svg": to_svg(part.chart) for part in parts if isinstance(part, Picture)}
    if files:
        write_files(out.parent / "pictures", files)
    template = load_templates().get_template("page.html")
    page = template.render(title=title, about=about, parts=parts, style=read_theme("page.css"))
    write_files(out.parent, {out.name: show_hidden(page)})
    return out


@cache
def load_templates(package: str = "allocator.report") -> Environment:
    """Return the templates of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
