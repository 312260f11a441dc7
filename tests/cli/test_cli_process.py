"""The command line as a process: pipes that break, full disks, terminals, Ctrl-C, and nobody left
behind.

A solver that hangs is played by a `highspy` of our own on PYTHONPATH: loading it writes down its
process id and sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from builders import snapshot, write_folder
from examples import series
from places import ROOT
from waiting import PATIENCE_S, gone, in_time, wait_for

SHIPPED = ROOT / "data" / "snapshots"
DEMO = SHIPPED / "demo"
COMMAND = [sys.executable, "-m", "allocator"]


def environment(**more: str) -> dict[str, str]:
    """No colours or sizes from outside; packages from this repository, after what a test puts
    first.
    """
    path = os.pathsep.join(p for p in (more.pop("first", ""), str(ROOT)) if p)
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "160"}
    return {**kept, **more}


def test_ascii_terminals_and_foreign_folders_work(tmp_path: Path) -> None:
    """An ASCII terminal shows escapes instead of failing, JSON stays UTF-8 and is all that is
    printed; the snapshot may lie anywhere.
    """
    folder = write_folder(snapshot([{"job_id": "größe"}]), tmp_path / "schön")
    shown, data = (
        subprocess.run(
            [*COMMAND, "solve", "schön", "--format", form],
            capture_output=True,
            check=True,
            cwd=folder.parent,
            env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
        )
        for form in ("table", "json")
    )
    assert b"gr\\xf6\\xdfe" in shown.stdout
    assert json.loads(data.stdout)["jobs"][0]["job_id"] == "größe" and data.stderr == b""


def broken_outputs() -> Iterator[tuple[TextIO, int]]:
    """A pipe whose reader has left, and a full disk; what a command ends with there, with as many
    lines about it.
    """
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as left, open("/dev/full", "w") as full:
        yield left, 0
        yield full, 1


def write_to(out: TextIO, words: str) -> tuple[int, int]:
    """Exit code and lines of standard error of a command that writes there."""
    done = subprocess.run(
        [*COMMAND, *words.split()],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode == 0) == ("No space left on device" not in done.stderr)
    # after five seconds a slow machine says how far it is
    return done.returncode, len(re.sub(r"(?m)^solve: \d+ s, .*\n", "", done.stderr).splitlines())


@pytest.mark.parametrize("words", series((f"solve {DEMO} {DEMO} --json", "schema"), 1))
def test_standard_output_that_breaks(words: str) -> None:
    """`allocator ... | head -0`: exit code 0 and no word about it; `allocator ... > full`: one line
    that says so, exit code 1."""
    for out, code in broken_outputs():
        assert write_to(out, words) == (code, code)


def on_terminal(words: str, stream: str, columns: int = 80) -> tuple[str, str]:
    """(what the terminal showed, what the other stream was given), with one of stdout and stderr on
    a terminal.
    """
    ours, theirs = pty.openpty()
    other = "stderr" if stream == "stdout" else "stdout"
    child = subprocess.Popen(
        [*COMMAND, *words.split()],
        env=environment(COLUMNS=str(columns), LINES="60"),
        text=True,
        **{stream: theirs, other: subprocess.PIPE, "stdin": subprocess.DEVNULL},
    )  # type: ignore[call-overload]
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the last writer has closed the terminal
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    rest = (child.stderr if stream == "stdout" else child.stdout).read()
    assert child.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()), rest


def lines_on_terminal(words: str, columns: int = 80) -> list[str]:
    """What a terminal shows of standard output, of which no line is too long for it."""
    lines = [line.rstrip() for line in on_terminal(words, "stdout", columns)[0].splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.nightly
def test_a_plan_of_500_jobs_fits_a_terminal() -> None:
    """Totals by action, reason and tenant, then as many jobs as fit: no line is too long, none is
    wrapped within a cell, and the rest is said to be there. --reasons: every job, and the reason of
    each that has one."""
    heads = ["jobs by action", "jobs that get less than they could use, by reason"]
    heads += ["pools (price: value of one GPU more)", "tenants", "jobs"]
    lines = lines_on_terminal(f"solve {SHIPPED / 'medium'}")
    shown = [line for line in lines if line.startswith(("jobs", "pools", "tenants"))]
    assert len(lines) < 75 and shown == heads
    rows = [line.split() for line in lines if line.startswith(" job-")]
    hidden = re.search(r"(\d+) more jobs are not shown", "\n".join(lines))
    assert hidden and len(rows) >= 12 and len(rows) + int(hidden[1]) == 500
    assert all({"start", "grow", "move"} & set(row) for row in rows)
    lines = lines_on_terminal(f"solve {SHIPPED / 'medium'} --reasons")
    assert sum(line.startswith(" job-") for line in lines) == 500
    table = lines[lines.index(heads[1]) + 3 :]
    told = sum(line.startswith("  job-") for line in lines)
    assert told == sum(int(line.split()[1]) for line in table[: table.index("")])


def test_no_table_breaks_a_word_on_a_terminal_of_80_columns() -> None:
    """A table that does not fit is wrapped between words, or becomes a block for each row; no job
    is missing and no name cut."""
    shown = "\n".join(lines_on_terminal(f"solve {DEMO}"))
    jobs = [line.split(",")[0] for line in (DEMO / "jobs.csv").read_text().splitlines()[1:]]
    assert all(job in shown for job in jobs) and "─" in shown
    assert "money buys" in "\n".join(lines_on_terminal(f"configure {DEMO} pretrain"))
    clusters = ROOT / "data" / "spot" / "resnet32.csv"
    shown = "\n".join(lines_on_terminal(f"spot plan {clusters} --work 64000"))
    assert "cluster          1 K80 on demand" in shown


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a highspy that never finishes loading; it leaves its process
    ids in `pids`.
    """
    package, pids = (tmp_path / "hang" / name for name in ("highspy", "pids"))
    for folder in (package, pids):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"open({str(pids)!r} + f'/{{os.getpid()}}', 'w').close()\ntime.sleep(600)\n"
    )
    return tmp_path / "hang"


