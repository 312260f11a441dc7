from collections.abc import Iterator
from pathlib import Path

import pytest
from queues import BACKENDS, fresh

from allocator.queue.queue import Queue


@pytest.fixture(params=BACKENDS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """An empty queue, on each database."""
    with fresh(request.param, tmp_path) as made:
        yield made
