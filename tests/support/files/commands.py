"""A command as tests call it: in this process."""

from __future__ import annotations

import shlex

import pytest

from allocator.cli import main

Output = pytest.CaptureFixture[str]


def call(capsys: Output, *argv: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `allocator` with these words. One text is
    a line as it is typed.
    """
    words = [str(word) for word in argv]
    code = main.run(shlex.split(words[0]) if len(words) == 1 else words)
    said = capsys.readouterr()
    return code, said.out, said.err
