"""`allocator submit-slurm`: sbatch with what the job can do, and the plugin for such jobs."""

from __future__ import annotations

import shlex

import pytest

from allocator.cli.main import run
from allocator.clusters.slurm.settings import read_statement


def test_what_is_submitted_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The options become the JSON that an observation reads; what follows -- is left alone."""
    options = ["--min-gpus", "1", "--max-gpus", "8", "--model", "a b", "--total-work", "9e4"]
    assert run(["submit-slurm", *options, "--show", "--", "--gres=gpu:2", "train.sh", "-x"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert [words[0], *words[2:]] == ["sbatch", "--gres=gpu:2", "train.sh", "-x"]
    said, faults = read_statement(words[1].removeprefix("--comment="))
    assert said == {"min_gpus": 1, "max_gpus": 8, "model": "a b", "total_work": 9e4}
    assert faults == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--progress-log", "step", "--", "x.sh"], "has no group"),
        (["--progress-url", "http://localhost:1/", "--", "x.sh"], "no name of a metric"),
        (["--min-gpus", "4", "--max-gpus", "2", "--", "x.sh"], "min_gpus 4 is above max_gpus 2"),
        (["--max-gpus", "2", "--", "--comment=mine", "x.sh"], "leave --comment to it"),
        (["--max-gpus", "0", "--", "x.sh"], "whole number from 1"),
    ],
)
def test_wrong_options(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are usage errors, and nothing is submitted."""
    assert run(["submit-slurm", *words]) == 2
    assert why in capsys.readouterr().err
