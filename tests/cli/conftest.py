"""What holds for every test of the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from allocator.cli.queue import run


@pytest.fixture(autouse=True, scope="module")
def _no_wait_for_an_actor() -> Iterator[None]:
    """Let `run --once` give up soon in this process: nobody takes the orders of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "KILLED_S", 0.5)
        yield
