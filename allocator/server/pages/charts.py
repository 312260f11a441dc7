"""Charts of the pages: SVG by pygal, drawn here and coloured by the style sheet.

The scripts and styles that pygal puts into a picture are removed: the security policy of the
service allows none inside a page, and the style sheet knows the colours of light and dark screens.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from allocator.queue.costs import DailyCost
from allocator.server.views.cluster import UseOverTime
from allocator.server.views.rounds import Round

WIDTH = 560
HEIGHT = 250
FONT = 14  # of labels, in units of the picture; the style sheet has the same size
_FOREIGN = re.compile(
    r"<(script|style)\b.*?</\1>|<!--.*?-->|<defs></defs>|<title>.*?</title>"
    r'|<desc class="(?:x|y|x_label)[ \w]*">.*?</desc>',
    re.S,
)
_VALUE = re.compile(r'<desc class="value">(.*?)</desc>')
_NAMESPACES = re.compile(r'\s(?:xmlns(?::\w+)?|id|style)="[^"]*"')


def draw_spending(
    days: Sequence[str], daily: Sequence[DailyCost], budget_per_hour: float | None
) -> Markup:
    """Draw dollars by day, stacked by tenant, with a line at the budget of a day."""
    spent = {(cost.day, cost.tenant): cost.dollars for cost in daily}
    tenants = sorted({cost.tenant for cost in daily})
    if not tenants:
        return Markup('<p class="empty">No GPU was used on these days.</p>')
    tops = [sum(spent.get((day, t), 0.0) for t in tenants) for day in days]
    budget = None if budget_per_hour is None else 24 * budget_per_hour
    chart = _make("StackedBar", x_labels=[day[5:] for day in days], x_labels_major_count=5)
    _label_scale(chart, max([*tops, 1.0]), budget, "${}")
    for tenant in tenants:
        chart.add(tenant, [round(spent.get((day, tenant), 0.0), 2) for day in days])
    words = f"US dollars by day and tenant; today {tops[-1]:,.2f}"
    return _render(
        chart, words + ("" if budget is None else f"; budget {budget:,.0f} a day for all GPUs")
    )


def draw_use(use: UseOverTime) -> Markup:
    """Draw GPUs in use over time, stacked by pool, with a line at all GPUs."""
    if not use.by_pool:
        return Markup('<p class="empty">There are no GPUs.</p>')
    labels = [datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in use.at_s]
    chart = _make("StackedLine", x_labels=labels, x_labels_major_every=12, fill=True)
    _label_scale(chart, max(use.gpus, 1), use.gpus or None, "{} GPUs")
    for pool, gpus in use.by_pool.items():
        chart.add(pool, list(gpus))
    used = sum(gpus[-1] for gpus in use.by_pool.values())
    return _render(chart, f"GPUs in use over the last 24 hours; now {used} of {use.gpus}")


def draw_rounds(rows: Sequence[Round]) -> Markup:
    """Draw the changes of the latest rounds, the oldest first."""
    ordered = list(rows)[::-1]
    chart = _make("Bar", x_labels=[str(row.number) for row in ordered])
    chart.x_labels_major_count = 5
    _label_scale(chart, max([row.changes for row in ordered] or [1]), None, "{}")
    chart.add("jobs started or stopped", [row.changes for row in ordered])
    return _render(chart, "Jobs started or stopped by round")


def _import_pygal() -> Any:
    """Import pygal without the finder of map plugins that it adds to the import system.

    The finder has the interface of Python 3.3, and Python warns of it at every later import that
    finds nothing before it.
    """
    import pygal

    sys.meta_path[:] = [one for one in sys.meta_path if hasattr(one, "find_spec")]
    return pygal


def _make(kind: str, **options: Any) -> Any:
    pygal = _import_pygal()
    from pygal.style import Style

    return getattr(pygal, kind)(
        width=WIDTH,
        height=HEIGHT,
        js=[],
        css=[],
        no_prefix=True,
        disable_xml_declaration=True,
        pretty_print=False,
        show_legend=False,
        show_dots=False,
        show_minor_x_labels=False,
        truncate_label=-1,
        margin=4,
        margin_right=22,
        spacing=6,
        style=Style(label_font_size=FONT, major_label_font_size=FONT),
        **options,
    )


def _label_scale(chart: Any, top: float, limit: float | None, unit: str) -> None:
    """Set the labels of the vertical axis; the line of a limit is a major one."""
    step = _round_up(max(top, limit or 0.0) / 4)
    labels: list[Any] = [{"value": step * k, "label": f"{step * k:,g}"} for k in range(5)]
    if limit is not None:
        others = [one for one in labels if abs(one["value"] - limit) > 0.4 * step]
        labels = [*others, {"value": limit, "label": unit.format(f"{limit:,.0f}")}]
        chart.y_labels_major = [limit]
    chart.y_labels = labels
    chart.range = (0, max(one["value"] for one in labels))


def _round_up(value: float) -> float:
    """Return the next number that is 1, 2, 2.5 or 5 times a power of ten."""
    size = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 1.0
    return next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= value - 1e-9)


def _render(chart: Any, label: str) -> Markup:
    text: str = chart.render(is_unicode=True)
    text = _NAMESPACES.sub("", _VALUE.sub(r"<title>\1</title>", _FOREIGN.sub("", text)))
    head, _, rest = text[text.index("<svg") :].partition(">")
    head = re.sub(r'\s(?:class|width|height)="[^"]*"', "", head)
    kind = "chart limited" if getattr(chart, "y_labels_major", None) else "chart"
    named = f'{head} class="{kind}" role="img" aria-label="{escape(label)}">'
    return Markup(named + rest)


def list_keys(names: Sequence[str]) -> Mapping[str, str]:
    """Return the class of the style sheet of each series, for a legend in HTML."""
    return {name: f"key-{k % 8}" for k, name in enumerate(names)}