def workers(hanging: Path) -> list[int]:
    return [int(p.name) for p in (hanging / "pids").iterdir()]


def start(hanging: Path, words: str) -> subprocess.Popen[str]:
    """A command in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [*COMMAND, *words.split()],
        env=environment(first=str(hanging)),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def family(pid: int) -> set[int]:
    """The process and all its descendants."""
    parent = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            parent[int(entry.name)] = int(stat[1])
    found = {pid}
    while new := {p for p, above in parent.items() if above in found} - found:
        found |= new
    return found


ENDS = (
    (2, signal.SIGINT, 130, ["interrupted"]),
    (1, signal.SIGTERM, 143, ["terminated"]),
    (2, signal.SIGKILL, -9, []),
    (1, signal.SIGINT, 130, ["interrupted"]),
)


@pytest.mark.parametrize("end", series(ENDS, 3))
def test_interrupted_while_solving(
    hanging: Path, tmp_path: Path, end: tuple[int, int, int, list[str]]
) -> None:
    """Ctrl-C, a polite kill and a hard one during a solve, and during a batch of two children: one
    line, its exit code, no plan; none of the processes is left.
    """
    count, number, code, said = end
    jobs = [{}, {}, {"max_gpus": 4, "min_gpus": 3, "sizes": [3]}]
    folders = [
        str(write_folder(snapshot(jobs, rates={1: 1, 2: 1.9, 4: 3.1, 8: 5.5}), tmp_path / name))
        for name in "abc"[: 2 * count - 1]
    ]
    plans = tmp_path / "plans"
    batch = f"solve {' '.join(folders)} --jobs {count} --solver highs --gap 0 --out {plans}"
    child = start(hanging, batch)
    wait_for(lambda: len(workers(hanging)) >= count)
    everyone = family(child.pid)
    os.killpg(child.pid, number)
    _, err = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, err.splitlines()[-1:]) == (code, said) and "Traceback" not in err
    wait_for(lambda: all(map(gone, everyone | set(workers(hanging)))))
    assert not plans.exists()


def test_time_limit_is_kept_with_a_solver_that_hangs(hanging: Path) -> None:
    """The plan comes although the solver never answers, and names who made it. Meanwhile standard
    error says seconds, best value, bound and gap.
    """
    child = start(hanging, f"solve {DEMO} --solver highs --time-limit 6 --json")
    with in_time(15.0):
        out, err = child.communicate(timeout=PATIENCE_S)
    plan = json.loads(out)
    assert child.returncode == 0 and plan["fallback"]
    assert plan["bound"] >= 7.14 - 1e-9 and plan["objective_value"] <= 7.14 + 1e-9
    line = next(line for line in err.splitlines() if line.startswith("solve: "))
    assert re.fullmatch(r"solve: \d+ s, best value 7\.14, at most 7\.14\d*, gap [\d.e-]+ %", line)
