"""Changes of weight, sizes and deadline of a submitted job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Output, call
from queues import BACKENDS, fresh

import allocator
from allocator.cli.queue.job_options import CHANGEABLE as OPTIONS
from allocator.errors import InvalidInput, UsageError
from allocator.queue.errors import Refused
from allocator.queue.jobs.change import CHANGEABLE
from allocator.queue.queue import Queue

JOB = {"job_id": "x", "model": "m", "total_work": 1000, "max_gpus": 4}


@pytest.fixture
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with fresh(getattr(request, "param", "sqlite"), tmp_path) as queue:
        queue.submit(**JOB)
        yield queue


@pytest.mark.parametrize("queue", BACKENDS, indirect=True)
def test_the_next_snapshot_has_the_change(queue: Queue) -> None:
    """Also where the snapshot before knew the job with its old values."""
    assert allocator.validate(queue.snapshot()).jobs.weight.tolist() == [1.0]
    (job,) = queue.change("x", weight=3, sizes="1|2", max_gpus=2)
    assert (job.values["weight"], job.values["sizes"], job.version) == (3.0, (1, 2), 2)
    problem = allocator.validate(queue.snapshot())
    assert (problem.jobs.weight.tolist(), problem.jobs.max_gpus.tolist()) == ([3.0], [2])
    (job,) = queue.change("x", weight=None, sizes=None, max_gpus=4)
    assert (job.values["weight"], job.values["sizes"]) == (None, None)


def test_changes_and_submissions_that_are_sent_again(queue: Queue) -> None:
    """The same change again leaves the version; the submission finds the job, and does not undo the
    change."""
    for weight in (4, "4"):
        assert queue.change("x", weight=weight)[0].version == 2
    assert not queue.submit(**JOB | {"total_work": 1000.0}).new
    assert queue.job("x").values["weight"] == 4.0


def test_rules_hold_for_changes(queue: Queue) -> None:
    """A job cannot be changed into one that could not be submitted; all jobs or none change."""
    queue.submit(**{**JOB, "job_id": "y", "min_gpus": 2})
    with pytest.raises(InvalidInput, match="max_gpus 1 is below min_gpus 2"):
        queue.change("x", "y", max_gpus=1)
    assert queue.job("x").values["max_gpus"] == 4
    with pytest.raises(UsageError, match='"weigth" of a job cannot be changed; did you mean "weig'):
        queue.change("x", weigth=1)
    with pytest.raises(UsageError, match="no job"):
        queue.change("z", weight=1)
    queue.cancel("x")
    with pytest.raises(Refused, match='"x" cannot be changed: it is cancelled'):
        queue.change("x", weight=1)


def test_the_command_changes_jobs(queue: Queue, capsys: Output) -> None:
    """`allocator queue change` has the columns that the library can change."""
    assert OPTIONS == CHANGEABLE
    out = call(capsys, f"queue change {queue.store.name} x --weight 2 --format json")[1]
    assert json.loads(out)["jobs"][0]["weight"] == 2.0
    assert call(capsys, f"queue change {queue.store.name} x")[0] == 2
