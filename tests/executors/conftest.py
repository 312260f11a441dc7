"""The rig of tests that name no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from executor_rigs import LocalRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    """Real processes."""
    with closing(LocalRig(tmp_path)) as made:
        yield made
