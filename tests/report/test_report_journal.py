"""The report of a queue: what it says is what the journal, the allocations and the jobs say."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Output, call
from examples import series as first_of
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import BACKENDS, NOW, cluster, empty
from test_report import Page, check_alone

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.errors import InvalidInput, NoPlanInTime, UsageError
from allocator.queue import cluster_tables
from allocator.queue.database.schema import rounds
from allocator.queue.jobs.states import Retries
from allocator.queue.queue import Queue
from allocator.report.charts import style
from allocator.report.charts.cluster import collect, use
from allocator.report.charts.rounds import rounds as draw_rounds
from allocator.report.charts.series import series
from allocator.report.folders import write_report
from allocator.report.journal import Journal, measure_carried_out, read_journal, study_of
from allocator.report.journal_page import (
    jobs_table,
    rounds_table,
    tenants_table,
)
from allocator.report.measures import duration, number

pytestmark = pytest.mark.usefixtures("no_png")
RATES = {("A", 1): 1.0, ("A", 2): 1.9, ("A", 4): 3.5, ("B", 1): 0.5}


def lived(name: str) -> float:
    """A queue that lived for ten minutes: "one" is done, "<two>" was stuck until it was parked,
    "three" runs, "four" is to come, the second round failed. Returns its now."""
    clock, failing = SimulatedClock(NOW), iter((False, True))

    def decide(problem: Any, **effort: Any) -> Decision:
        if next(failing, False):
            raise NoPlanInTime("nothing\nfound <in> time")
        return decide_round(problem, **effort)

    with Queue.create(name, cluster(), clock=clock.now) as queue:
        machines = SimulatedMachines(
            {"a": 8, "b": 4},
            clock,
            MachineBehaviour(
                rate=lambda o: RATES[o.gpu_type, o.gpus] * (o.job_id != "<two>"),
                stop_s=lambda o: 10.0,
            ),
        )
        controller = Controller(
            queue.store,
            SimulatedExecutor(machines),
            clock,
            ControllerOptions(
                every_s=60.0,
                poll_s=10.0,
                policy="greedy",
                stall_s=60.0,
                retries=Retries(most=2, first_s=10.0),
            ),
            decide=decide,
        )
        for job, work, after in (
            ("one", 100.0, 0),
            ("<two>", 1e6, 0),
            ("three", 1e6, 0),
            ("four", 1.0, 1e5),
        ):
            queue.submit(
                job_id=job, model="m", total_work=work, max_gpus=1, submitted_s=NOW + after
            )
        while clock.now() < NOW + 600:
            controller.step()
            clock.sleep(10.0)
    return clock.now()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue that lived."""
    path = tmp_path_factory.mktemp("journal") / "queue.db"
    assert lived(str(path)) == NOW + 600
    return path


@pytest.fixture
def queue(place: Path, tmp_path: Path) -> Iterator[Queue]:
    """A copy of it."""
    shutil.copy(place, tmp_path / "queue.db")
    with Queue(tmp_path / "queue.db", clock=lambda: NOW + 600) as opened:
        yield opened


@pytest.fixture
def journal(queue: Queue) -> Journal:
    """Its journal."""
    return read_journal(queue, 1000)


def plain(html: str) -> list[list[str]]:
    """The cells of a table."""
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.S)
    ]


def test_table_of_rounds(journal: Journal) -> None:
    """Newest first. Round 1 starts three jobs, which run at once; round 3 is there when the stuck
    job is stopped, in 20 s, and started again by a look, which the next one sees; the failed one
    says why, on one line, without HTML."""
    head, *rows = plain(rounds_table(journal))
    by = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(by) == [str(n) for n in range(10, 0, -1)]
    assert (by["1"]["changes"], by["1"]["starts, s"], by["1"]["stops, s"]) == ("3", "0", "–")
    assert (by["3"]["changes"], by["3"]["starts, s"], by["3"]["stops, s"]) == ("1", "10", "20")
    assert by["2"]["outcome"] == "failed" and by["2"]["value"] == "–"
    assert by["2"]["why"] == "NoPlanInTime: nothing found &lt;in&gt; time"


