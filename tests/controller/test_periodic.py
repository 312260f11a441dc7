"""Periodic jobs: in workloads by hand, in the queue exactly once whatever happens, with times
that nobody saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_rigs import Rig
from queues import NOW, Clock, fresh

from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput
from allocator.io.workloads import parse_workload
from allocator.queue.jobs import periodic
from allocator.queue.queue import Queue

ONE = {"model": "m", "total_work": 60, "max_gpus": 1}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """An empty queue whose clock stands still."""
    with fresh("sqlite", tmp_path, clock=Clock()) as made:
        yield made


def due(queue: Queue, at_s: float) -> list[tuple[str, float, int]]:
    """What is submitted at a time after the start: name, when it was due, times missed."""
    assert isinstance(queue.clock, Clock)
    queue.clock.now = NOW + at_s
    with queue.store.write() as connection:
        return [
            (r.job_id, r.due_s - NOW, r.missed)
            for r in periodic.submit_due(connection, queue.clock.now)
        ]


def test_it_comes_again_when_it_is_due_and_only_then(queue: Queue) -> None:
    """Every 100 s, three times: at 0, 100 and 200; asked twice, nothing comes twice. Each after the
    one before it, with its deadline 50 s later."""
    queue.submit(job_id="tick", every_s=100, times=3, deadline_s=NOW + 50, **ONE)
    assert (
        due(queue, 99.9) == [] and due(queue, 100) == [("tick@2", 100, 0)] and due(queue, 100) == []
    )
    assert due(queue, 230) == [("tick@3", 200, 0)] and due(queue, 1e6) == []
    second, third = queue.job("tick@2"), queue.job("tick@3")
    assert (second.cells["after"], third.cells["after"]) == ("tick", "tick@2")
    assert (second.submitted_s, float(second.cells["deadline_s"])) == (NOW + 100, NOW + 150)
    assert float(third.cells["deadline_s"]) == NOW + 250 and third.remaining_work == 60
    validate(queue.snapshot())


def test_times_that_nobody_saw_are_missed(queue: Queue) -> None:
    """After 350 s of nobody looking only the time at 300 comes, as number 4; two were missed. With
    five times in all nothing comes after number 5."""
    queue.submit(job_id="tick", every_s=100, times=5, **ONE)
    assert due(queue, 350) == [("tick@4", 300, 2)]
    assert due(queue, 999) == [("tick@5", 400, 0)] and due(queue, 1e5) == []


def test_a_series_ends_when_its_latest_is_cancelled(queue: Queue) -> None:
    """Without `times` it goes on; cancelling an older one changes nothing."""
    queue.submit(job_id="tick", every_s=100, **ONE)
    assert due(queue, 100) == [("tick@2", 100, 0)]
    queue.cancel("tick")
    assert due(queue, 200) == [("tick@3", 200, 0)]
    queue.cancel("tick@3")
    assert due(queue, 900) == []


@pytest.mark.parametrize(
    ("submitted", "came", "after"),
    [
        # other jobs are called so: the next run is tick@2-3, and the one after it goes on from that
        ("tick/100 tick@2 tick@2-2", "tick@2-3, tick@3", "tick@3=tick@2-3"),
        # the second train waits for the second run of prepare, whatever it is called
        (
            "prepare/100 prepare@2 train/100/prepare",
            "prepare@2-2 train@2",
            "train@2=train|prepare@2-2",
        ),
        # the second train comes after the first one, the second prepare, and the one setup there is
        (
            "setup prepare/100 train/100/prepare|setup",
            "prepare@2 train@2, prepare@3 train@3",
            "train@2=train|prepare@2|setup train@3=train@2|prepare@3|setup",
        ),
    ],
    ids=["a name that is taken", "a taken name in a pipeline", "stages of a pipeline"],
)
def test_names_of_later_runs(queue: Queue, submitted: str, came: str, after: str) -> None:
    """Jobs are written name/seconds/after; those called name@2 are of another tenant. A taken name
    suppresses no run and parts no pipeline, and stages of a periodic pipeline keep together."""
    names = ("job_id", "every_s", "after")
    jobs = [dict(zip(names, text.split("/"), strict=False)) for text in submitted.split()]
    queue.submit_many([{**ONE, **job, "tenant": "red" * ("@" in job["job_id"])} for job in jobs])
    for at_s, expected in zip((100, 200), came.split(", "), strict=False):
        assert [name for name, *_ in due(queue, at_s)] == expected.split()
    for name, before in (text.split("=") for text in after.split()):
        assert queue.job(name).cells["after"] == before


def test_what_a_series_goes_on_from_is_not_forgotten(queue: Queue) -> None:
    """A cancelled job may be purged; one whose next time is to come may not."""
    queue.submit_many([{"job_id": "tick", "every_s": 100, **ONE}, {"job_id": "gone", **ONE}])
    queue.cancel("gone")
    queue.clock.now += 50  # type: ignore[attr-defined]
    assert queue.purge(10) == 1 and [j.job_id for j in queue.jobs()] == ["tick"]


def test_the_controller_submits_and_runs_what_is_due(rig: Rig) -> None:
    """60 s of work every 200 s: all three times are done after ten minutes, each submitted at
    its time.
    """
    rig.queue.submit(job_id="tick", every_s=200, times=3, **ONE)
    rig.steps(600)
    submitted = [(job.job_id, job.submitted_s - NOW) for job in rig.queue.jobs()]
    assert submitted == [("tick", 0), ("tick@2", 200), ("tick@3", 400)]
    assert rig.queue.counts()["done"] == 3


def test_a_time_that_never_passes_holds_nothing_up(rig: Rig) -> None:
    """Every nanosecond, of which the clock knows nothing: one run is submitted at each look."""
    rig.queue.submit(job_id="tick", every_s=1e-9, **ONE)
    rig.steps(30)
    assert len(rig.queue.jobs()) == 4


def folder(rows: str, **more: str) -> dict[str, bytes]:
    texts = {
        "workload.csv": (
            "job_id,submitted_s,model,total_work,max_gpus,every_s,times,deadline_s,after\n" + rows
        ),
        "pools.csv": "pool,gpu_type,gpus\np,A,1\n",
        "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,1\n",
        "config.toml": "interval_s = 100\n",
        **more,
    }
    return {name: text.encode() for name, text in texts.items()}


def test_a_periodic_row_of_a_workload_is_many_jobs() -> None:
    """Three times every 1000 s, due 300 s later each; b comes after the a of its own number,
    where there is one.
    """
    jobs = parse_workload(
        "w", folder("a,0,m,100,1,1000,3,300,\nb,10,m,50,1,1000,4,,a\n")
    ).problem.jobs
    assert jobs.job_id == ("a", "b", "a@2", "b@2", "a@3", "b@3", "b@4")
    assert jobs.submitted_s.tolist() == [0, 10, 1000, 1010, 2000, 2010, 3010]
    assert jobs.deadline_s[[0, 2, 4]].tolist() == [300, 1300, 2300]
    assert " ".join("|".join(names) or "-" for names in jobs.after) == (
        "- a a b|a@2 a@2 b@2|a@3 b@3|a@3"
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,0,m,1,1,5,,,\n", '2: every_s needs times, as a workload ends (job "a")'),
        (
            "a,0,m,1,1,,5,,\n",
            '2: times needs every_s, the seconds from one time to the next (job "a")',
        ),
        (
            "a@2,0,m,1,1,,,,\na,0,m,1,1,9,2,,\n",
            '3: its time number 2 is called "a@2", as another job is (job "a")',
        ),
    ],
)
def test_faults_of_workloads(rows: str, said: str) -> None:
    """A workload ends, so that times must be given; a name may not be taken; the lines are those
    of the file.
    """
    with pytest.raises(InvalidInput) as error:
        parse_workload("w", folder(rows))
    assert [str(f) for f in error.value.faults] == [f"workload.csv:{said}"]
