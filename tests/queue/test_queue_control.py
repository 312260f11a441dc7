"""What a controller does with the queue, on both databases: lease, rounds and wants, starts,
stops, observations.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from everything import EVERYTHING, content
from examples import series
from queues import BACKENDS, NOW, Clock, Controller, Seen, Story, cluster, fresh, observe

from allocator.controller import steadiness
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import OVER_TIME
from allocator.engine.decision import decide
from allocator.errors import UsageError
from allocator.io.snapshots import parse_snapshot
from allocator.options.kept.headroom import wanted_headroom
from allocator.queue import (
    allocations,
    cluster_tables as cluster_,
    lease,
    observations,
    round_journal,
    snapshot as snapshots,
)
from allocator.queue.errors import LeaseLost
from allocator.queue.jobs import verbs
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 100, "max_gpus": 8}


@pytest.fixture(name="queue")
def queue_with_jobs(queue: Queue) -> Queue:
    queue.submit_many([{"job_id": name, **JOB} for name in "jkl"])
    return queue


def test_the_lease_has_one_holder(queue: Queue) -> None:
    """While it lasts nobody else gets it; after its time another does, with a larger token; the
    first one is out. One that ends an hour from now was written by a wrong clock.
    """
    control = Controller(queue, "one", ttl_s=60)
    with queue.store.write() as connection:
        assert lease.take(connection, "two", 60, NOW + 59) is None
        second = lease.take(connection, "two", 60, NOW + 60)
    assert second is not None and second.token == control.lease.token + 1
    with pytest.raises(LeaseLost, match='"two" leads now'):
        control.want(j=("a", 1))
    with pytest.raises(LeaseLost), queue.store.write() as connection:
        lease.renew(connection, control.lease, NOW + 61)
    with queue.store.write() as connection:
        lease.release(connection, control.lease)  # of a lost lease: nothing happens
        assert lease.renew(connection, second, NOW + 100).expires_s == NOW + 160
        assert lease.take(connection, "one", 60, NOW - 3600) is not None


def test_old_tokens_are_refused_everywhere(queue: Queue) -> None:
    """Every write of a controller is guarded, also when nobody ever took the lease."""
    entry = round_journal.JournalRound(NOW, "d", None, "p", "s")
    for call, *more in (
        (round_journal.append, entry, {}),
        (round_journal.mark_applied, 1),
        (round_journal.prune, 1),
        (allocations.order_stops, NOW),
        (allocations.order_starts, NOW, {}),
        (observe, []),
        (observations.prune, 1),
    ):
        with pytest.raises(LeaseLost), queue.store.write() as connection:
            call(connection, 7, *more)  # type: ignore[operator]


def test_starts_fit_next_to_what_has_not_ended(queue: Queue) -> None:
    """8 GPUs: j holds 4, k shall have 6. k starts when the end of j is known, not when its stop
    is ordered. Orders are said again until what they order is seen.
    """
    Story(queue).play("""
        want j=a/4
        starts -> j.1
        starts -> j.1
        want k=a/6 l=b/4
        starts -> j.1 l.1
        stops -> j.1
        stops -> j.1
        starts -> l.1
        used -> 4 4
        say j stopped
        starts -> k.1 l.1
        used -> 6 4
    """)


def test_machines_that_are_gone_take_no_starts(queue: Queue) -> None:
    """The smaller of what the queue says and what is there counts."""
    story = Story(queue)
    story.play("want j=a/4 k=a/2\nstarts a=3 -> k.1")
    queue.set_gpus({"a": 5})
    story.play("starts a=8 -> k.1")
    queue.set_gpus({"a": 6})
    story.play("starts -> j.1 k.1")


def test_a_resize_is_a_stop_and_a_start_of_the_next_generation(queue: Queue) -> None:
    """Work goes on from the checkpoint; the change is counted as restart and as resize, time by
    GPU type. Observations that come again, late, of nobody or of no number change nothing.
    """
    story = Story(queue)
    story.play("""
        want j=a/2
        starts -> j.1
        say j running
        wait 9
        say j running 15 -> 15
        say j running 15 ->
        wait 1
        say j running nan ->
        say j running 4 ->
        say j.2 running 30 ->
        say ghost.1 running 1 ->
        want j=b/4
        stops -> j.1
        wait 2
        say j stopped 20
        states -> paused queued queued
    """)
    assert queue.job("j").remaining_work == 80
    story.play("""
        starts -> j.2
        wait 3
        say j running
        wait 5
        say j finished 1e9
    """)
    job = queue.job("j")
    assert (job.state, job.restarts, job.resizes, job.largest_gpus) == ("done", 1, 1, 4)
    assert job.received == {"A": 12.0, "B": 5.0} and job.attained_gpu_s == 12 * 2 + 5 * 4
    assert job.first_started_s == NOW and job.finished_s == NOW + 20


def test_failures_wait_longer_and_longer_and_end_parked(queue: Queue) -> None:
    """30, 60, 120, 240 s, in which the job is held; then parked with the reason, until its owner
    says so. Lost machines count as no failure.
    """
    story = Story(queue)
    story.play("want j=a/2")
    for pause in (30, 60, 120, 240):
        story.play(f"""
            starts
            say j failed
            wait {pause - 1}
            starts ->
            states -> paused queued queued
        """)
        assert validate(queue.snapshot()).jobs.state.tolist() == [3, 0, 0]
        story.play("wait 1")
    story.play("""
        starts -> j.5
        say j lost
        starts -> j.6
    """)
    story.see(Seen("j", 6, NOW + 450, "failed", detail="exit 1"))
    assert queue.job("j").park_reason == "failed 5 times in a row; the last time: exit 1"
    story.play("""
        states -> failed queued queued
        used -> 0 0
        retry j
        want j=a/2
        starts -> j.7
        say j failed
        states -> paused queued queued
    """)


def test_losses_soon_after_the_start_are_retried_later_and_later(queue: Queue) -> None:
    """A job that kills its own supervisor after ten seconds: at once the first time, then after 30,
    60, 120 s, and it is never parked. A loss after ten minutes costs no time."""
    story, lost = Story(queue), "starts\nsay j running\nwait 10\nsay j lost"
    story.play(f"want j=a/2\n{lost}")
    for pause in (30, 60, 120):
        story.play(f"{lost}\nwait {pause - 1}\nstarts ->\nwait 1")
    story.play("""
        starts -> j.5
        say j running
        wait 600
        say j lost
        starts -> j.6
    """)
    assert queue.job("j").failures == 0


def test_the_snapshot_says_what_jobs_hold_and_had(queue: Queue) -> None:
    """Ordered and running count as running, stopping as paused; time held so far counts until
    now.
    """
    queue.submit(job_id="late", submitted_s=NOW + 1000, after="j", resizes_left=3, **JOB)
    story = Story(queue)
    story.play("""
        want j=a/2 k=a/4 l=b/1
        starts
        say j running
        say k running
        wait 10
        say j running 40
        want j=a/2 l=b/1
        stops -> k.1
    """)
    problem = validate(queue.snapshot())
    names = ("job_id", "state", "gpus", "remaining_work", "attained_gpu_s")
    found = pd.DataFrame({name: getattr(problem.jobs, name) for name in names})
    assert found.to_csv(index=False, header=False).split() == [
        "j,1,2,60.0,20.0",
        "k,2,0,100.0,40.0",
        "l,1,1,100.0,0.0",
    ]
    assert problem.now_s == NOW + 10 and problem.jobs.largest_gpus.tolist() == [2, 4, 0]
    assert problem.received[:2, problem.gpu_types.index("A")].tolist() == [10, 10]
    story.play("""
        cancel k
        say j finished
        wait 1000
    """)
    assert validate(queue.snapshot()).jobs.job_id == ("l", "late")


def test_jobs_behind_one_that_will_not_end_are_held(queue: Queue) -> None:
    """A cancelled predecessor is no longer in the snapshot; whoever comes after it must not
    start for that.
    """
    queue.submit(job_id="next", after="j", **JOB)
    for verb, states in (("cancel", [0, 0, 3]), ("retry", [0, 0, 0, 0])):
        getattr(queue, verb)("j")
        assert validate(queue.snapshot()).jobs.state.tolist() == states


def test_rows_of_the_last_snapshot_are_those_of_the_queue(queue: Queue) -> None:
    """The snapshot with the rows of the one before and without them is the same, also where a name
    was given away again with other cells. Its bytes depend on the queue and on now only.
    """
    one, two = (snapshots.pack_snapshot(queue.snapshot()) for _ in range(2))
    assert one == two
    rows, story = snapshots.PreviousRows(), Story(queue)
    for gpus in (8, 4):
        story.play("cancel l\nwait 1")
        assert queue.purge(0) == 1
        queue.submit(**JOB | {"job_id": "l", "max_gpus": gpus})
        with queue.store.read() as connection:
            warm = snapshots.build_snapshot(connection, NOW + 100, rows)
            assert warm == snapshots.build_snapshot(connection, NOW + 100)
        assert list(warm.tables["jobs.csv"].texts("max_gpus")) == ["8", "8", str(gpus)]


def test_the_first_allocation_under_a_used_name_is_no_change(queue: Queue) -> None:
    """Job l ran, ended and was purged. A new job l starts with generation 2, its first: it has not
    changed. Its next allocation is a change.
    """
    story = Story(queue)
    story.play("want l=a/2\nstarts -> l.1\nsay l finished 100\nwait 1")
    assert queue.purge(0) == 1
    queue.submit(job_id="l", **JOB)
    for text, changed in (
        ("want l=a/2\nstarts -> l.2\nsay l running 10", False),
        ("want l=a/4\nstops -> l.2\nsay l stopped 20\nstarts -> l.3", True),
    ):
        story.play(text)
        with queue.store.read() as connection:
            assert steadiness.read_allocation_starts(connection)["l"][1] is changed


OWN = {"announced", "finished", "models", "spread_pauses", "rates.observed"}
OWN |= {"jobs.loss_work", "jobs.loss_error"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_survives_its_way_through_the_queue(backend: str, tmp_path: Path) -> None:
    """Loaded and exported at the same time, a snapshot with every column is the same problem, but
    for what a queue finds out by itself, and its default of what goes on for many rounds."""
    source = parse_snapshot("everything", EVERYTHING)
    with fresh(backend, tmp_path, source, Clock(1000.0)) as queue:
        before, after = (content(validate(one)) for one in (source, queue.snapshot()))
    other = {key for key in before if before[key] != after[key]}
    assert {key for key in other if not OWN & {key, key.partition(".")[0]}} == set()


def test_settings_and_learned_rates(queue: Queue) -> None:
    """What an operator changes, and what was learned, is in the next snapshot; what cannot be is
    refused. Without changes there are the defaults of what goes on for many rounds.
    """
    config = queue.snapshot().config
    assert {name: config[name] for name in OVER_TIME} == dict(OVER_TIME)
    queue.configure(budget_per_hour=12.5, interval_s=30)
    assert queue.configure(budget_per_hour=None) == {"interval_s": 30}
    with pytest.raises(UsageError, match='no setting "interval"; did you mean "interval_s"'):
        queue.configure(interval=1)
    with pytest.raises(UsageError, match='no setting ""'):
        queue.configure(**{"": 1})
    learned = [("m", "A", 2, 1.25, {}), ("m", "A", 4, None, {}), ("m", "B", 2, 0.75, {})]
    with queue.store.write() as connection:
        cluster_.learn(connection, learned, NOW)
    rates = queue.snapshot().tables["rates.csv"].texts
    found = set(zip(rates("gpu_type"), rates("gpus"), rates("work_per_s"), strict=True))
    assert {("A", "2", "1.25"), ("A", "4", "3.5"), ("B", "2", "0.75")} <= found


def test_observations_are_kept_for_learning_and_dropped_after(queue: Queue) -> None:
    """The last two of each allocation stay; of jobs that are over none."""
    story = Story(queue)
    story.play("want j=a/2 k=a/2\nstarts\nsay k running\nsay k finished")
    for work in range(5):
        story.play(f"wait 1\nsay j running {work}")
    with queue.store.write() as connection:
        assert observations.prune(connection, story.lease.token, 2) == 5
        assert [r["work_done"] for r in verbs.read_observations(connection, "j")] == [3.0, 4.0]
        assert verbs.read_observations(connection, "k") == []


def test_the_database_itself_refuses_two_open_allocations(queue: Queue) -> None:
    """The last line of defence: partial unique indexes, also of the job that runs on another one's
    GPUs, and checks on states and phases."""
    Story(queue).play("want j=a/2 k=a/2\nstarts")
    for statement in (
        (
            "INSERT INTO allocations SELECT job_id, 9, pool, gpus, gpu_type, phase, ordered_s,"
            " running_s, stop_ordered_s, ended_s, observed_s, work_at_start, work_done, detail,"
            " host, held_gpus, memory_gb, since_s, nodes, reported FROM allocations"
        ),
        "UPDATE allocations SET host = 'l'",
        "UPDATE jobs SET state = 'both'",
        "UPDATE allocations SET phase = 'stopped'",
        "UPDATE jobs SET want_gpus = 3",
        "UPDATE jobs SET state = 'done'",
        "DELETE FROM jobs",
    ):
        with pytest.raises(sa.exc.IntegrityError), queue.store.write() as connection:
            connection.execute(sa.text(statement))


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_jobs_that_are_done_teach_the_sizes_of_others(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was cancelled teaches nothing, nor does one of a model without open jobs; of each
    model the latest count. Where sizes are known there is no file.
    """
    monkeypatch.setattr(snapshots, "_FINISHED", snapshots._FINISHED.replace("199", "1"))
    one = {"pools.csv": "pool,gpu_type,gpus\na,A,1\n"}
    with fresh(backend, tmp_path, cluster(**one)) as queue:
        story = Story(queue)
        for row in ("m1 m 2e6", "m2 m 9e5", "n1 n 70", "n2 n 90", "m3 m 8e5", "o o 3"):
            name, model, work = row.split()
            queue.submit(job_id=name, model=model, total_work=float(work), max_gpus=1)
            story.play(f"""
                want {name}=a/1
                starts
                say {name} running
                say {name} finished {work}
                wait 10
            """)
        for name in ("n3", "n4", "m4"):
            queue.submit(job_id=name, model=name[0], total_work=1000, max_gpus=1)
        queue.cancel("n3")
        assert "finished.csv" not in queue.snapshot().tables
        queue.configure(sizes="unknown")
        problem = validate(queue.snapshot())
        taught = problem.finished
        assert [problem.models[m] for m in taught.model.tolist()] == ["m", "m", "n", "n"]
        assert taught.total_work.tolist() == [9e5, 8e5, 70.0, 90.0]


