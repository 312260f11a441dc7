"""One HTML file that needs nothing else: style and pictures inside, no script, no address of any
other place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:#222;
background:#fff;
 margin:0 auto;padding:1.2rem 1.6rem 4rem;max-width:1400px}
figure{max-width:1180px}
h1{font-size:1.6rem;margin:.2rem 0}
h2{font-size:1.25rem;margin:2.4rem 0 .3rem;border-top:2px solid #ddd;padding-top:.9rem}
h3{font-size:1.02rem;margin:1.8rem 0 .1rem}p{margin:.4rem 0;max-width:72em}
.lead{font-size:1.15rem}.about{color:#666}
.note{background:#fdf0e6;border-left:4px solid #d55e00;padding:.4rem .8rem}
.caption{color:#555;font-size:.92rem}
figure{margin:.3rem 0 1rem}figure svg{width:100%;height:auto;display:block}
svg *{stroke-linejoin:round;stroke-linecap:butt}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.8rem;margin:.6rem 0}
th,td{padding:.25rem .35rem;text-align:right;vertical-align:top;white-space:nowrap}
td{font-variant-numeric:tabular-nums}
thead th{border-bottom:2px solid #888;white-space:normal;min-width:3.4em;font-size:.94em;
vertical-align:bottom}
tbody th{text-align:left}tr.first td,tr.first th{border-top:1px solid #bbb}
small{display:block;font-weight:400;color:#666;font-size:.8em}.policy small{display:inline}
.text{text-align:left;white-space:normal;min-width:16em}
.policy i{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.4em}
.best{font-weight:700}.better{background:#dcebf6}.worse{background:#fbe3cf}
nav a{margin-right:1em}a{color:#0072b2}code{background:#f3f3f3;padding:0 .2em}
"""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline';
  img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">
<style>{style}</style></head>
<body>
{body}
</body></html>
"""


@dataclass(frozen=True)
class Picture:
    """A drawn picture: file name without ending, what it says, and its bytes."""

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes


def page(title: str, parts: Sequence[str]) -> str:
    """The whole file; parts: HTML from top to bottom."""
    return PAGE.format(title=escape(title), style=STYLE, body="\n".join(p for p in parts if p))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], text: Collection[int] = ()) -> str:
    """A table; head and cells are HTML, the first of a row is its heading. text: columns that
    hold sentences.
    """
    kinds = [" class=text" if i in text else "" for i in range(1, len(head))]
    lines = (
        "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row[1:], strict=True)).join(
            (f"<tr><th>{row[0]}</th>", "</tr>")
        )
        for row in rows
    )
    body = "\n".join(lines)
    names = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(["", *kinds], head, strict=True))
    return (
        f"<div class=wide><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def picture_html(picture: Picture) -> str:
    """A picture with heading and caption."""
    return (
        f"<h3>{escape(picture.title)}</h3>\n<p class=caption>{picture.caption}</p>\n"
        "<figure"
        f' id="{escape(picture.name)}">'
        f"{inline(picture.svg.decode(), picture.name, picture.title)}</figure>"
    )


def inline(svg: str, prefix: str, label: str) -> str:
    """An SVG file of matplotlib as an element of HTML, a third as long: no declarations, no
    metadata, no names that could clash, no style said twice, coordinates to the hundredth of a
    point."""
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
    """Marks of one style: it is said once."""
    styles = set(re.findall(r' style="[^"]*"', found[2]))
    if len(styles) != 1 or "style=" in found[1]:
        return found[0]
    style = styles.pop()
    return f"<g{found[1]}{style}>{found[2].replace(style, '')}</g>"


def _round_numbers(found: re.Match[str]) -> str:
    # of glyphs drawn as paths: small numbers that matter
    if "scale" in found[2]:
        return found[0]
    numbers = re.sub(
        r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), found[2]
    )
    return f'{found[1]}{" ".join(numbers.split())}"'
