"""Charts as SVG: in a page or report, whose colours and width they take, or as files of their own.

A chart is plain data: panels of marks over two axes. Marks are stretched to the space that there is
and text is not, so it can be read on a telephone. A mark says what it is to the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from allocator.report.measures import UNITS
from allocator.report.theme import read_theme

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float, str]
WIDE = 1000  # units of a plot in both directions, before it is stretched
HEIGHT, HEAD, FOOT, LEFT, RIGHT = 230, 26, 42, 60, 14  # pixels of a panel, and around its plot
FILE_WIDTH = 980  # of a picture that is a file
MOST_TICKS = 6
FAR = 2.5  # a limit that is so many times what was reached is said in words
TIMES = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
COLOURS = tuple(f"var(--c{k})" for k in range(8))
INK, FAINT, LIMIT, GOOD, BAD = (f"var(--{k})" for k in ("ink", "quiet", "bad", "gain", "loss"))


@dataclass(frozen=True)
class Axis:
    """An axis; what is not given follows the data.

    Attributes
    ----------
    words : what it shows, with its unit.
    kind : "plain" and "whole" begin at 0, "near" does not; "time" are seconds since a beginning,
    "clock" unix seconds; "log" is logarithmic.
    ticks : labels by value.
    label : what a value reads like.
    """

    words: str = ""
    kind: str = "plain"
    low: float = math.nan
    high: float = math.nan
    ticks: Mapping[float, str] | None = None
    label: Callable[[float], str] | None = None

    def fit(self, values: Floats) -> Axis:
        """Return the axis with the ends and ticks that these values give it."""
        known = values[np.isfinite(values)]
        known = known[known > 0] if self.kind == "log" else known
        low, high = (float(known.min()), float(known.max())) if len(known) else (1.0, 1.0)
        if self.kind not in ("log", "near", "clock"):
            low = min(low, 0.0)
        low = self.low if math.isfinite(self.low) else low
        high = self.high if math.isfinite(self.high) else high
        if high <= low:
            high = 10 * low if self.kind == "log" else low + 1.0
        ticks = self.ticks
        if ticks is None:
            label = self.label or self._label(low, high)
            ticks = {at: label(at) for at in self._places(low, high)}
        return replace(self, low=low, high=high, ticks=ticks)

    def list_ticks(self) -> Iterator[tuple[float, str]]:
        """Return place and label of each tick of a fitted axis."""
        ticks = self.ticks or {}
        return zip(self.place(list(ticks)).tolist(), ticks.values(), strict=True)

    def place(self, values: Any) -> Floats:
        """Return places from 0 to 1 on a fitted axis; what has no logarithm is at the low end."""
        at = np.asarray(values, dtype=np.float64)
        if self.kind != "log":
            return (at - self.low) / (self.high - self.low)
        low, high = math.log(self.low), math.log(self.high)
        return (np.log(np.maximum(at, self.low)) - low) / (high - low)

    def _places(self, low: float, high: float) -> list[float]:
        """Return round values from low to high, few enough to be read."""
        if self.kind == "log":
            tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            steps = (1, 2, 5) if len(tens) < 4 else (1,)
            every = 1 if len(tens) < 4 else -(-len(tens) // MOST_TICKS)
            values = [step * 10.0**k for k in tens if k % every == 0 for step in steps]
            return [at for at in values if low / 1.001 <= at <= high * 1.001]
        step = self._step(low, high)
        first = math.ceil(low / step - 1e-6)
        return [step * k for k in range(first, math.floor(high / step + 1e-6) + 1)]

    def _step(self, low: float, high: float) -> float:
        least = (high - low) / MOST_TICKS
        if self.kind in ("time", "clock"):
            return float(next((s for s in TIMES if s >= least), TIMES[-1]))
        ten = 10.0 ** math.floor(math.log10(least))
        step = next(s * ten for s in (1, 2, 5, 10) if s * ten >= least * 0.999)
        return max(1.0, step) if self.kind == "whole" and high >= 1 else step

    def _label(self, low: float, high: float) -> Callable[[float], str]:
        if self.kind == "log":
            return lambda at: f"{at:,g}"
        step = self._step(low, high)
        if self.kind == "clock":
            form = "%m-%d" if step >= 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S"
            return lambda at: datetime.fromtimestamp(at, UTC).strftime(form)
        if self.kind == "time":
            unit, size = next(u for u in UNITS.items() if u[1] <= max(step, min(2 * step, 3600), 1))
            return lambda at: f"{at / size:g} {unit}"
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return lambda at: f"{at:,.{digits}f}"


@dataclass(frozen=True)
class Mark:
    """What a panel shows of one name.

    Attributes
    ----------
    kind : "line", "area" (from `low` to y), "dots", "boxes" (from x to `end`, from `low` to y),
    "text" (`tips` beside the places) or "label" (`tips` on boxes).
    x, y : of each point.
    name : in the legend; "" stands for none.
    tips : what the pointer is told of each dot or box.
    links : where a click on each dot or box leads.
    is_faint, is_dashed : how it is drawn.
    """

    kind: str
    x: Any
    y: Any
    name: str = ""
    colour: str = COLOURS[0]
    low: Any = None
    end: Any = None
    tips: Sequence[str] = ()
    links: Sequence[str] = ()
    is_faint: bool = False
    is_dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One picture of a chart; `limits` are lines across it, with their words."""

    title: str
    marks: Sequence[Mark]
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    limits: Sequence[tuple[float, str]] = ()
    height: int = HEIGHT
    left: int = LEFT


