"""Style sheets and templates that pages and reports share, and the looks of policies."""

import zlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

COLOURS = {
    "mip": "#2f7fc4",
    "greedy": "#c98500",
    "greedy-naive": "#8c8c8c",
    "marginal": "#3aa0d8",
    "static": "#6b7480",
    "sia": "#0a9a70",
    "maxmin": "#c0659b",
    "las": "#d55e00",
    "srtf": "#b0447a",
    "equal": "#8a8a2c",
    "ffdl": "#2f9a8c",
    "afs": "#7a6fd6",
}
SPARE = ("#aa4499", "#2f8f4e", "#6699cc", "#a5543a", "#a8902a", "#b1702f")
ORDER = tuple(COLOURS)
JOBS = (
    *("#88ccee", "#e58f9b", "#ddcc77", "#7fc49b", "#a99ee0", "#d79bcf", "#7fd0c2", "#c2c27a"),
    *("#9fc1e6", "#f3ab92", "#cfdc7a", "#ffc4d0", "#f0c27d", "#bfe9ff"),
)
"""Colours of jobs, on which their names can be read."""


def colour(policy: str) -> str:
    """Return the colour of a policy, the same in every picture of every report."""
    return COLOURS.get(policy) or SPARE[zlib.crc32(policy.encode()) % len(SPARE)]


def order_policies(policies: Iterable[str], baseline: str = "") -> list[str]:
    """Return each policy once, in the usual order and then by name, the baseline last."""
    return sorted(
        set(policies),
        key=lambda p: (p == baseline, ORDER.index(p) if p in ORDER else len(ORDER), p),
    )


@cache
def read_theme(name: str) -> str:
    """Return a style sheet: chart.css, or page.css with it before."""
    folder = files("allocator.report").joinpath("theme")
    text = folder.joinpath(name).read_text(encoding="utf-8")
    return text if name == "chart.css" else f"{read_theme('chart.css')}{text}"
