"""Names with marks of direction: they are seen, and they turn nothing around them."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from commands import Output, call
from queues import cluster
from servers import add_tokens, decide_rounds, serving

from allocator.queue.queue import Queue
from allocator.report.visible import show_hidden
from allocator.server.pages.written import write_queue_report

JOB = "run\u202efdp.exe"  # read from right to left it ends in "exe.pdf"
TENANT = "vis\u2066ion"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with one job and one round."""
    path = tmp_path_factory.mktemp("marks") / "queue.db"
    with Queue.create(path, cluster(**{"tenants.csv": f"tenant\n{TENANT}\n"})) as queue:
        queue.submit(job_id=JOB, tenant=TENANT, model="m", total_work=1e6, max_gpus=1)
    decide_rounds(path, 1)
    return path


def test_pages_of_the_service(path: Path) -> None:
    """Every page shows the marks as text. A form sends them back as they are, so that a filter by
    tenant still finds its job. The style sheet isolates every element."""
    with Queue(path) as queue:
        tokens = add_tokens(queue)
    with serving(path, tokens) as server, server.client("operator") as client:
        for page in ("/", "/jobs", f"/jobs/{JOB}", "/rounds/1", "/nodes", "/tenants"):
            text = client.get(page).text
            assert "\u202e" not in text and "\u2066" not in text, page
            assert r"run\u202efdp.exe" in text or page == "/tenants", page
        text = client.get("/jobs").text
        value = text.split('<option value="vis')[1].split('"')[0]
        assert html.unescape(f"vis{value}") == TENANT
        assert r"run\u202efdp.exe" in client.get("/jobs", params={"tenant": TENANT}).text
        assert "* { box-sizing: border-box; unicode-bidi: isolate; }" in (
            client.get("/static/allocator.css").text
        )


@pytest.mark.nightly
def test_page_of_a_report(path: Path, tmp_path: Path) -> None:
    """The same in the report of the queue, whose pictures hold names, too."""
    text = write_queue_report(str(path), tmp_path / "page.html").read_text()
    assert "\u202e" not in text and "\u2066" not in text
    assert r"run\u202efdp.exe" in text and r"vis\u2066ion" in text
    assert "unicode-bidi: isolate" in text


def test_other_characters_stay() -> None:
    """Letters of any script, line breaks and tabs are not touched; an escape character is shown."""
    assert show_hidden("Zürich שלום\n\t–\x1b[31m") == "Zürich שלום\n\t–\\u001b[31m"


def test_lines_of_a_terminal(path: Path, capsys: Output) -> None:
    """`allocator status` names the tenant in the line of its cost."""
    code, out, _ = call(capsys, f"status {path}")
    assert code == 0 and r"vis\u2066ion: " in out and "\u2066" not in out