@dataclass(frozen=True)
class Chart:
    """Panels with one legend; `words` say what it shows to those who do not see it."""

    words: str
    panels: Sequence[Panel]
    across: int = 1

    @property
    def names(self) -> dict[str, str]:
        """Colours of the legend by name."""
        marks = [mark for panel in self.panels for mark in panel.marks]
        return {mark.name: mark.colour for mark in marks if mark.name}


def boxes(shapes: Sequence[Box], colour: str, name: str = "") -> Mark:
    """Return the mark of boxes: left, lower, right and upper end, and what the pointer is told."""
    left, low, right, high, tips = zip(*shapes, strict=True)
    return Mark("boxes", left, high, name, colour, low, right, tips)


def steps(edges: Any, values: Any) -> tuple[Floats, Floats]:
    """Return the line of values (B,) that hold between edges (B + 1,)."""
    return np.repeat(edges, 2)[1:-1], np.repeat(np.asarray(values, dtype=np.float64), 2)


def stack(edges: Any, values: Mapping[str, Any], colours: Mapping[str, str]) -> Iterator[Mark]:
    """Yield areas, one upon the other, of values (B,) by name that hold between edges (B + 1,)."""
    floor = 0.0 * np.asarray(edges)[1:]
    for name, heights in values.items():
        x, low = steps(edges, floor)
        floor = floor + heights
        yield Mark("area", x, steps(edges, floor)[1], name, colours[name], low)


def hold(at: Any, values: Any) -> tuple[Floats, Floats]:
    """Return the line of values that each hold until the next."""
    return np.repeat(at, 2)[1:], np.repeat(np.asarray(values, dtype=np.float64), 2)[:-1]


def to_html(chart: Chart) -> Markup:
    """Return a chart for a page that has the style sheet."""
    legend = "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10"'
        f' fill="{colour}"/></svg>{escape(name)}</li>'
        for name, colour in chart.names.items()
    )
    panels = "".join(
        _panel(p, chart.words, f'width="100%" height="{p.height}"') for p in chart.panels
    )
    return Markup(
        f'<div class="chart" role="group" aria-label="{escape(chart.words)}">'
        f'<ul class="legend">{legend}</ul>'
        f'<div class="panels of-{chart.across}">{panels}</div></div>'
    )


