"""The report of a queue: its pages in one file that asks for nothing."""

from __future__ import annotations

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
from allocator.errors import InvalidInput, NoPlanInTime
from allocator.queue.holdings import Retries
from allocator.queue.queue import Queue
from allocator.server.pages.written import write_queue_report

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


@pytest.mark.parametrize("backend", first_of(BACKENDS, 1))
def test_page(backend: str, tmp_path: Path, capsys: Output) -> None:
    """The command writes one file that asks for nothing, next to an SQLite queue; one on a server
    needs --out. It says what is stuck and why, what each round did, and who paid what; a link or a
    form would lead nowhere.
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
    assert "<form" not in page.source and "<a " not in page.source
    for words in (
        "10 rounds, the newest first",
        "1 of the last 10 rounds",
        "<two> is parked after 2 failures",
        "three keeps 1 x a",
        "Jobs started or stopped",
        "Who has which GPU",
        "US dollars by day",
    ):
        assert words in page.text
    assert "round 1: 3" in page.text  # jobs that it started


@pytest.mark.nightly
@pytest.mark.parametrize("out", first_of(["week-47.d", "PAGE.HTM"], 1))
def test_place_of_the_page(place: Path, tmp_path: Path, out: str, capsys: Output) -> None:
    """`--out NAME.html` is the page; any other name is a folder, as of `simulate --out`. With
    `--last` the page has the last rounds only."""
    assert call(capsys, f"report {place} --out {tmp_path / out} --last 4")[0] == 0
    page = tmp_path / out / "report.html" if out.startswith("week") else tmp_path / out
    assert "round 7: " in page.read_text() and "round 6: " not in page.read_text()


def test_nothing_yet(tmp_path: Path) -> None:
    """A queue without rounds and jobs is a page, too."""
    Queue.create(tmp_path / "queue.db", cluster()).close()
    page = Page(write_queue_report(str(tmp_path / "queue.db")))
    assert "No round yet" in page.text and "No job matches" in page.text


def test_wrong_calls(tmp_path: Path, capsys: Output) -> None:
    """A file that is no queue, and rounds of a folder."""
    (tmp_path / "some.txt").write_text("hello")
    with pytest.raises(InvalidInput):
        write_queue_report(str(tmp_path / "some.txt"))
    assert "only queues" in call(capsys, f"report {tmp_path} --last 3")[2]
