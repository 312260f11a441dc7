"""Periodic jobs: in workloads by hand, in the queue exactly once whatever happens, with times
that nobody saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from everything_workload import EVERY_WORKLOAD
from queues import NOW, Clock, fresh
from test_service import Rig

from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput
from allocator.io.workloads import parse_workload
from allocator.queue.jobs import periodic
from allocator.queue.queue import Queue
from allocator.simulator.run import simulate

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


def test_a_name_that_is_taken_suppresses_no_run(queue: Queue) -> None:
    """Another tenant has submitted tick@2 and tick@2-2: the second run is called tick@2-3, the
    third tick@3.
    """
    taken = [{"job_id": name, "tenant": "red", **ONE} for name in ("tick@2", "tick@2-2")]
    queue.submit_many([{"job_id": "tick", "every_s": 100, **ONE}, *taken])
    assert due(queue, 100) == [("tick@2-3", 100, 0)] and due(queue, 200) == [("tick@3", 200, 0)]
    assert queue.job("tick@3").cells["after"] == "tick@2-3"
    assert queue.job("tick@2").cells["tenant"] == "red"


def test_a_taken_name_does_not_part_a_pipeline(queue: Queue) -> None:
    """Somebody has submitted prepare@2: the second train waits for the second run of prepare,
    whatever it is called.
    """
    queue.submit_many(
        [
            {"job_id": "prepare", "every_s": 100, **ONE},
            {"job_id": "prepare@2", **ONE},
            {"job_id": "train", "every_s": 100, "after": "prepare", **ONE},
        ]
    )
    assert [name for name, *_ in due(queue, 100)] == ["prepare@2-2", "train@2"]
    assert queue.job("train@2").cells["after"] == "train|prepare@2-2"


def test_stages_of_a_periodic_pipeline_keep_together(queue: Queue) -> None:
    """The second train comes after the first train, the second prepare, and the one setup that
    there is.
    """
    queue.submit_many(
        [
            {"job_id": "setup", **ONE},
            {"job_id": "prepare", "every_s": 100, **ONE},
            {"job_id": "train", "every_s": 100, "after": ["prepare", "setup"], **ONE},
        ]
    )
    assert [name for name, *_ in due(queue, 100)] == ["prepare@2", "train@2"]
    assert queue.job("train@2").cells["after"] == "train|prepare@2|setup"
    assert [name for name, *_ in due(queue, 200)] == ["prepare@3", "train@3"]
    assert queue.job("train@3").cells["after"] == "train@2|prepare@3|setup"


def test_what_a_series_goes_on_from_is_not_forgotten(queue: Queue) -> None:
    """A cancelled job may be purged; one whose next time is to come may not."""
    queue.submit_many([{"job_id": "tick", "every_s": 100, **ONE}, {"job_id": "gone", **ONE}])
    queue.cancel("gone")
    queue.clock.now += 50  # type: ignore[attr-defined]
    assert queue.purge(10) == 1 and [j.job_id for j in queue.jobs()] == ["tick"]


def test_the_controller_submits_and_runs_what_is_due(tmp_path: Path) -> None:
    """60 s of work every 200 s: all three times are done after ten minutes, each submitted at
    its time.
    """
    rig = Rig(tmp_path)
    rig.queue.submit(job_id="tick", every_s=200, times=3, **ONE)
    rig.steps(600)
    assert [(j.job_id, j.submitted_s - NOW, j.state) for j in rig.queue.jobs()] == [
        ("tick", 0, "done"),
        ("tick@2", 200, "done"),
        ("tick@3", 400, "done"),
    ]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"times": 3}, "times needs every_s"),
        ({"every_s": 0}, "every_s 0 must be above 0"),
        ({"every_s": 5, "times": 0}, "times 0 is below 1"),
    ],
)
def test_faults(job: dict[str, float], words: str, tmp_path: Path) -> None:
    """Told at submission."""
    with fresh("sqlite", tmp_path) as queue, pytest.raises(InvalidInput, match=words):
        queue.submit(job_id="x", **ONE, **job)


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
    assert jobs.after == (
        (),
        ("a",),
        ("a",),
        ("b", "a@2"),
        ("a@2",),
        ("b@2", "a@3"),
        ("b@3", "a@3"),
    )


def test_simulated_times_wait_for_the_one_before() -> None:
    """250 s of work every 200 s on one GPU: each time starts when the one before is done, none
    is left out.
    """
    w = parse_workload("w", folder("a,0,m,250,1,200,3,,\n"))
    done = simulate(w, policy="static").jobs
    # the rounds are at 300 and 600
    assert done["finished_s"].tolist() == [250, 550, 850]


def test_faults_of_workloads() -> None:
    """A workload ends, so that times must be given; a name may not be taken; the lines are those
    of the file.
    """
    for rows, said in (
        ("a,0,m,1,1,5,,,\n", 'workload.csv:2: every_s needs times, as a workload ends (job "a")'),
        (
            "a,0,m,1,1,,5,,\n",
            'workload.csv:2: times needs every_s, the seconds from one time to the next (job "a")',
        ),
        (
            "a@2,0,m,1,1,,,,\na,0,m,1,1,9,2,,\n",
            'workload.csv:3: its time number 2 is called "a@2", as another job is (job "a")',
        ),
    ):
        with pytest.raises(InvalidInput) as error:
            parse_workload("w", folder(rows))
        assert [str(f) for f in error.value.faults] == [said]
    assert len(parse_workload("all", EVERY_WORKLOAD).problem.jobs) == 8