def to_svg(chart: Chart) -> bytes:
    """Return a chart as a file, in light and dark."""
    width = (FILE_WIDTH - 20) // chart.across
    parts, x, y = [], 10.0, 22.0
    for name, colour in chart.names.items():
        length = 40 + 7 * len(name)
        if x + length > FILE_WIDTH and x > 10:
            x, y = 10.0, y + 20
        key = f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour}"/>'
        parts.append(f'{key}<text x="{x + 18}" y="{y}">{escape(name)}</text>')
        x += length
    y += 14
    for i in range(0, len(chart.panels), chart.across):
        row = chart.panels[i : i + chart.across]
        for k, panel in enumerate(row):
            inner = width - panel.left - RIGHT
            size = f'width="{inner}" height="{panel.height}"'
            place = f'x="{10 + k * width + panel.left}" y="{y}" {size}'
            parts.append(_panel(panel, chart.words, place))
        y += max(panel.height for panel in row)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="file" viewBox="0 0 {FILE_WIDTH} {y:g}"'
        f' width="{FILE_WIDTH}" height="{y:g}" role="img" aria-label="{escape(chart.words)}">'
        f'<style>{read_theme("chart.css")}</style><rect class="paper" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    ).encode()


def _panel(panel: Panel, shows: str, place: str) -> str:
    """Return a panel, whose plot is as large as its place says; without a title it `shows` that."""
    marks = [mark for mark in panel.marks if len(mark.x)]
    xs = [mark.x for mark in marks] + [m.end for m in marks if m.end is not None]
    ys = [mark.y for mark in marks] + [m.low for m in marks if m.low is not None]
    top = max((float(np.nanmax(y)) for y in ys if np.isfinite(y).any()), default=0.0)
    near = [limit for limit in panel.limits if limit[0] <= FAR * top or top <= 0]
    x = panel.x.fit(_join(xs))
    y = panel.y.fit(_join([*ys, [at for at, _ in near]]))
    if not panel.y.ticks and y.kind != "log":
        y = replace(y, high=y.high + 0.04 * (y.high - y.low))
    title = panel.title + "".join(
        f" ({words} {panel.y.label(at) if panel.y.label else format(at, ',.4g')}, far above)"
        for at, words in panel.limits
        if (at, words) not in near
    )
    above = HEAD if title else 6
    high = panel.height - above - (FOOT if panel.x.words else FOOT - 18)
    role = "group" if any(mark.links for mark in marks) else "img"
    out = [
        f'<svg class="panel from-{panel.left}" {place} role="{role}"'
        f' aria-label="{escape(title or shows)}">'
        f'<text class="head" x="{-panel.left}" y="15">{escape(title)}</text>'
        f'<svg class="plot" y="{above}" width="100%" height="{high}">',
    ]
    for at, words in y.list_ticks():
        level = f"{100 * (1 - at):.2f}%"
        if panel.left == LEFT:
            out.append(f'<line class="guide" x2="100%" y1="{level}" y2="{level}"/>')
        out.append(f'<text class="y" x="-7" y="{level}" dy="4">{escape(words)}</text>')
    for at, words in x.list_ticks():
        end = " last" if at > 0.96 else ""
        out.append(
            f'<text class="x{end}" x="{100 * at:.2f}%" y="{high + 16}">{escape(words)}</text>'
        )
    if panel.x.words:
        out.append(f'<text class="x" x="50%" y="{high + 34}">{escape(panel.x.words)}</text>')
    stretched = f'viewBox="0 0 {WIDE} {WIDE}" preserveAspectRatio="none" width="100%" height="100%"'
    flat = [_draw(mark, x, y) for mark in marks if mark.kind in ("line", "area", "boxes")]
    dots = [_draw(mark, x, y) for mark in marks if mark.kind == "dots"]
    out += [f"<svg {stretched}>", *flat, f'</svg><svg {stretched} class="dots">', *dots, "</svg>"]
    for at, words in near:
        level = f"{100 * (1 - float(y.place(at))):.2f}%"
        out.append(
            f'<line class="limit" x2="100%" y1="{level}" y2="{level}"/>'
            f'<text class="limit" x="100%" y="{level}" dy="-4">{escape(words)}</text>'
        )
    out += [_write(mark, x, y) for mark in marks if mark.kind in ("text", "label")]
    if not marks:
        out.append('<text class="x" x="50%" y="50%">nothing to show</text>')
    return "".join([*out, "</svg></svg>"])


