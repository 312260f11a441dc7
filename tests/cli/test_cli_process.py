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
from pathlib import Path

import pytest
from builders import snapshot, write_folder
from places import ROOT
from waiting import PATIENCE_S, gone, in_time, wait_for

DEMO = ROOT / "data" / "snapshots" / "demo"
COMMAND = [sys.executable, "-m", "allocator"]


def environment(**more: str) -> dict[str, str]:
    """No colours or sizes from outside; packages from this repository, after what a test puts
    first.
    """
    path = os.pathsep.join(p for p in (more.pop("first", ""), str(ROOT)) if p)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": path,
        "TERM": "xterm",
        "COLUMNS": "160",
        **more,
    }


def test_json_on_standard_output_and_nothing_else() -> None:
    """As a program sees it: one JSON document, nothing on standard error, exit code 0."""
    done = subprocess.run(
        [*COMMAND, "solve", str(DEMO), "--format", "json"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert json.loads(done.stdout)["status"] == "optimal" and done.stderr == ""


def test_ascii_terminals_and_foreign_folders_work(tmp_path: Path) -> None:
    """An ASCII terminal shows escapes instead of failing, JSON stays UTF-8; the snapshot may lie
    anywhere.
    """
    folder = write_folder(snapshot([{"job_id": "größe"}]), tmp_path / "schön")
    shown, data = (
        subprocess.run(
            [*COMMAND, "solve", "schön", "--format", form],
            capture_output=True,
            check=True,
            cwd=folder.parent,
            env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
        ).stdout
        for form in ("table", "json")
    )
    assert b"gr\\xf6\\xdfe" in shown
    assert json.loads(data)["jobs"][0]["job_id"] == "größe"


@pytest.mark.parametrize(
    "argv", [["schema"], ["solve", str(DEMO)], ["solve", str(DEMO), str(DEMO)], ["--help"]]
)
def test_a_reader_that_leaves_is_no_error(argv: list[str]) -> None:
    """`allocator ... | head -0`: exit code 0 and no word about it."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        done = subprocess.run(
            [*COMMAND, *argv],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("argv", [["schema"], ["solve", str(DEMO), "--format", "json"]])
def test_a_full_disk_behind_standard_output(argv: list[str]) -> None:
    """`allocator ... > full`: one line that says so, exit code 1."""
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            [*COMMAND, *argv],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "No space left on device" in done.stderr


def on_terminal(argv: list[str], stream: str, **more: str) -> tuple[str, str]:
    """(what the terminal showed, what the other stream was given), with one of stdout and stderr on
    a terminal. more: of its environment."""
    ours, theirs = pty.openpty()
    other = "stderr" if stream == "stdout" else "stdout"
    child = subprocess.Popen(
        [*COMMAND, *argv],
        env=environment(**more),
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
    return shown.decode(), rest


def test_a_batch_draws_its_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """The bar is on standard error; standard output has exactly a line per snapshot. Piped,
    there is no bar.
    """
    folders = [str(write_folder(snapshot([{}]), tmp_path / name)) for name in "ab"]
    shown, data = on_terminal(["solve", *folders], "stderr")
    assert "2/2" in shown and "snapshots" in shown
    assert [line.split()[0] for line in data.splitlines()] == ["a", "b"]
    done = subprocess.run(
        [*COMMAND, "solve", *folders], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stderr == ""


def test_tables_on_a_terminal_show_every_job() -> None:
    """On a terminal the tables are drawn by rich; no job is missing and no name cut."""
    shown, _ = on_terminal(["solve", str(DEMO)], "stdout")
    jobs = [line.split(",")[0] for line in (DEMO / "jobs.csv").read_text().splitlines()[1:]]
    assert all(job in shown for job in jobs) and "─" in shown


STYLE = re.compile(r"\x1b\[[0-9;]*m")
MEDIUM = ROOT / "data" / "snapshots" / "medium"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_of_500_jobs_fits_a_terminal(columns: int) -> None:
    """Totals by action, reason and tenant, then as many jobs as fit: no line is too
    long, none is wrapped within a cell, and the rest is said to be there."""
    shown, _ = on_terminal(["solve", str(MEDIUM)], "stdout", COLUMNS=str(columns), LINES="60")
    lines = [STYLE.sub("", line).rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= columns and len(lines) < 75
    assert [line for line in lines if line.startswith(("jobs", "pools", "tenants"))] == [
        "jobs by action",
        "jobs that get less than they could use, by reason",
        "pools (price: value of one GPU more)",
        "tenants",
        "jobs",
    ]
    rows = [line.split() for line in lines if line.startswith(" job-")]
    hidden = int(re.search(r"(\d+) more jobs are not shown", shown).group(1))
    assert len(rows) >= 12 and len(rows) + hidden == 500
    assert all({"start", "grow", "move"} & set(row) for row in rows)
    counted = [
        int(line.split()[1])
        for line in lines
        if line.split()[:1]
        and line.split()[0] in ("start", "grow", "move", "shrink", "pause", "wait", "keep")
    ]
    assert sum(counted) == 500


def test_all_reasons_on_demand() -> None:
    """--reasons: every job, and the reason of each that has one, wrapped between words."""
    shown, _ = on_terminal(["solve", str(MEDIUM), "--reasons"], "stdout", COLUMNS="80", LINES="24")
    lines = [STYLE.sub("", line).rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if line.startswith(" job-")]) == 500
    with_reason = [line for line in lines if line.startswith("  job-")]
    table = lines[lines.index("jobs that get less than they could use, by reason") + 3 :]
    assert len(with_reason) == sum(int(line.split()[1]) for line in table[: table.index("")])


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a highspy that never finishes loading; it leaves its process
    ids in `pids`.
    """
    package = tmp_path / "hang" / "highspy"
    package.mkdir(parents=True)
    pids = tmp_path / "hang" / "pids"
    pids.mkdir()
    (package / "__init__.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"open({str(pids)!r} + f'/{{os.getpid()}}', 'w').close()\ntime.sleep(600)\n"
    )
    return tmp_path / "hang"


def workers(hanging: Path) -> list[int]:
    return [int(p.name) for p in (hanging / "pids").iterdir()]


def start(hanging: Path, *argv: str) -> subprocess.Popen[str]:
    """A command in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [*COMMAND, "solve", *argv],
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
            parent[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found = {pid}
    while new := {p for p, above in parent.items() if above in found} - found:
        found |= new
    return found


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_interrupted_while_solving(
    hanging: Path, tmp_path: Path, number: int, code: int, words: str
) -> None:
    """Ctrl-C (and a polite kill) during a solve: one line, its exit code, no plan, no process
    left.
    """
    child = start(hanging, str(DEMO), "--solver", "highs", "--out", str(tmp_path / "plans"))
    wait_for(lambda: bool(workers(hanging)))
    everyone = family(child.pid)
    os.killpg(child.pid, number)
    out, err = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, out, err.splitlines()[-1]) == (code, "", words)
    assert not (tmp_path / "plans").exists()
    wait_for(lambda: all(map(gone, everyone | set(workers(hanging)))))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_batch_interrupted(hanging: Path, tmp_path: Path, number: int, code: int) -> None:
    """Ctrl-C, a polite kill and a hard one during a batch of two children: none of the six
    processes is left.
    """
    folders = [
        str(
            write_folder(
                snapshot(
                    [{}, {}, {"max_gpus": 4, "min_gpus": 3, "sizes": [3]}],
                    rates={1: 1, 2: 1.9, 4: 3.1, 8: 5.5},
                ),
                tmp_path / n,
            )
        )
        for n in "abc"
    ]
    child = start(
        hanging,
        *folders,
        "--jobs",
        "2",
        "--solver",
        "highs",
        "--gap",
        "0",
        "--out",
        str(tmp_path / "plans"),
    )
    wait_for(lambda: len(workers(hanging)) >= 2)
    everyone = family(child.pid)
    os.killpg(child.pid, number)
    _, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == code and "Traceback" not in err
    wait_for(lambda: all(map(gone, everyone | set(workers(hanging)))))
    assert not (tmp_path / "plans").exists()


def test_time_limit_is_kept_with_a_solver_that_hangs(hanging: Path) -> None:
    """The plan comes although the solver never answers, and names who made it."""
    child = start(hanging, str(DEMO), "--solver", "highs", "--time-limit", "1", "--format", "json")
    with in_time(10.0):
        out, _ = child.communicate(timeout=PATIENCE_S)
    plan = json.loads(out)
    assert child.returncode == 0 and plan["fallback"]
    assert plan["bound"] >= 7.14 - 1e-9 and plan["objective_value"] <= 7.14 + 1e-9


def test_no_table_breaks_a_word_on_a_terminal_of_80_columns() -> None:
    """A table that does not fit is wrapped between words, or becomes a block for each row."""
    words = {"COLUMNS": "80", "LINES": "40"}

    def show(*argv: str) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(list(argv), "stdout", **words)[0])

    shown = show("configure", str(DEMO), "pretrain")
    assert "money buys" in shown and max(map(len, shown.splitlines())) <= 80
    clusters = str(DEMO.parents[1] / "spot" / "resnet32.csv")
    shown = show("spot", "plan", clusters, "--work", "64000")
    assert "cluster          1 K80 on demand" in shown
    assert max(map(len, shown.splitlines())) <= 80
    shown = show("demo")
    for word in ("outranked:", "v100", "GPU-hour:", "offered,"):
        assert re.search(rf"(?<!\S){re.escape(word)}(?!\S)", shown), word