def test_table_of_jobs(journal: Journal) -> None:
    """The parked job first, with its reason: it ran for 0 to 140 s and 160 to 320 s, so 300 s, and
    was without GPUs in between; then the one that runs (600 s), then the one that is done."""
    head, *rows = plain(jobs_table(journal))
    parked, running, done = (dict(zip(head, row, strict=True)) for row in rows)
    assert (parked["job"], parked["state"], parked["failed"]) == ("&lt;two&gt;", "failed", "2")
    assert (parked["waited"], parked["paused"], parked["ran"]) == ("0 s", "20 s", duration(300.0))
    assert "no progress for" in parked["why"] and parked["GPU-hours"] == number(300 / 3600)
    assert (running["job"], running["GPUs"], running["ran"]) == ("three", "1 a", duration(600.0))
    assert (done["job"], done["done"], done["ran"]) == ("one", "100 %", duration(100.0))


def test_retry_is_said(journal: Journal) -> None:
    """A job in its pause after a failure says when it is tried again."""
    job = next(j for j in journal.jobs if j.job_id == "<two>")
    waits = replace(
        job, state="paused", failures=1, retry_at_s=journal.now_s + 60, park_reason="exit code 3"
    )
    why = plain(jobs_table(replace(journal, jobs=[waits])))[1][-1]
    assert why == "tried again at 2023-11-14 22:24:20 after 1 failures in a row; exit code 3"


def test_use_of_gpus(journal: Journal) -> None:
    """GPU-seconds under the line: "one" 100, "<two>" 140 and 170, "three" 600, from the order on;
    waiting: nobody for more than the look in which they came; dollars: all on the pool that costs
    2.5 $/h, or with 2 GB of each GPU at half a dollar an hour 3.5 $/h."""
    study = study_of(journal)
    found = series(study, study.runs[0], 600.0, 60)
    assert (found.held["a"] * 10).sum() == pytest.approx(1010.0) and found.held["b"].sum() == 0
    assert set(found.capacity["a"]) == {8.0} and found.waiting.sum() == 0
    assert (found.paused * 10).sum() == pytest.approx(10.0)  # between the two tries
    assert found.paid.sum() == pytest.approx(2.5 * found.held["a"].sum())
    held = [replace(one, memory_gb=2.0) for one in journal.held]
    sizes = [replace(one, price_per_gb_hour=0.5) for one in journal.sizes]
    study = study_of(replace(journal, held=held, sizes=sizes))
    dear = series(study, study.runs[0], 600.0, 60)
    assert dear.paid.sum() == pytest.approx(3.5 * found.held["a"].sum())


def test_dollars_by_job_and_tenant(queue: Queue) -> None:
    """GPU-seconds of test_use_of_gpus at 2.5 $/h; a budget is a line in the chart of dollars, and
    stands below the table of tenants."""
    with queue.store.write() as connection:
        cluster_tables.set_config(connection, {"budget_per_hour": 6.0})
    journal = read_journal(queue, 1000)
    head, *rows = plain(jobs_table(journal))
    dollars = {row[0]: row[head.index("dollars")] for row in rows}
    assert dollars == {"&lt;two&gt;": "0.22", "three": "0.42", "one": "0.07"}
    table = tenants_table(journal)
    assert plain(table)[1] == ["default", number(1010 / 3600), "0.70", "0.70"]
    assert "0.70 of the budget of 144.00 a day for all GPUs" in table
    assert "No GPU was used" in tenants_table(replace(journal, daily=()))
    found = {"": collect(study_of(journal), "journal", "", 600.0)}
    with style.report_style():
        _, paid = use(study_of(journal), found, journal.budget_per_hour).axes
    lines = {line.get_label(): set(line.get_ydata()) for line in paid.lines}
    assert lines["budget"] == {6.0}


def test_last_rounds_only(queue: Queue) -> None:
    """Of the last five rounds: what was over before them is not there, what they began with is
    cut off at the left.
    """
    late = read_journal(queue, 5)
    assert (late.origin, late.begin_s) == ("round 6", NOW + 300)
    carried_out = measure_carried_out(late)
    assert len(carried_out) == 5 and carried_out[0].stop_s == 20.0
    assert {h.job_id for h in late.held} == {"<two>", "three"} == {j.job_id for j in late.jobs}
    study = study_of(late)
    assert study.frame(study.runs[0], "spans")["from_s"].min() == late.begin_s


