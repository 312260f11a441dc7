"""The report of a queue: its pages in one file, which needs neither the service nor a network."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from markupsafe import Markup
from sqlalchemy import Connection

from allocator.controller.reporting.status import describe_controller
from allocator.domain.times import format_time
from allocator.errors import UsageError
from allocator.queue import lease
from allocator.queue.database.schema import jobs, rounds
from allocator.queue.queue import Queue
from allocator.report.folders import name_page
from allocator.report.page import write_page
from allocator.server.caller import Caller
from allocator.server.pages import reading
from allocator.server.pages.rendering import fill
from allocator.server.views.jobs import MOST_ROWS, JobsPage
from allocator.server.views.rounds import list_rounds
from allocator.server.views.sight import Sight

LAST = 1000  # rounds
READER = Caller("viewer", name="report")
FORM = re.compile(r"<(form|nav)\b.*?</\1>", re.S)
LINK = re.compile(r"<a\b[^>]*>(.*?)</a>", re.S)  # the pages that they lead to are not there
NAME = re.compile(r'\s(id|aria-labelledby)="([^"]*)"')


def write_queue_report(name: str, out: Path | str | None = None, last: int = LAST) -> Path:
    """Write the report of a queue (path or URL) on its last rounds; return the path of the page.

    Parameters
    ----------
    name : path or URL of the queue.
    out : the HTML file, NAME.html, or a folder for report.html. The default is the folder
    QUEUE.report next to an SQLite queue.
    last : how many rounds to show.

    Raises
    ------
    UsageError
        If a queue on a server has no `out`; also the errors of Queue.
    """
    if out is None and "://" in name:
        raise UsageError("a queue on a database server needs --out OUT for the page")
    with Queue(name) as queue, queue.store.read() as connection:
        sight = Sight(connection, _find_end(connection, queue.clock()), READER, last)
        pages = _read_pages(sight)
        title = f"Queue {queue.store.name if '://' in name else Path(name).name}"
    about = f"state of {format_time(sight.now_s)} UTC"
    parts = [_detach(fill(page, READER, values), page) for page, values in pages.items()]
    return write_page(name_page(f"{name}.report" if out is None else out), title, parts, about)


def _find_end(connection: Connection, now_s: float) -> float:
    """Return the present if a controller leads, else when something was last written."""
    if describe_controller(lease.read_current(connection), now_s)["state"] == "in charge":
        return now_s
    ends = (sa.func.max(rounds.c.at_s), sa.func.max(jobs.c.updated_s))
    written = [connection.execute(sa.select(end)).scalar() for end in ends]
    return float(max((at for at in written if at is not None), default=now_s))


def _read_pages(sight: Sight) -> dict[str, dict[str, Any]]:
    """Return the values of each page by its template."""
    shown = list_rounds(sight).rows
    length_s = max(sight.now_s - shown[-1].at_s if shown else 0.0, 60.0)
    jobs = replace(sight, size=MOST_ROWS)
    return {
        "overview.html": reading.show_overview(sight, length_s / 3600),
        "rounds.html": reading.show_rounds(sight),
        "tenants.html": reading.show_tenants(sight),
        "jobs.html": reading.show_jobs(jobs, JobsPage(state="all", order="newest")),
    }


def _detach(page: str, name: str) -> Markup:
    """Return a page without forms and links, under a heading of its own."""
    main = page.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    text = LINK.sub(r"\1", FORM.sub("", main)).replace("<h2", "<h3").replace("</h2>", "</h3>")
    text = text.replace("<h1", "<h2").replace("</h1>", "</h2>")
    return Markup(NAME.sub(rf' \1="{name.partition(".")[0]}-\2"', text))
