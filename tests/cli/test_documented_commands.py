"""Every documented command runs: those of README, of the pages under docs and data, and the
examples of all `--help`.

The commands of a page run one after the other in a folder of their own, as a reader would call
them. tests/support/files/documented.py says which of them run shortened, and which need something
that a test has not.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from itertools import filterfalse
from pathlib import Path

import pytest
from commands import Output, call
from documented import CHECKED, ROOT, documented, needed, runnable
from examples import series

from allocator.cli import main
from allocator.cli.measure.bench import parse_tasks

PAGES = documented()
# by default: the page of who begins, and pages whose commands take a few seconds together
QUICK = ("docs/queue.md", "docs/nodes.md", "docs/objectives.md", "docs/results.md")
QUEUE = "queue init cluster.db --from data/snapshots/demo"
BAD = re.compile(r"Traceback|internal error|Warning:|\bnan\b|\bNone\b|object at 0x")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped data, a queue with one round, and a command `allocator`."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "data").symlink_to(ROOT / "data")
    (folder / "bin").mkdir()
    program = folder / "bin" / "allocator"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m allocator "$@"\n'
    )
    program.chmod(0o755)
    job = "--model bert --total-work 9e6 --max-gpus 8 --job-id"
    with contextlib.chdir(folder):
        for line in (
            QUEUE,
            f"queue submit cluster.db {job} bert-1",
            f"queue submit cluster.db {job} bert-2",
            "run cluster.db --once --executor files --state actor --grace 0",
        ):
            assert main.run(line.split()) == 0
    return folder


@pytest.mark.parametrize(
    "page", series([*QUICK, *(page for page in PAGES if page not in QUICK)], len(QUICK))
)
def test_commands_of_a_page_run(
    page: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Each ends with exit code 0, prints or writes something, and nothing that looks like a
    fault of the program.
    """
    folder = tmp_path / "here"
    shutil.copytree(template, folder, symlinks=True)
    monkeypatch.chdir(folder)
    faults = []
    for command in filterfalse(needed, PAGES[page]):
        before = state(folder)
        code, out, err = run(runnable(command), folder, capsys)
        if code or BAD.search(out + err) or not (out or err or state(folder) != before):
            faults.append(f"{command}\n  exit code {code}\n{out[-800:]}{err[-800:]}")
    assert not faults, "\n".join(faults)


def state(folder: Path) -> dict[Path, int]:
    """Every file and when it was changed."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.exists()}


def run(command: str, folder: Path, capsys: Output) -> tuple[int, str, str]:
    """(exit code, output, errors): in this process where no shell is needed."""
    if command.startswith(CHECKED):
        tasks = parse_tasks(main.parser().parse_args(shlex.split(command)[1:]))
        return 0 if tasks else 1, f"{len(tasks)} tasks", ""
    if command.startswith("allocator queue init cluster.db"):
        renew(folder)
    elif command.startswith("allocator run cluster.db --once") and has_state(folder):
        renew(folder)
        call(capsys, QUEUE)
    if re.search(r"[|&>*\[](?=(?:[^\"']*[\"'][^\"']*[\"'])*[^\"']*$)", command):
        return in_shell(command, folder)
    return call(capsys, command.removeprefix("allocator "))


def in_shell(command: str, folder: Path) -> tuple[int, str, str]:
    """(exit code, output, errors) of what a reader types."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def has_state(folder: Path) -> bool:
    """Whether an executor has had the queue, so that no other one may run it.

    A queue without one is kept: it may have what later commands of the page need, as tokens.
    """
    return (folder / "actor").exists() or any(folder.glob("cluster.db.*"))


def renew(folder: Path) -> None:
    """A reader's first queue: none is there yet for `queue init`, and no executor has had it
    before `run`.
    """
    for path in [*folder.glob("cluster.db*"), folder / "actor"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.soak
@pytest.mark.parametrize("page", ["README.md", "docs/tenants.md"])
def test_long_commands_run_as_they_stand(page: str, template: Path, tmp_path: Path) -> None:
    """./scripts/test -m soak -k as_they_stand: nothing shortened, in a shell; some minutes."""
    folder = tmp_path / "here"
    shutil.copytree(template, folder, symlinks=True)
    renew(folder)
    for command in filterfalse(needed, PAGES[page]):
        if "shadow watch" in command:  # for days, beside a Slurm
            continue
        code, out, err = in_shell(command, folder)
        assert code == 0 and not BAD.search(out + err), f"{command}\n{err}"


def test_the_examples_are_as_generated() -> None:
    """data/examples is what scripts/generators/generate_examples.py writes, byte for byte, and
    nothing else.
    """
    script = runpy.run_path(str(ROOT / "scripts" / "generators" / "generate_examples.py"))
    folder = ROOT / "data" / "examples"
    shipped = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert shipped == script["files"]()
