"""How hard a decision tries, and what it tells while it does: defaults, progress, the log."""

from __future__ import annotations

import inspect
import io
import json
import sys
import threading
from pathlib import Path

import pytest
from commands import Output, call
from examples import series
from places import ROOT

import allocator
from allocator import SimulationOptions, read_snapshot
from allocator.cli import main
from allocator.cli.plan import solve as progress
from allocator.controller.options import ControllerOptions
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP, TIME_LIMIT_S

SHIPPED = ROOT / "data" / "snapshots"


def test_the_commands_and_calls_have_one_gap_and_one_time_limit(capsys: Output) -> None:
    """Every command that decides, the controller, the simulator, the benchmark of policies and the
    Python calls ask for the same gap; those that decide once have one time limit. The help says
    them, `run` its own limit in its description, and `simulate` has none.
    """
    limit = f"(default: {TIME_LIMIT_S:g}; inf: n"
    for line, words in (
        *((once, limit) for once in ("solve x", "explain x j", "whatif x --set a=1")),
        ("run q", "half of the interval"),
        ("simulate w", "(default: none)"),
        ("frontier s", ""),
        ("bench policies", ""),
    ):
        args = main.parser().parse_args(line.split())
        said = " ".join(call(capsys, f"{line.split()[0]} --help")[1].split())
        assert args.gap is None and words in said  # which leaves it to the classes below
        if words == limit:
            assert args.time_limit_s == TIME_LIMIT_S and f"(default: {GAP:g};" in said
    for made in (allocator.solve, allocator.Rounds):
        assert inspect.signature(made).parameters["gap"].default == GAP
    for options in (SolveLimits(), SimulationOptions(), ControllerOptions()):
        assert options.gap == GAP


def test_the_plan_does_not_depend_on_the_time_limit(capsys: Output) -> None:
    """Nor does its bound, by the command line with a minute and from Python with the default,
    where prices alone do not prove the gap.
    """
    folder = SHIPPED / "medium"
    one = json.loads(call(capsys, f"solve {folder} --gap 1e-5 --json --time-limit 60")[1])
    other = allocator.solve(read_snapshot(folder), gap=1e-5).to_dict()
    for name in ("objective_value", "bound"):
        assert one[name] == other[name]
    assert [job["gpus"] for job in one["jobs"]] == [job["gpus"] for job in other["jobs"]]


class Screen(io.StringIO):
    """A terminal, or not, that says when something was written."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_live_line_or_sparse_lines(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the line is rewritten and empty in the end; elsewhere every line stays. What
    ends before the first line is due leaves no trace."""
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.Progress().shown("solve"):
        pass
    assert screen.getvalue() == ""
    for name in ("FIRST_S", "FIRST_LINE_S", "LIVE_S"):
        monkeypatch.setattr(progress, name, 0.01)
    watch = progress.Progress()
    watch.improved(2.0, 2.5)
    watch.improved(1.0, 2.1)  # a worse plan and a better bound
    with watch.shown("solve"):
        assert screen.written.wait(60)
    said = screen.getvalue()
    assert "best value 2, at most 2.1, gap 5 %" in said
    assert said.endswith(progress.CLEAR if is_terminal else "\n")
    assert is_terminal or "\r" not in said


LOGGED = {
    "demo --policy greedy": ["no solver", "none was asked", "proven by lagrangian"],
    "demo --solver cpsat --gap 0": ["cpsat 9", "CpSolverResponse"],
    "medium --gap 1e-4": ["rounding of 500 jobs", "all better plans: value", "proven from prices"],
    "medium --objective flow": ["prices and rounding of", "proven from prices"],
}


@pytest.mark.parametrize("words", series([*LOGGED], 2))
def test_the_log_says_what_was_done(words: str, capsys: Output, tmp_path: Path) -> None:
    """Also where no solver is asked; the decision is the one that is made without a log, and
    proven optimal with --gap 0."""
    line = f"solve {SHIPPED}/{words} --json"
    plans = [json.loads(call(capsys, f"{line}{log}")[1]) for log in ("", f" --log {tmp_path}/log")]
    told = (tmp_path / "log").read_text()
    assert all(word in told for word in LOGGED[words]), told
    one, other = ({**plan, "seconds": None} for plan in plans)
    assert one == other
    if "--gap 0" in words:
        assert (one["status"], one["termination"]) == ("optimal", "gap") and one["gap"] <= 1e-6
