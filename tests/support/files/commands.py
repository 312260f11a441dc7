"""A command as tests call it: in this process."""

from __future__ import annotations

import pytest

from allocator.cli import main

Output = pytest.CaptureFixture[str]


def call(capsys: Output, *argv: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `allocator` with these words."""
    code = main.run([str(word) for word in argv])
    said = capsys.readouterr()
    return code, said.out, said.err