ROWS = "pool,headroom_gpus,sessions_per_hour,session_s,late_share\na,,,,0.3\nb,1,,,\n"


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_a_queue_keeps_what_its_sessions_needed(backend: str, tmp_path: Path) -> None:
    """Pool a, 8 GPUs, three of ten sessions may be late. A session of 1 GPU, another of 2 while it
    is there, one of 4 when the first has been gone for a round: needs of 1, 3 and 6, no share of
    three is late, so 6. Batch jobs and pool b do not count; a batch job leaves the 6 GPUs, two
    sessions being there in three of them or not. What was 29 days ago does not count."""
    with fresh(backend, tmp_path, cluster(**{"interactive.csv": ROWS})) as queue:
        story = Story(queue)

        def kept() -> list[int]:
            return wanted_headroom(validate(queue.snapshot())).tolist()

        assert kept() == [0, 1]
        queue.submit(**JOB, job_id="batch")
        for name, gpus, before, wants, needed in (
            ("first", 1, "", "first=a/1", 1),
            ("second", 2, "", "first=a/1 second=a/2", 3),
            ("third", 4, "say first finished\nwait 61", "second=a/2 third=a/4", 6),
        ):
            story.play(before)
            size = {"min_gpus": gpus, "max_gpus": gpus}
            queue.submit(**JOB | size, job_id=name, interactive=True)
            story.play(f"wait 10\nwant {wants}\nstarts\nsay {name} running")
            assert kept() == [needed, 1]
        problem = validate(queue.snapshot())
        assert 'pool "a"' not in "".join(problem.warnings)
        result = decide(problem).jobs
        assert dict(zip(result["job_id"], result["gpus"], strict=True))["batch"] == 2
        story.play(f"wait {29 * 86400}")
        assert kept() == [0, 1]
