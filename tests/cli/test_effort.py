"""How hard a decision tries, and what it tells while it does: defaults, progress, the log."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import inspect
import io
import json
import math
import re
import sys
import threading
from pathlib import Path

import pytest
from commands import Output, call
from places import ROOT
from test_cli_process import hanging, start  # noqa: F401 - hanging is a fixture

import allocator
from allocator import SimulationOptions
from allocator.cli import main, progress
from allocator.controller.options import ControllerOptions as ServiceOptions
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP, TIME_LIMIT_S

SHIPPED = ROOT / "data" / "snapshots"
NAMES = {"solve": ["x"], "explain": ["x", "j"], "whatif": ["x", "--set", "a=1"]}


@pytest.mark.parametrize("command", NAMES)
def test_the_commands_that_decide_once_have_one_gap_and_one_time_limit(
    command: str, capsys: Output
) -> None:
    """solve, explain and whatif: the same defaults, and the help says them."""
    args = main.parser().parse_args([command, *NAMES[command]])
    assert (args.gap, args.time_limit) == (GAP, TIME_LIMIT_S)
    _, out, _ = call(capsys, f"{command} --help")
    said = " ".join(out.split())
    assert f"(default: {GAP:g};" in said and f"(default: {TIME_LIMIT_S:g}; inf: none)" in said


def test_every_other_gap_is_the_same() -> None:
    """The controller, the simulator, the benchmark of policies and the Python calls ask for the
    same gap.
    """
    parse = main.parser().parse_args
    assert (
        parse(["run", "q"]).gap
        == parse(["simulate", "w"]).gap
        == parse(["frontier", "s"]).gap
        == GAP
    )
    assert parse(["bench", "policies"]).gap == GAP
    assert inspect.signature(allocator.solve).parameters["gap"].default == GAP
    assert inspect.signature(allocator.Rounds).parameters["gap"].default == GAP
    assert SolveLimits().gap == SimulationOptions().gap == ServiceOptions().gap == GAP


@pytest.mark.parametrize("objective", ["throughput", "flow"])
def test_the_last_digits_are_not_searched_for_unasked(objective: str) -> None:
    """The shipped round of 500 jobs, at the defaults: prices alone prove the plan, and it is not
    called optimal.
    """
    result = allocator.solve(allocator.read_snapshot(SHIPPED / "medium"), objective=objective)
    assert result.solver is None and result.termination == "gap"
    assert 1e-6 < result.gap <= GAP and result.status == "feasible"


def test_gap_0_is_exact(capsys: Output) -> None:
    """--gap 0 on the demo round: proven optimal."""
    _, out, _ = call(capsys, f"solve {SHIPPED / 'demo'} --gap 0 --format json")
    plan = json.loads(out)
    assert plan["status"] == "optimal" and plan["termination"] == "gap" and plan["gap"] <= 1e-6


def test_progress_of_a_decision_that_waits_for_its_solver(hanging: Path) -> None:  # noqa: F811
    """A solver that never answers: standard error says seconds, best value, bound and gap,
    standard output is data.
    """
    child = start(
        hanging, str(SHIPPED / "demo"), "--solver", "highs", "--time-limit", "6", "--format", "csv"
    )
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and len(list(csv.reader(io.StringIO(out)))) == 13
    line = next(line for line in err.splitlines() if line.startswith("solve: "))
    assert re.fullmatch(r"solve: \d+ s, best value 7\.14, at most 7\.14\d*, gap [\d.e-]+ %", line)


class Screen(io.StringIO):
    """A terminal, or not, that says when something was written."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal, self.written = is_terminal, threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        done = super().write(text)
        self.written.set()
        return done


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_live_line_or_sparse_lines(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the line is rewritten and empty in the end; elsewhere every line stays."""
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    for name in ("FIRST_S", "FIRST_LINE_S", "LIVE_S"):
        monkeypatch.setattr(progress, name, 0.01)
    watch = progress.Progress()
    watch.improved(2.0, 2.5)
    watch.improved(1.0, 2.1)  # a worse plan and a better bound
    with watch.shown("solve"):
        assert screen.written.wait(60)
    said = screen.getvalue()
    assert "best value 2, at most 2.1, gap 5 %" in said
    assert (
        said.endswith(progress.CLEAR) if is_terminal else said.endswith("\n") and "\r" not in said
    )


def test_quick_decisions_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends before the first line is due leaves no trace."""
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.Progress().shown("solve"):
        pass
    assert screen.getvalue() == ""


def test_values_of_other_questions_are_not_shown() -> None:
    """Policies that ask a solver something else than the plan: time alone."""
    watch = progress.Progress(is_valued=False)
    watch.improved(3.0, 4.0)
    assert watch.line() == "0 s"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["demo", "--policy", "greedy"], ["no solver", "none was asked", "proven by lagrangian"]),
        (
            ["medium", "--objective", "flow"],
            ["prices: no plan has a value above", "proven from prices"],
        ),
        (
            ["medium", "--gap", "1e-4"],
            ["prices: no plan", "search of better plans: gap", "proven from prices"],
        ),
        (["medium", "--solver", "decomposition"], ["decomposition highs", "knapsacks", "dive"]),
        (["demo", "--solver", "cpsat", "--gap", "0"], ["cpsat 9", "CpSolverResponse"]),
    ],
)
def test_the_log_says_what_was_done(
    argv: list[str], says: list[str], capsys: Output, tmp_path: Path
) -> None:
    """Also where no solver is asked; and the decision is the one that is made without a log."""
    words = ["solve", SHIPPED / argv[0], *argv[1:], "--format", "json"]
    _, plain, _ = call(capsys, *words)
    code, out, _ = call(capsys, *words, "--log", tmp_path / "log")
    told = (tmp_path / "log").read_text()
    assert code == 0 and all(word in told for word in says), told
    assert without_seconds(out) == without_seconds(plain)


def without_seconds(text: str) -> dict[str, object]:
    plan = json.loads(text)
    del plan["seconds"]
    return dict(plan)


def test_watching_stays_in_this_process() -> None:
    """Whoever watches need not travel to the worker: a watch that cannot be pickled is no fault."""

    class Unpicklable(progress.Progress):
        lock = threading.Lock()

    watch = Unpicklable()
    watch.guard = threading.Lock()  # type: ignore[attr-defined]
    from allocator import read_snapshot, validate
    from allocator.engine.decision import decide

    result = decide(
        validate(read_snapshot(SHIPPED / "demo")),
        solver="highs",
        limits=SolveLimits(gap=0.0, watch=watch),
    )
    assert result.status == "optimal" and any("highs" in note for note in watch.notes)
    assert math.isclose(watch._value, result.objective_value) and dataclasses.is_dataclass(result)


def test_help_says_where_time_goes() -> None:
    """`run` says its own default in its description, `simulate` has none."""
    commands = next(
        a for a in main.parser()._actions if isinstance(a, argparse._SubParsersAction)
    ).choices
    assert "half of the interval" in " ".join(commands["run"].format_help().split())
    assert "(default: none)" in " ".join(commands["simulate"].format_help().split())
