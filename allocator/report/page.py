"""Write one HTML file that needs nothing else.

Style and pictures are inside. There is no script and no reference to another address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.io.plans import write_files
from allocator.report.charts.style import available, bytes_of, colour, report_style
from allocator.report.visible import show_hidden

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """A picture: file name without ending, its description, and its bytes."""

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes

    def svg_element(self) -> str:
        """Return the picture as an element of HTML."""
        return inline(self.svg.decode(), self.name, self.title)


def draw(figures: Iterator[tuple[str, str, str, Any]]) -> list[Picture]:
    """Draw figures with their name, title and caption; none without matplotlib."""
    if not available():
        return []
    with report_style():
        return [
            Picture(name, title, caption, bytes_of(figure, "svg"), bytes_of(figure, "png"))
            for name, title, caption, figure in figures
        ]


def render(template: str, **values: Any) -> Markup:
    """Fill a file of the folder `templates` with values, which are escaped unless they are Markup.

    Returns
    -------
    markupsafe.Markup
        HTML, which other templates take as it is.
    """
    from markupsafe import Markup

    return Markup(_templates().get_template(template).render(values, has_matplotlib=available()))


def write_page(out: Path, template: str, pictures: Sequence[Picture] = (), **values: Any) -> Path:
    """Write a page, and its pictures to the folder `pictures` next to it; return its path.

    Each file is written whole or not at all.
    """
    files = {
        f"{picture.name}.{kind}": content
        for picture in pictures
        for kind, content in (("svg", picture.svg), ("png", picture.png))
    }
    if files:
        write_files(out.parent / "pictures", files)
    page = show_hidden(render(template, pictures=pictures, **values))
    write_files(out.parent, {out.name: page})
    return out


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("allocator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["colour"] = colour
    return templates


def inline(svg: str, prefix: str, label: str) -> str:
    """Return an SVG file of matplotlib as an element of HTML, a third as long.

    It has no declarations, no metadata, no names that could clash, no repeated styles, and
    coordinates to the hundredth of a point.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'<style type="text/css">\*\{[^}]*\}</style>', "", svg)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.S)
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    names = {name: f"{re.sub(r'[^0-9A-Za-z_-]', '-', prefix)}-{i}" for i, name in enumerate(used)}
    svg = re.sub(r'\s+id="([^"]*)"', lambda m: f' id="{names[m[1]]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#([^")]+)', lambda m: f"{m[1]}#{names[m[2]]}", svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r"<g([^>]*)>((?:<use [^>]*/>){3,})</g>", _marks, svg)
    svg = re.sub(
        r'(\s(?:d|x|y|width|height|transform|points|viewBox)=")([^"]*)"', _round_numbers, svg
    )
    head, _, rest = svg.partition(">")
    head = re.sub(r'\s+(width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(label)}">{rest.strip()}'


def _marks(found: re.Match[str]) -> str:
    """Return marks of one style, with the style written once."""
    styles = set(re.findall(r' style="[^"]*"', found[2]))
    if len(styles) != 1 or "style=" in found[1]:
        return found[0]
    style = styles.pop()
    return f"<g{found[1]}{style}>{found[2].replace(style, '')}</g>"


def _round_numbers(found: re.Match[str]) -> str:
    # of glyphs drawn as paths, which need small numbers
    if "scale" in found[2]:
        return found[0]
    numbers = re.sub(
        r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), found[2]
    )
    return f'{found[1]}{" ".join(numbers.split())}"'
