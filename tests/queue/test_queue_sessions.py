"""Headroom that is left to the queue: what its sessions needed, from submission to end, on both
databases.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import series
from queues import BACKENDS, NOW, Clock, Story, cluster, fresh

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.options.kept.headroom import wanted_headroom
from allocator.queue.queue import Queue

ROWS = "pool,headroom_gpus,sessions_per_hour,session_s,late_share\na,,,,0.3\nb,1,,,\n"
ASKS = {"model": "m", "total_work": 1e6, "interactive": True}


@pytest.fixture(params=series(BACKENDS, 1))
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with fresh(request.param, tmp_path, cluster(**{"interactive.csv": ROWS}), Clock()) as made:
        yield made


def kept(queue: Queue) -> list[int]:
    return wanted_headroom(validate(queue.snapshot())).tolist()


def test_a_queue_keeps_what_its_sessions_needed(queue: Queue) -> None:
    """Pool a, 8 GPUs, three of ten sessions may be late. A session of 1 GPU, another of 2 while it
    is there, one of 4 when the first has been gone for a round: needs of 1, 3 and 6, no share of
    three is late, so 6. Batch jobs and pool b do not count; a batch job leaves the 6 GPUs, two
    sessions being there in three of them or not."""
    story = Story(queue)

    def start(name: str, gpus: int, wants: str) -> None:
        queue.submit(**ASKS, job_id=name, min_gpus=gpus, max_gpus=gpus, requested_gpus=gpus)
        story.play(f"wait 10\nwant {wants}\nstarts\nsay {name} running")

    assert kept(queue) == [0, 1]
    queue.submit(**ASKS | {"interactive": False}, job_id="batch", max_gpus=8)
    start("first", 1, "first=a/1")
    assert kept(queue) == [1, 1]
    start("second", 2, "first=a/1 second=a/2")
    assert kept(queue) == [3, 1]
    story.play("say first finished 1e6\nwait 61")
    start("third", 4, "second=a/2 third=a/4")
    assert kept(queue) == [6, 1]
    assert 'pool "a"' not in "".join(validate(queue.snapshot()).warnings)
    result = decide(validate(queue.snapshot())).jobs
    assert dict(zip(result["job_id"], result["gpus"], strict=True)) == {
        "batch": 2,
        "second": 2,
        "third": 4,
    }
    again = queue.snapshot()
    assert again.digest == queue.snapshot().digest


def test_what_is_long_ago_does_not_count(queue: Queue) -> None:
    """A session of 29 days ago."""
    assert isinstance(queue.clock, Clock)
    queue.submit(**ASKS, job_id="old", max_gpus=4, min_gpus=4)
    Story(queue).play("want old=a/4\nstarts")
    assert kept(queue) == [4, 1]
    queue.clock.now = NOW + 29 * 86400
    assert kept(queue) == [0, 1]
