"""Jobs in the durable queue, on SQLite and on a real PostgreSQL server alike: submission,
states, lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from queues import BACKENDS, NOW, Story, fresh

import allocator
from allocator.errors import InvalidInput, UsageError
from allocator.queue.queue import Queue

ONE = {"job_id": "j", "model": "m", "total_work": 100, "max_gpus": 4}


@pytest.fixture(params=BACKENDS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with fresh(request.param, tmp_path) as made:
        yield made


def test_what_is_submitted_is_there(queue: Queue) -> None:
    """Every column of the owner comes back as text, defaults as empty cells, numbers as numbers."""
    assert queue.submit(
        **ONE,
        sizes=[1, 2],
        tenant="red",
        command=["python", "a b.py"],
        environment={"X": "é"},
        workdir="runs/j",
    ).new
    job = queue.job("j")
    assert (job.state, job.remaining_work, job.total_work) == ("queued", 100.0, 100.0)
    assert job.submitted_s == NOW
    assert (job.cells["sizes"], job.cells["tenant"], job.cells["weight"]) == ("1|2", "red", "")
    assert (job.command, job.environment, job.workdir) == (
        ("python", "a b.py"),
        {"X": "é"},
        "runs/j",
    )
    assert isinstance(queue, allocator.Queue)


def test_names_the_queue_gives_are_free(queue: Queue) -> None:
    """A name made of model and number that is taken, in the queue or in the same call, is not
    given again.
    """
    queue.submit(**ONE | {"job_id": "m-3"})
    given = queue.submit_many(
        [
            ONE | {"job_id": "m-2-2"},
            *({"key": k, "model": "m", "total_work": 5, "max_gpus": 1} for k in "kl"),
        ]
    )
    assert [s.job_id for s in given] == ["m-2-2", "m-3-2", "m-4"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"total_work": 101}, 'job_id "j" is already in the queue with another content'),
        ({"key": "other"}, 'job_id "j" is already in the queue, submitted with another key'),
    ],
)
def test_other_content_is_refused(queue: Queue, more: dict[str, object], says: str) -> None:
    """A name or key that is taken by something else is a fault; the job stays as it was."""
    queue.submit(**ONE)
    with pytest.raises(InvalidInput, match=says):
        queue.submit(**ONE | more)
    assert queue.job("j").total_work == 100


def test_twice_in_one_call(queue: Queue) -> None:
    """Two rows of one call with the same job_id or key are a slip."""
    with pytest.raises(InvalidInput, match='job_id "j" is submitted twice'):
        queue.submit_many([ONE, ONE])
    with pytest.raises(InvalidInput, match='key "k" is submitted twice'):
        queue.submit_many([ONE | {"key": "k"}, ONE | {"key": "k", "job_id": "i"}])


def test_values_that_cannot_be(queue: Queue) -> None:
    """Unknown names are met with the nearest known one; text that no database keeps is refused
    before it gets there.
    """
    with pytest.raises(UsageError, match='a job has no "max_gpu"; did you mean "max_gpus"'):
        queue.submit(job_id="j", max_gpu=4)
    with pytest.raises(UsageError, match="command must be a list"):
        queue.submit(**ONE, command="python a.py")
    with pytest.raises(UsageError, match="NUL"):
        queue.submit(**ONE, command=["a\0b"])
    for name in ("a\0b", "a\ud800b", "a\nb"):
        with pytest.raises(InvalidInput, match="control character"):
            queue.submit(**ONE | {"job_id": name})
    with pytest.raises(InvalidInput, match="cannot be kept"):
        queue.submit(**ONE, key="a\0b")


def test_predecessors_in_queue_or_call(queue: Queue) -> None:
    """A job may come after jobs of the queue and of the same call, never after itself or in a
    circle.
    """
    queue.submit(**ONE)
    queue.submit_many([ONE | {"job_id": "k", "after": ["j", "l"]}, ONE | {"job_id": "l"}])
    with pytest.raises(InvalidInput, match="circle"):
        queue.submit_many(
            [ONE | {"job_id": "p", "after": "q"}, ONE | {"job_id": "q", "after": "p"}]
        )


def test_many_at_once(queue: Queue) -> None:
    """1,200 jobs in one call are listed in the order given; the same call again adds none."""
    rows = [ONE | {"job_id": f"j{i}"} for i in range(1200)]
    assert all(s.new for s in queue.submit_many(rows))
    assert not any(s.new for s in queue.submit_many(rows))
    assert [job.job_id for job in queue.jobs()] == [row["job_id"] for row in rows]


def test_lists(queue: Queue) -> None:
    """By state, tenant and model; the latest so many, still oldest first."""
    queue.submit_many(
        [
            ONE | {"job_id": "a", "tenant": "red"},
            ONE | {"job_id": "b"},
            ONE | {"job_id": "c", "model": "n", "max_gpus": 1},
        ]
    )
    queue.hold("b")
    queue.cancel("c")

    def ids(**how: object) -> list[str]:
        return [job.job_id for job in queue.jobs(**how)]  # type: ignore[arg-type]

    assert ids(states=["active"]) == ["a", "b"] and ids(states=["held", "cancelled"]) == ["b", "c"]
    assert (
        ids(tenant="red") == ["a"]
        and ids(tenant="default") == ["b", "c"]
        and ids(model="n") == ["c"]
    )
    assert ids(limit=2) == ["b", "c"]
    assert {name: n for name, n in queue.counts().items() if n} == {
        "queued": 1,
        "held": 1,
        "cancelled": 1,
    }
    with pytest.raises(UsageError, match='no state "hold"; did you mean "held"'):
        ids(states=["hold"])


def test_purge_forgets_what_is_over(queue: Queue) -> None:
    """Done and cancelled jobs that ended before, but those that others come after; the name is
    free then.
    """
    queue.submit_many([ONE | {"job_id": name, "after": "k" * (name == "l")} for name in "jkln"])
    story = Story(queue)
    story.play("""
        want j=a/2
        starts -> j.1
        say j running 1
        say j finished
        cancel k n
    """)
    assert queue.purge(0) == 0
    story.play("wait 10")
    assert queue.purge(5) == 2 and [job.job_id for job in queue.jobs()] == ["k", "l"]
    assert queue.submit(**ONE).new
    assert queue.snapshot().tables["jobs.csv"].columns["state"] == ["held", "queued"]


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x")', "+1+1", "-rf", "@sum"])
def test_a_name_that_a_spreadsheet_would_run_is_refused(queue: Queue, name: str) -> None:
    """Plans and exports are opened in spreadsheets: no tenant gets a formula into them."""
    for cells in ({"job_id": name, "model": "m"}, {"job_id": "a", "model": "m", "tenant": name}):
        with pytest.raises(InvalidInput, match="spreadsheets take for a formula"):
            queue.submit(total_work=1, max_gpus=1, **cells)
    assert queue.jobs() == []