@pytest.mark.parametrize("backend", first_of(BACKENDS, 1))
def test_page(backend: str, tmp_path: Path, capsys: Output) -> None:
    """The command writes one file that asks for nothing, next to an SQLite queue; one on a server
    needs --out.
    """
    with empty(backend, tmp_path) as name:
        lived(name)
        out, more = tmp_path / "queue.db.report" / "report.html", ""
        if backend == "postgresql":
            code, _, err = call(capsys, "report", name)
            assert code == 2 and "--out" in err
            out = tmp_path / "elsewhere.html"
            more = f"--out {out}"
        assert call(capsys, f"report {name} {more}")[:2] == (0, f"{out}\n")
    page = Page(out)
    check_alone(page)
    assert page.figures == ["rounds", "queue", "holders", "use"]
    for words in ("Parked, until somebody retries them: <two>.", "nothing found <in> time"):
        assert words in page.text
    assert (out.parent / "pictures" / "rounds.svg").stat().st_size > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("out", first_of(["week-47.d", "PAGE.HTM"], 1))
def test_place_of_the_page(place: Path, tmp_path: Path, out: str, capsys: Output) -> None:
    """`--out NAME.html` is the page; any other name is a folder, as of `simulate --out`."""
    assert call(capsys, f"report {place} --out {tmp_path / out}")[0] == 0
    page = tmp_path / out / "report.html" if out.startswith("week") else tmp_path / out
    assert "10 rounds" in page.read_text() and (page.parent / "pictures").is_dir()


@pytest.fixture
def adopted(tmp_path: Path) -> Journal:
    """One round of a queue made from a snapshot in which "old" has run for nine hours and "new"
    waits as long.
    """
    clock = SimulatedClock(NOW)
    jobs = f"old,m,{NOW - 9 * 3600},1e6,1,running,a,1\nnew,m,{NOW - 9 * 3600},1e6,1,queued,,\n"
    with Queue.create(tmp_path / "queue.db", cluster(jobs), clock=clock.now) as queue:
        machines = SimulatedMachines({"a": 8, "b": 4}, clock, MachineBehaviour(rate=lambda _: 1.0))
        controller = Controller(
            queue.store, SimulatedExecutor(machines), clock, ControllerOptions(policy="greedy")
        )
        controller.step()
        return read_journal(queue, 10)


def test_what_was_before_the_queue_is_not_paused(adopted: Journal) -> None:
    """The pictures begin with the queue, nobody is paused for nine hours in them, and the table
    does not claim it.
    """
    assert adopted.begin_s == NOW and adopted.origin == "the queue was made"
    study = study_of(adopted)
    assert series(study, study.runs[0], 1.0, 10).paused.max() <= 1
    head, *rows = plain(jobs_table(adopted))
    waited, paused = head.index("waited"), head.index("paused")
    found = {cells[0]: (cells[waited], cells[paused]) for cells in rows}
    assert found["old"] == ("–", "–") and found["new"][0] == duration(9 * 3600)
    assert "before the queue was made" in jobs_table(adopted)


def test_one_round_is_drawn(adopted: Journal) -> None:
    """A single round is a mark on its panels, and every panel has ticks to read it by."""
    rounds = [replace(r, seconds={"solve": 0.02, "apply": 0.005}) for r in adopted.rounds]
    with style.report_style():
        panels = draw_rounds(replace(adopted, rounds=rounds)).axes
        marked = [line for line in panels[0].lines if line.get_marker() == "o"]
        assert [len(line.get_xdata()) for line in marked] == [1, 1]  # the bound and the value
        assert all(panel.get_xlim()[0] < 0.0 < panel.get_xlim()[1] for panel in panels)
        low, high = panels[-1].get_ylim()
        assert sum(low <= tick <= high for tick in panels[-1].get_yticks()) >= 2


def test_nothing_yet(tmp_path: Path) -> None:
    """A queue without rounds and jobs is a page, too."""
    Queue.create(tmp_path / "queue.db", cluster()).close()
    page = Page(write_report(tmp_path / "queue.db"))
    assert "no round yet" in page.text and len(page.figures) == 4


def test_rounds_whose_snapshots_are_gone(queue: Queue) -> None:
    """Sizes of pools are those of now."""
    with queue.store.write() as connection:
        connection.execute(rounds.update().values(snapshot=None))
    queue.set_gpus({"a": 3})
    sizes = read_journal(queue, 1000).sizes
    assert [(s.pool, s.gpus, s.price_per_gpu_hour) for s in sizes] == [
        ("a", 3.0, 2.5),
        ("b", 4.0, 1.0),
    ]


def test_wrong_calls(tmp_path: Path) -> None:
    """A file that is no queue, and rounds of a folder."""
    (tmp_path / "some.txt").write_text("hello")
    with pytest.raises(InvalidInput):
        write_report(tmp_path / "some.txt")
    with pytest.raises(UsageError, match="only queues"):
        write_report(tmp_path, last=3)
