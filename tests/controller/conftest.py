"""Rigs and sites for the tests of the controller, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Output
from controller_rigs import Rig
from sites import Site


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes a rig, each in a folder of its own."""
    made: list[Rig] = []

    def make_rig(**options: Any) -> Rig:
        folder = tmp_path / str(len(made)) if made else tmp_path
        folder.mkdir(exist_ok=True)
        made.append(Rig(folder, **options))
        return made[-1]

    yield make_rig
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Rig:
    """A rig as it is without options."""
    return make()


@pytest.fixture
def site(tmp_path: Path, capsys: Output) -> Iterator[Site]:
    """A queue with controllers and jobs as real processes."""
    made = Site(tmp_path, capsys)
    yield made
    made.close()