def _write(mark: Mark, x: Axis, y: Axis) -> str:
    """Return words at places; those on boxes are cut off where their boxes end."""
    across, down = 100 * x.place(mark.x), 100 * (1 - y.place(mark.y))
    places = zip(across.tolist(), down.tolist(), mark.tips, strict=True)
    if mark.kind == "text":
        return "".join(
            f'<text class="text{" end" * (a > 60)}" x="{a:.2f}%" y="{b:.2f}%"'
            f' dx="{-7 if a > 60 else 7}" dy="4">{escape(words)}</text>'
            for a, b, words in places
        )
    wide = (100 * x.place(mark.end) - across).tolist()
    return "".join(
        f'<svg class="label" x="{a:.2f}%" y="{b:.2f}%" width="{w:.2f}%" height="16">'
        f'<text x="3" y="12">{escape(words)}</text></svg>'
        for (a, b, words), w in zip(places, wide, strict=True)
    )


def _join(parts: Sequence[Any]) -> Floats:
    return np.concatenate([np.zeros(0), *(np.asarray(p, dtype=np.float64) for p in parts)])


def _draw(mark: Mark, x: Axis, y: Axis) -> str:
    """Return a mark in units of the plot."""
    across, up = _units(x.place(mark.x)), _units(1.0 - y.place(mark.y))
    kind = mark.kind + " faint" * mark.is_faint + " dashed" * mark.is_dashed
    how = f'class="{kind}" color="{mark.colour}"'
    if mark.kind == "line":
        return f'<path {how} d="{_line(across, up)}"/>'
    below = np.full(len(up), WIDE) if mark.low is None else _units(1.0 - y.place(mark.low))
    if mark.kind == "area":
        ring = np.concatenate([across, across[::-1]]), np.concatenate([up, below[::-1]])
        return f'<path {how} d="{_line(*ring)}Z"/>'
    if mark.kind == "boxes":
        corners = zip(across, up, _units(x.place(mark.end)), below, strict=True)
        paths = [f"M{a:g} {b:g}H{c:g}V{d:g}H{a:g}Z" for a, b, c, d in corners]
    else:
        points = zip(across, up, strict=True)
        paths = [f"M{a:g} {b:g}h.01" if math.isfinite(a + b) else "" for a, b in points]
    if not mark.tips:
        return f'<path {how} d="{"".join(paths)}"/>'
    links = mark.links or [""] * len(paths)
    shapes = []
    for path, tip, link in zip(paths, mark.tips, links, strict=True):
        shape = f'<path d="{path}"><title>{escape(tip)}</title></path>' if path else ""
        if path and link:
            shape = f'<a href="{escape(link)}" aria-label="{escape(tip)}">{shape}</a>'
        shapes.append(shape)
    return f"<g {how}>{''.join(shapes)}</g>"


def _units(places: Floats) -> Floats:
    return np.round(WIDE * places, 1)


def _line(across: Floats, up: Floats) -> str:
    """Return the path through points; it is broken where there is none."""
    parts, sign = [], "M"
    for a, b in zip(across.tolist(), up.tolist(), strict=True):
        is_known = math.isfinite(a + b)
        parts.append(f"{sign}{a:g} {b:g}" if is_known else "")
        sign = "L" if is_known else "M"
    return "".join(parts)
