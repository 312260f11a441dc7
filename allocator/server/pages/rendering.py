"""Templates and words of the pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from allocator.controller.reporting.status import describe_state, format_month
from allocator.domain.schema.workload_columns import FILTERS
from allocator.domain.times import format_time
from allocator.engine.expected_words import describe_next, format_duration
from allocator.objects import Record
from allocator.report.chart import to_html
from allocator.report.measures import number
from allocator.report.page import load_templates as read_templates
from allocator.report.theme import read_theme
from allocator.report.visible import show_hidden
from allocator.server.access import Reader
from allocator.server.caller import Caller
from allocator.server.routes import F, Routes

if TYPE_CHECKING:
    from jinja2 import Environment

PAGES = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/nodes", "Nodes"),
    ("/reservations", "Reservations"),
    ("/tenants", "Tenants"),
    ("/rounds", "Rounds"),
    ("/what-if", "What if"),
)
DASH = "–"


class Pages(Routes):
    """Routes of pages."""

    def page(self, path: str, template: str, role: Any = Reader) -> Callable[[F], F]:
        """Decorate what returns the values that a template shows."""

        def show(request: Request, caller: Caller, values: Record) -> HTMLResponse:
            return render_page(request, caller, template, **values)

        return self.reads(path, role, show, response_model=None)


def render_page(
    request: Request, caller: Caller | None, template: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """Fill a template of this package; values are escaped unless they are Markup."""
    text = fill(template, caller, values, request)
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def fill(
    template: str, caller: Caller | None, values: Record, request: Request | None = None
) -> str:
    """Return a page as a caller sees it."""
    pages = PAGES if caller is not None else ()
    if caller is not None and caller.can_write:
        pages = (*pages, ("/submit", "Submit"))
    frame = {
        "caller": caller,
        "csrf": caller.session.csrf if caller is not None and caller.session is not None else "",
        "pages": pages,
        "path": request.url.path if request else "",
        "params": request.query_params if request else {},
        "stamp": stamp_static(),
        "cluster": request.app.state.service.queue.name if request and caller else "",
    }
    return show_hidden(_templates().get_template(template).render({**values, **frame}))


@cache
def read_static(name: str) -> bytes:
    """Return a file of the folder `static`, or the style sheet of all pages and reports."""
    if name == "allocator.css":
        return read_theme("page.css").encode()
    return files("allocator.server.pages").joinpath("static", name).read_bytes()


@cache
def stamp_static() -> str:
    """Return a short text that changes with the style sheet and the script."""
    from hashlib import sha256

    content = b"".join(read_static(name) for name in ("allocator.css", "allocator.js"))
    return sha256(content).hexdigest()[:12]


def load_templates() -> None:
    """Compile all templates."""
    templates = _templates()
    for name in templates.list_templates():
        templates.get_template(name)


@cache
def _templates() -> Environment:
    templates = read_templates("allocator.server.pages")
    templates.globals["filters"] = FILTERS
    templates.filters |= {
        "when": mark_time,
        "month": format_month,
        "since": format_since,
        "duration": format_seconds,
        "money": format_money,
        "number": format_number,
        "signed": format_signed,
        "exact": write_exactly,
        "zip": zip,
        "chart": to_html,
        "expected": lambda row, now_s: describe_next(vars(row), now_s),
        "node_state": describe_state,
        "places": lambda values: " ".join(f"{place}={x}" for place, x in values.items()),
        "twice": lambda value: (value, value),
        "link": lambda name: quote(str(name), safe=""),
        "query": lambda values: urlencode({k: v for k, v in values.items() if v not in ("", None)}),
    }
    return templates


def mark_time(at_s: float | None) -> Markup:
    """Return a time as an element of HTML; UTC, to the minute."""
    if at_s is None:
        return Markup(DASH)
    text = format_time(at_s)
    return Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text[:16])


def write_exactly(value: object) -> Markup:
    """Return a value that a form sends back: `show_hidden` leaves its characters as they are."""
    return Markup(escape(value).encode("ascii", "xmlcharrefreplace").decode())


def format_since(at_s: float | None, now_s: float) -> str:
    """Return how long ago something was, or how far it is ahead."""
    if at_s is None:
        return DASH
    seconds = now_s - at_s
    return f"{format_seconds(seconds)} ago" if seconds >= 0 else f"in {format_seconds(-seconds)}"


def format_seconds(seconds: float | None) -> str:
    """Return a length of time in words: 12 s, 35 min, 3.5 h, 2.1 days."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    return f"{max(0.0, seconds):.0f} s" if seconds < 90 else format_duration(seconds)


def format_money(dollars: float | None) -> str:
    """Return US dollars; cents are left out of large amounts."""
    if dollars is None or not math.isfinite(dollars):
        return DASH
    return f"${dollars:,.2f}" if abs(dollars) < 10_000 else f"${dollars:,.0f}"


def format_number(value: float | None, digits: int = 3) -> str:
    """Return a number with some significant digits."""
    return DASH if value is None else number(value, digits)


def format_signed(value: float, unit: str = "") -> str:
    """Return a change with its sign: +3, −2.5 h."""
    size = f"{abs(value):,.2f}"
    sign = "" if size == "0.00" else "+" if value > 0 else "−"
    if unit == "$":
        return f"{sign}${size}"
    return f"{sign}{size.rstrip('0').rstrip('.')}{unit and ' '}{unit}"
