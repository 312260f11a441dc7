"""Files that jobs and actors write to harm the controller: pipes, devices, endless, deep, odd
numbers and texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from controller_rigs import Rig
from queues import place
from waiting import PATIENCE_S

from allocator.executors.allocation import EXIT, ORDER, OpenAllocation
from allocator.executors.files import OBSERVATION, FilesExecutor
from allocator.io.tables.limited_reader import (
    as_storable_text,
)
from allocator.loop.executor import Order, Phase

DEEP = "[" * 200_000 + "]" * 200_000


def _write(text: str | bytes) -> Callable[[Path], None]:
    content = text.encode() if isinstance(text, str) else text
    return lambda path: path.write_bytes(content) and None


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"5 5\n")
        file.truncate(3 << 30)


SHAPES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "link to itself": lambda path: path.symlink_to(path.name),
    "three gigabytes": _sparse,
}


def _said(**fields: object) -> str:
    return json.dumps({"phase": "running", "work_done": 1.0, "detail": "", **fields})


TEXTS: dict[str, str | bytes] = {
    "deep": '{"phase": ' + DEEP + "}",
    "large number": '{"phase": "running", "work_done": 1' + "0" * 400 + "}",
    "larger number": '{"phase": "running", "work_done": 1' + "0" * 5000 + "}",
    "no number": '{"phase": "running", "work_done": NaN}',
    "lone surrogate": '{"phase": "failed", "detail": "\\ud800 it ended"}',
    "nul": '{"phase": "failed", "detail": "\\u0000 it ended"}',
    "end of time": _said(at_s=1e300),
    "before all time": _said(at_s=-1e300),
    "infinite time": '{"phase": "running", "at_s": Infinity}',
    "not UTF-8": b"\xff\xfe{}",
    "half": '{"phase": "runn',
    "a list": "[1, 2]",
    "other types": _said(phase=["running"], work_done={}, detail=[1], at_s="soon"),
    "long text": _said(detail="x" * 900_000),
}


STORED = ("larger number", "lone surrogate", "nul", "end of time", "infinite time")


def test_progress_files_are_read_within_limits(tmp_path: Path) -> None:
    """A reader with 1 GB of memory and ten seconds gets through whatever jobs put in the place of
    their progress.
    """
    for shape, make in SHAPES.items():
        make(tmp_path / shape)
    program = (
        "import resource, sys, pathlib; from allocator.executors import report;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "print([report.read(pathlib.Path(one)) for one in sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *(str(tmp_path / shape) for shape in SHAPES)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "[None, None, None, None, Report(done=5.0, safe=5.0, fields={})]\n"


def test_text_is_made_storable() -> None:
    """Lone surrogates and NUL, which databases refuse, are replaced; other text stays."""
    assert as_storable_text("a\ud800b\0c", 10) == "a?b\N{REPLACEMENT CHARACTER}c"
    assert as_storable_text("größer", 3) == "grö"


@pytest.mark.parametrize(
    "text",
    [
        '{"phase": "running"}',
        '{"phase": "finished", "detail": "", "at_s": 1e999, "work_done": 0, "safe": null}',
        '{"phase": "finished", "detail": "", "at_s": "x", "work_done": 0, "safe": null}',
        "{}",
    ],
)
def test_an_ending_that_makes_no_sense_is_a_failure(tmp_path: Path, text: str) -> None:
    """A job that writes its own exit.json ends as failed, in words."""
    (tmp_path / EXIT).write_text(text)
    end = OpenAllocation(tmp_path, {}).read_ending()
    assert end is not None and end["phase"] == "failed" and "exit.json" in end["detail"]
    assert end["at_s"] <= time.time() and end["work_done"] == 0.0


def test_an_order_that_its_job_removes_is_known_still(tmp_path: Path) -> None:
    """The allocation can be stopped and acknowledged: order.json is read once."""
    executor = FilesExecutor(tmp_path)
    executor.start(Order("a", 1, 1, "a", 1, "A", 9.0))
    folder = executor.ledger.place("a", 1)
    (folder / ORDER).unlink()
    executor.stop("a", 1, 1)
    (folder / OBSERVATION).write_text('{"phase": "stopped", "work_done": 2}')
    assert [one.phase for one in executor.observe()] == [Phase.STOPPED]
    executor.acknowledge("a", 1)
    assert not folder.exists() and executor.ledger.acknowledged("a")["left"] == 7.0


class World(Rig):
    """Two endless jobs, an executor of files, and a controller that decides every minute."""

    def __init__(self, folder: Path, name: str) -> None:
        state = folder / "state"
        super().__init__(
            folder, name=name, executor=lambda _: FilesExecutor(state), policy="greedy"
        )
        self.submit("good", "odd", work=1e6)

    def step(self) -> None:
        """One minute passes; the controller looks and decides. Whatever it raises fails the
        test.
        """
        self.clock.sleep(60.0)
        self.controller.step()

    def folder(self, job_id: str) -> Path | None:
        """The open allocation of a job; None: it has none."""
        found = [one.folder for one in self.executor.ledger.known() if one.job_id == job_id]
        return found[0] if found else None

    def say(self, job_id: str, text: str) -> None:
        """What an orderly actor does."""
        folder = self.folder(job_id)
        assert folder is not None
        (folder / "new").write_text(text)
        os.replace(folder / "new", folder / OBSERVATION)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with (
        place(getattr(request, "param", "sqlite"), tmp_path) as name,
        closing(World(tmp_path, name)) as made,
    ):
        yield made


def _harm(path: Path, kind: str) -> None:
    if path.is_symlink() or path.exists():
        os.rmdir(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    SHAPES[kind](path) if kind in SHAPES else _write(TEXTS[kind])(path)


def _orderly_job_is_well(world: World, work: float) -> None:
    """The orderly job next to the odd one is observed, and every round has a plan."""
    world.say("good", _said(work_done=work))
    world.step()
    assert world.queue.rounds()[0].outcome != "failed", world.queue.rounds()[0].detail
    assert world.controller.has_plan
    good = world.queue.job("good")
    assert good.state == "running" and good.remaining_work == pytest.approx(1e6 - work)


@pytest.mark.parametrize(
    ("world", "kinds"),
    [("sqlite", (*SHAPES, *TEXTS)), ("postgresql", STORED)],
    indirect=["world"],
    ids=["sqlite", "postgresql"],
)
def test_odd_observations_harm_nobody_else(world: World, kinds: Sequence[str]) -> None:
    """One hostile file after the other, as what the odd job observes, and every fourth as
    capacity.json: the other job is observed and goes on to its end, and rounds have plans.
    """
    world.step()
    for n, kind in enumerate(kinds, 1):
        world.queue.retry("odd")
        folder = world.folder("odd")
        is_capacity = folder is None or n % 4 == 0
        ledger = world.executor.ledger.folder
        _harm(ledger / "capacity.json" if is_capacity else folder / OBSERVATION, kind)
        _orderly_job_is_well(world, float(n))
    world.say("good", _said(phase="finished"))
    world.step()
    assert world.queue.job("good").state == "done"


def test_a_time_that_has_not_come_yet_does_not_poison_later_rounds(world: World) -> None:
    """After an observation of the year 10^292 the job's later progress still counts."""
    world.step()
    world.say("odd", _said(at_s=1e300))
    _orderly_job_is_well(world, 1.0)
    world.say("odd", _said(work_done=7.0, at_s=world.clock.now() + 60.0))
    _orderly_job_is_well(world, 2.0)
    assert world.queue.job("odd").remaining_work == pytest.approx(1e6 - 7.0)


def test_an_end_before_the_order_counts_from_the_order(world: World) -> None:
    """A job that says it ended in 1970 is not credited with fifty years of GPUs."""
    world.step()
    world.say("odd", _said(phase=Phase.FINISHED, at_s=1.0))
    world.step()
    odd = world.queue.job("odd")
    assert odd.state == "done" and 0.0 <= odd.attained_gpu_s <= 4 * 120.0
