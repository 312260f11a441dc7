"""Jobs in the durable queue, on SQLite and on a real PostgreSQL server alike: submission, states,
lists, changes.
"""

from __future__ import annotations

import json

import pytest
from commands import Output, call
from queues import NOW, Story

import allocator
from allocator.cli.queue.commands import CHANGEABLE as OPTIONS
from allocator.domain.schema.workload_columns import CHANGEABLE
from allocator.errors import InvalidInput, UsageError
from allocator.queue.errors import Refused
from allocator.queue.queue import Queue

ONE = {"job_id": "j", "model": "m", "total_work": 100, "max_gpus": 4}


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


OTHER = ONE | {"job_id": "i"}


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([ONE | {"total_work": 101}], InvalidInput, '"j" is already in the queue with another con'),
        ([ONE | {"key": "k"}], InvalidInput, '"j" is already in the queue, submitted with another'),
        ([OTHER, OTHER], InvalidInput, 'job_id "i" is submitted twice'),
        ([OTHER | {"key": "k"}, ONE | {"job_id": "h", "key": "k"}], InvalidInput, 'key "k" is sub'),
        ([OTHER | {"after": "h"}, ONE | {"job_id": "h", "after": "i"}], InvalidInput, "circle"),
        ([OTHER | {"max_gpu": 4}], UsageError, 'no "max_gpu"; did you mean "max_gpus"'),
        ([OTHER | {"command": "python a.py"}], UsageError, "command must be a list"),
        ([OTHER | {"command": ["a\0b"]}], UsageError, "NUL"),
        ([OTHER | {"key": "a\0b"}], InvalidInput, "cannot be kept"),
        *(
            ([ONE | {"job_id": name}], InvalidInput, "control character")
            for name in ("a\0b", "a\ud800b", "a\nb")
        ),
        *(
            ([OTHER, OTHER | {column: name}], InvalidInput, "spreadsheets take for a formula")
            for column in ("job_id", "tenant")
            for name in ('=HYPERLINK("http://x")', "+1+1", "-rf", "@sum")
        ),
    ],
)
def test_what_is_refused(
    queue: Queue, rows: list[dict[str, object]], error: type[Exception], words: str
) -> None:
    """A name or key that is taken by something else, or twice in one call; circles; unknown names
    and text that no database keeps; what a spreadsheet would run. Nothing of the call is kept.
    """
    queue.submit(**ONE)
    with pytest.raises(error, match=words):
        queue.submit_many(rows)
    assert [job.total_work for job in queue.jobs()] == [100]


def test_predecessors_in_queue_or_call(queue: Queue) -> None:
    """A job may come after jobs of the queue and of the same call."""
    queue.submit(**ONE)
    queue.submit_many([ONE | {"job_id": "k", "after": ["j", "l"]}, ONE | {"job_id": "l"}])
    assert queue.job("k").cells["after"] == "j|l"


def test_many_at_once(queue: Queue) -> None:
    """1,200 jobs in one call are listed in the order given; the same call again adds none."""
    rows = [ONE | {"job_id": f"j{i}"} for i in range(1200)]
    assert all(s.new for s in queue.submit_many(rows))
    assert not any(s.new for s in queue.submit_many(rows))
    assert [job.job_id for job in queue.jobs()] == [row["job_id"] for row in rows]


def test_lists(queue: Queue) -> None:
    """By state, tenant, model and cluster; the latest so many, still oldest first."""
    queue.submit_many(
        [
            ONE | {"job_id": "a", "tenant": "red"},
            ONE | {"job_id": "b"},
            ONE | {"job_id": "c", "model": "n", "max_gpus": 1, "cluster": "hall 1"},
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
        and ids(model="n") == ids(cluster="hall 1") == ["c"]
    )
    assert ids(limit=2) == ["b", "c"]
    assert {name for name, n in queue.counts().items() if n} == {"queued", "held", "cancelled"}
    with pytest.raises(UsageError, match='no state "hold"; did you mean "held"'):
        ids(states=["hold"])
    with pytest.raises(UsageError, match='mean "cluster"'):
        ids(clustr="hall 1")


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


LONG = {"job_id": "x", "model": "m", "total_work": 1000, "max_gpus": 4}


def test_the_next_snapshot_has_the_change(queue: Queue) -> None:
    """Also where the snapshot before knew the job with its old values."""
    queue.submit(**LONG)
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
    queue.submit(**LONG)
    for weight in (4, "4"):
        assert queue.change("x", weight=weight)[0].version == 2
    assert not queue.submit(**LONG | {"total_work": 1000.0}).new
    assert queue.job("x").values["weight"] == 4.0


def test_rules_hold_for_changes(queue: Queue) -> None:
    """A job cannot be changed into one that could not be queue; all jobs or none change."""
    queue.submit(**LONG)
    queue.submit(**{**LONG, "job_id": "y", "min_gpus": 2})
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
    queue.submit(**LONG)
    assert OPTIONS == CHANGEABLE
    name = queue.store.engine.url.render_as_string(hide_password=False)
    out = call(capsys, f"queue change {name} x --weight 2 --format json")[1]
    assert json.loads(out)["jobs"][0]["weight"] == 2.0
    assert call(capsys, f"queue change {name} x")[0] == 2
