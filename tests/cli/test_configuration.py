"""The configuration file, ALLOCATOR_QUEUE, and completion in a shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Output, call
from machine import find_program, lack
from places import ROOT
from text_tables import cases

from allocator.cli import main

DEMO = ROOT / "data" / "snapshots" / "demo"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with nothing in it and no configuration at home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with the jobs of the demo."""
    path = tmp_path_factory.mktemp("template") / "q.db"
    assert main.run(["queue", "init", str(path), "--from", str(DEMO), "-q"]) == 0
    return path


@pytest.fixture
def queue(folder: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The queue of ALLOCATOR_QUEUE, with the jobs of the demo."""
    shutil.copy(template, folder / "q.db")
    monkeypatch.setenv("ALLOCATOR_QUEUE", str(folder / "q.db"))
    return folder / "q.db"


def write(folder: Path, text: str) -> Path:
    path = folder / "allocator.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    cases(f"""
queue list --state queued -> llm-tune
queue list --json -> "llm-tune"
queue show llm-tune -> job llm-tune
queue hold llm-tune rank -> llm-tune: held/rank: held/
queue change llm-tune --weight 2 --quiet -> llm-tune: queued/
queue node add n1 n2 --pool a100 --gpus 8 -> n1: added/n2: added/
queue submit --job-id new --model bert --total-work 9 --max-gpus 1 -- x --y -> new/
queue export-csv -> job_id,
queue purge --older-than 90 -> 0 jobs forgotten
status -> controller
history -> rounds
run --quiet -> would start
explain llm-tune -> llm-tune
whatif --set jobs.rank.weight=2 -> objective
explain {DEMO} llm-tune -> llm-tune
"""),
)
def test_the_queue_of_the_environment(words: str, said: str, queue: Path, capsys: Output) -> None:
    """Every command that takes QUEUE works without it, wherever its options stand; --json is one of
    `list`, not of `queue`."""
    code, out, err = call(capsys, *words.split())
    assert (code, said.replace("/", "\n") in out + err) == (0, True), err
    assert "unrecognized" in call(capsys, "queue --json list")[2]


def test_a_queue_on_the_command_line_counts_more(queue: Path, capsys: Output) -> None:
    """By its ending, its form or its content; what else is wrong is said as without a default. The
    environment counts more than the file, the file more than nothing."""
    call(capsys, "queue init other.db -q")
    shutil.copy("other.db", "plain")
    for name in ("other.db", "plain"):
        assert call(capsys, f"queue list {name}")[1].startswith("no jobs")
    assert "has no job" in call(capsys, "queue hold other.db llm-tune")[2]
    assert call(capsys, "queue list missing.db")[0] == 3
    code, _, err = call(capsys, "queue list other.db --stat x")
    assert code == 2 and '--stat x; did you mean "--state"?' in err
    assert "arguments are required: JOB" in call(capsys, "queue show")[2]
    write(queue.parent, 'queue = "other.db"\n')
    assert not call(capsys, "queue list")[1].startswith("no jobs")
    del os.environ["ALLOCATOR_QUEUE"]
    assert call(capsys, "queue list")[1].startswith("no jobs")


def test_options_of_a_file(folder: Path, capsys: Output) -> None:
    """For every command with the option, for one command, and less than the command line."""
    write(folder, 'format = "json"\n\n[solve]\npolicy = "greedy"\nseed = 7\n')
    for option, policy in (("", "greedy"), ("--policy las", "las")):
        plan = json.loads(call(capsys, f"solve {DEMO} {option}")[1])
        assert (plan["policy"], plan["seed"]) == (policy, 7)
    assert call(capsys, f"solve {DEMO} --format csv")[1].startswith("job_id,")
    assert json.loads(call(capsys, "examples")[1])["examples"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nsolvr = 1", '2: "solvr" is no option that a file can set; did you mean "solver"?'),
        ("time_limit = 1", '1: "time_limit" is no option that a file can set; did you mean "time-'),
        ('["queue lst"]\nlimit = 2', '2: "queue lst" is no command; did you mean "queue list"?'),
        ("[solve]\nlimit = 2", '2: "limit" is no option that a file can set'),
        ("[doctor]\n[slove]", ' "slove" is no command; did you mean "solve"?'),
        ("[solve]\nseed = 1.5", "2: seed: 1.5 is not a whole number from 0 to"),
        ("[solve]\nformat = 'xml'", "2: format: invalid choice: 'xml'"),
        ("quiet = 'yes'", "1: quiet is 'yes', not true or false"),
        ("a = ", " cannot be read"),
    ],
)
def test_what_is_wrong_in_the_file(text: str, said: str, folder: Path, capsys: Output) -> None:
    """File and line, and the nearest name; help and the version still work."""
    write(folder, text)
    code, out, err = call(capsys, f"solve {DEMO}")
    assert (code, out) == (3, "") and f"allocator.toml:{said}" in err
    assert call(capsys, "solve --help")[0] == call(capsys, "--version")[0] == 0


def test_config_shows_what_counts(queue: Path, folder: Path, capsys: Output) -> None:
    """Each value with its file and line, or the variable; what does not count is marked."""
    write(folder, 'queue = "other.db"\nsolver = "cpsat"\n[solve]\nsolver = "highs"\n')
    document = json.loads(call(capsys, "config --json")[1])
    names = ["command", "option", "line", "counts"]
    assert document["file"] == "allocator.toml"
    assert [str([one[name] for name in names]) for one in document["settings"]] == [
        "[None, 'queue', 1, False]",
        "[None, 'solver', 2, True]",
        "['solve', 'solver', 4, True]",
        "[None, 'queue', None, True]",
    ]
    out = call(capsys, "config")[1]
    assert "  4  " in out and "ALLOCATOR_QUEUE" in out


COMPLETE = """
source <(allocator completion bash)
complete -p allocator >/dev/null || exit 9
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<< "$1"
_python_argcomplete allocator
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_completion_in_a_real_bash(tmp_path: Path) -> None:
    """Commands, subcommands, options and choices, by the script that the command prints."""
    program = tmp_path / "allocator"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m allocator "$@"\n'
    )
    program.chmod(0o755)
    for line, words in (
        ("queue node dr", "drain"),
        ("solve --time", "--time-limit"),
        ("solve x --format ", "table json csv"),
    ):
        done = subprocess.run(
            ["bash", "--norc", "-c", COMPLETE, "bash", f"allocator {line}"],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert {*done.stdout.split()} == {*words.split()}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells(shell: str, capsys: Output, tmp_path: Path) -> None:
    """They are scripts that the shell reads."""
    code, out, _ = call(capsys, f"completion {shell}")
    assert code == 0 and "allocator" in out and "_ARGCOMPLETE" in out
    (tmp_path / "script").write_text(out)
    subprocess.run(
        [find_program(shell) or lack(f"no {shell}"), "-n", str(tmp_path / "script")], check=True
    )
