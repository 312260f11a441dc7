"""`allocator examples`: there is one for every command, and its commands run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commands import Output, call
from examples import series

from allocator.cli import main
from allocator.cli.parsing import find_commands
from allocator.io.shipped import find_shipped, list_examples

NOT_RUN = {  # command: why not here, and where it is tested
    "admit": "it answers a cluster; tests/clusters/test_kubernetes_plans.py",
    "serve": "it runs until it is ended; tests/server/test_access.py",
    "demo": "tests/cli/test_cli.py",
    "doctor": "tests/cli/test_documented_commands.py",
    "bench solvers": "a minute; tests/bench/test_bench_solvers.py",
    "assess": "half a minute; tests/cli/test_documented_commands.py",
}


COMMANDS = tuple(" ".join(words) for words, _ in find_commands(main.parser()))
LISTED = list_examples()


def name_command(line: str) -> str:
    """Return the command of the program that a line calls."""
    words = shlex.split(line)[1:]
    return next(" ".join(words[:n]) for n in (3, 2, 1, 0) if " ".join(words[:n]) in (*COMMANDS, ""))


def test_every_command_has_an_example() -> None:
    """Each command of the program, with its subcommands, and each file of data/examples stands in
    data/examples.toml."""
    shown = {name_command(line) for one in LISTED.values() for line in one.commands}
    assert set(COMMANDS) - shown == set()
    assert set(NOT_RUN) <= shown
    folder = find_shipped("examples")
    files = {path for path in folder.iterdir() if path.name != "README.md"}
    assert files - {one.source for one in LISTED.values()} == set()
    assert all(len(one.about) <= 62 for one in LISTED.values())  # a line of 80 columns


@pytest.mark.parametrize("name", series(sorted(LISTED, key=["trace", "full"].__contains__), 6))
def test_commands_of_an_example_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Each command ends with exit code 0 in the folder that has nothing but the copy. Simulations
    end after an hour of theirs.
    """
    monkeypatch.chdir(tmp_path)
    assert call(capsys, f"examples {name} --out .")[0] == 0
    code, out, err = call(capsys, f"examples {name}")
    assert (code, err) == (0, "") and LISTED[name].about in out
    for line in LISTED[name].commands:
        assert line in out
        if name_command(line) not in NOT_RUN:
            end = " --until 3600" if "simulate" in line else ""
            code, said, err = call(capsys, line.removeprefix("allocator ") + end)
            assert code == 0, f"{line}\n{said[-500:]}{err[-500:]}"


def test_the_list_names_every_example_and_its_first_command(capsys: Output) -> None:
    """As lines that fit 80 columns, and as JSON."""
    code, out, err = call(capsys, "examples")
    assert (code, err) == (0, "")
    for one in LISTED.values():
        assert f"{one.name:<18}{one.about}\n{'':<18}  {one.commands[0]}\n" in out
    assert max(map(len, out.splitlines())) <= 80
    document = json.loads(call(capsys, "examples --format json")[1])
    assert [row["name"] for row in document["examples"]] == list(LISTED)
    assert document["examples"][0]["commands"] == list(LISTED["demo"].commands)


def test_nothing_is_overwritten(tmp_path: Path, capsys: Output) -> None:
    """A copy that is in the way stays, and none of the others is written."""
    mine = tmp_path / "team"
    mine.write_text("mine")
    said = f'"{mine}" exists already; nothing was copied\n'
    assert call(capsys, f"examples demo team --out {tmp_path}") == (2, "", said)
    assert [*tmp_path.iterdir()] == [mine] and mine.read_text() == "mine"
