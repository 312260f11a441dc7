"""The style of pictures: a fixed colour, line and mark per policy, and the layout.

Colours are those of Okabe and Ito (2008) and of Tol's "muted" scheme, which people who cannot see
red or green can tell apart. Marks and dashes repeat the distinction. A policy without its own
colour gets one of SPARE.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

from allocator.errors import UsageError, install_command

P = ParamSpec("P")


class Look(NamedTuple):
    """What tells the lines of a policy from others."""

    colour: str
    mark: str = "o"
    dashes: str = "-"


LOOKS = {
    "mip": Look("#0072b2", "o"),
    "greedy": Look("#e69f00", "s", "--"),
    "greedy-naive": Look("#8c8c8c", "X", ":"),
    "marginal": Look("#56b4e9", "v", "--"),
    "static": Look("#000000", "P", ":"),
    "sia": Look("#009e73", "^"),
    "maxmin": Look("#cc79a7", "D", "--"),
    "las": Look("#d55e00", "<"),
    "srtf": Look("#882255", ">", "--"),
    "equal": Look("#999933", "h", "-."),
    "ffdl": Look("#44aa99", "p", "-."),
    "afs": Look("#332288", "*"),
}
SPARE = ("#aa4499", "#117733", "#6699cc", "#661100", "#ddcc77", "#b15928")
ORDER = tuple(LOOKS)
CLASSES = ("#fde0a8", "#f6b26b", "#d9774a", "#a8456a", "#6a2d7c", "#2c1a4d")
"""Colours of size classes, from small and light to large and dark."""
JOBS = (
    "#88ccee",
    "#e58f9b",
    "#ddcc77",
    "#7fc49b",
    "#a99ee0",
    "#d79bcf",
    "#7fd0c2",
    "#c2c27a",
    "#cf8fb0",
    "#9fc1e6",
    "#f3ab92",
    "#cfdc7a",
    "#b7cdf0",
    "#ffc4d0",
    "#d2d26a",
    "#bfe9ff",
    "#8fb8b8",
    "#c7a3a3",
    "#c9c9c9",
    "#f0c27d",
)
"""Colours of jobs if there are few; they are light, so that names on them can be read."""
GOOD, BAD, INK, FAINT = "#e8f1f8", "#fdf0e6", "#222222", "#8a8a8a"
LIMIT = "#b3261e"  # of a line that may not be crossed, such as a budget
TIMES = ((4 * 86_400.0, 86_400.0, "days"), (7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))
SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "allocator",
    "text.parse_math": False,
    "path.simplify": True,
    "figure.facecolor": "white",
}


def look(policy: str) -> Look:
    """Return the look of the policy, the same in every picture of every report."""
    return LOOKS.get(policy) or Look(SPARE[zlib.crc32(policy.encode()) % len(SPARE)])


def colour(policy: str) -> str:
    """Return the colour of the policy."""
    return look(policy).colour


def line(policy: str) -> dict[str, Any]:
    """Return the keywords of a line of this policy."""
    how = {"color": colour(policy), "linestyle": look(policy).dashes}
    return {**how, "linewidth": 1.7, "label": policy}


def text_colour_on(ground: str) -> str:
    """Return the colour of text on this background, #rrggbb."""
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "#ffffff"


def order_policies(policies: Iterable[str], baseline: str = "") -> list[str]:
    """Return each policy once, in the usual order and then by name, the baseline last."""
    return sorted(
        set(policies),
        key=lambda p: (p == baseline, ORDER.index(p) if p in ORDER else len(ORDER), p),
    )


def available() -> bool:
    """Return whether matplotlib is installed."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


@contextmanager
def report_style() -> Iterator[None]:
    """Draw the figures inside the block in this style. Raises UsageError without matplotlib."""
    if not available():
        raise UsageError(f"pictures need matplotlib: {install_command('matplotlib')}")
    import matplotlib as mpl

    settings: Any = SETTINGS
    with mpl.rc_context(settings):
        yield


def figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches, without a window or a global list."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def bytes_of(drawn: Any, kind: str) -> bytes:
    """Return a figure as a file, "svg" or "png"; the same figure gives the same bytes."""
    out = io.BytesIO()
    drawn.savefig(
        out, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else {"Software": None}
    )
    # one layout is enough, and takes longer than drawing
    drawn.set_layout_engine("none")
    return out.getvalue()


def as_svg(draw: Callable[P, Any]) -> Callable[P, bytes]:
    """Make a function that draws a figure return it as SVG; UsageError without matplotlib."""

    @wraps(draw)
    def call(*args: P.args, **named: P.kwargs) -> bytes:
        with report_style():
            return bytes_of(draw(*args, **named), "svg")

    return call


def add_rectangles(
    panel: Any,
    boxes: Iterable[tuple[float, float, float, float]],
    fill: str,
    edge: str,
    **how: Any,
) -> None:
    """Draw rectangles (x0, y0, x1, y1) of one colour as one path, so that files stay small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = [point for a, b, c, d in boxes for point in ((a, b), (c, b), (c, d), (a, d), (a, b))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    path = Path(points, codes * (len(points) // len(codes)))
    panel.add_patch(PathPatch(path, facecolor=fill, edgecolor=edge, **how))


def write_at(
    panel: Any, words: str, point: tuple[float, float], aside: tuple[float, float], **how: Any
) -> None:
    """Write small words so many points aside of a point."""
    panel.annotate(words, point, xytext=aside, textcoords="offset points", **{"fontsize": 8} | how)


def legend(drawn: Any, axes: Sequence[Any], **more: Any) -> None:
    """Draw one legend above all panels, with every label once."""
    seen: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            seen.setdefault(label, handle)
    if seen:
        drawn.legend(
            list(seen.values()),
            list(seen),
            loc="outside upper left",
            ncols=min(7, len(seen)),
            fontsize=9,
            handlelength=2.4,
            **more,
        )


def time_axis(length_s: float) -> tuple[float, str]:
    """Return (seconds, name) of the unit for an axis of so many seconds."""
    return next(((size, name) for least, size, name in TIMES if length_s > least), (1.0, "seconds"))


def whole_ticks(panel: Any) -> None:
    """Set the ticks of the vertical axis to whole numbers, if it is long enough for that."""
    from matplotlib.ticker import MaxNLocator

    if panel.get_ylim()[1] > 3:
        panel.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 4, 5, 10], integer=True))


def show_nothing(axes: Any, words: str) -> None:
    """Write on a panel that it has nothing to show."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=FAINT)
    axes.set_xticks([])
    axes.set_yticks([])


def plain_ticks(*axes: Any) -> None:
    """Write the ticks of logarithmic axes as a few plain numbers.

    Powers would need math text, which is turned off here.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda x, _place: f"{x:g}"))
        axis.set_minor_formatter(NullFormatter())
        low, high = axis.get_view_interval()
        if high < 30 * low:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
