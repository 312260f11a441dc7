"""The rig of tests that name no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_rigs import LocalRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    """Real processes."""
    made = LocalRig(tmp_path)
    yield made
    made.close()
