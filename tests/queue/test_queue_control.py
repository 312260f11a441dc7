"""What a controller does with the queue, on both databases: lease, rounds and wants, starts,
stops, observations.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from allocator.queue.jobs.states import Retries
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 100, "max_gpus": 8}


@pytest.fixture(params=BACKENDS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with fresh(request.param, tmp_path) as made:
        made.submit_many([{"job_id": name, **JOB} for name in "jkl"])
        yield made


def clock(queue: Queue) -> Clock:
    assert isinstance(queue.clock, Clock)
    return queue.clock


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
        (round_journal.mark, 1, "failed"),
        (round_journal.prune, 1),
        (allocations.order_stops, NOW),
        (allocations.order_starts, NOW),
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
    GPU type.
    """
    story = Story(queue)
    story.play("""
        want j=a/2
        starts -> j.1
        say j running
        wait 10
        say j running 15
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


def test_the_same_observation_again_changes_nothing(queue: Queue) -> None:
    """Repeated, late, unknown ones; work counts once, the greatest of a generation, at most what
    was left.
    """
    story = Story(queue)
    story.play("want j=a/2\nstarts\nsay j running 10 -> running:10")
    before = queue.job("j")
    story.play("""
        say j running 10 ->
        say j running 4 ->
        say j.2 running 30 ->
        say ghost.1 running 1 ->
    """)
    assert queue.job("j") == before
    story.play("say j running nan ->\nsay j running 1e9")
    assert queue.job("j").remaining_work == 0.0 and queue.job("j").state == "running"


def test_failures_wait_longer_and_longer_and_end_parked(queue: Queue) -> None:
    """30, 60 s, then parked with the reason; retry begins anew. Lost machines count as no
    failure.
    """
    story = Story(queue)

    def fails() -> verbs.Job:
        story.play("want j=a/2\nstarts")
        seen = Seen("j", queue.job("j").generation, clock(queue).now, "failed", 0, "exit 1")
        story.see(seen, retries=Retries(most=3))
        return queue.job("j")

    for pause in (30.0, 60.0):
        job = fails()
        assert (job.state, job.retry_at_s) == ("paused", clock(queue).now + pause)
        story.play("starts ->")
        # held until then
        assert validate(queue.snapshot()).jobs.state.tolist() == [3, 0, 0]
        clock(queue).now += pause
    story.play("want j=a/2\nstarts -> j.3\nsay j lost")
    assert (queue.job("j").failures, queue.job("j").retry_at_s) == (2, None)
    job = fails()
    assert (job.state, job.park_reason) == (
        "failed",
        "failed 3 times in a row; the last time: exit 1",
    )
    assert [r.job_id for r in queue.jobs(states=["active"])] == ["k", "l"]
    story.play("used -> 0 0")
    assert queue.retry("j")[0].failures == 0 and queue.job("j").state == "paused"


def test_losses_soon_after_the_start_are_retried_later_and_later(queue: Queue) -> None:
    """A job that kills its own supervisor after ten seconds: at once the first time, then after 30,
    60, 120 s, and it is never parked. A loss after ten minutes costs no time."""
    story, waits = Story(queue), []
    for lived in (10, 10, 10, 10, 600):
        story.play("want j=a/2")
        clock(queue).now = max(clock(queue).now, queue.job("j").retry_at_s or 0.0)
        assert story.starts()
        story.play(f"""
            say j running
            wait {lived}
            say j lost
            states -> paused queued queued
        """)
        job = queue.job("j")
        assert job.failures == 0
        waits.append(0.0 if job.retry_at_s is None else job.retry_at_s - clock(queue).now)
    assert waits == [0.0, 30.0, 60.0, 120.0, 0.0]


def test_work_done_in_order_ends_a_row_of_failures(queue: Queue) -> None:
    """A job that failed, and then ran and stopped well, is as good as new."""
    Story(queue).play("""
        want j=a/2
        starts
        say j failed
        wait 40
        starts -> j.2
        say j stopped 5
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
    found = pd.DataFrame(
        {
            name: getattr(problem.jobs, name)
            for name in ("job_id", "state", "gpus", "remaining_work", "attained_gpu_s")
        }
    )
    assert found.to_csv(index=False).split() == [
        "job_id,state,gpus,remaining_work,attained_gpu_s",
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
    was given away again with other cells. Its digest and bytes depend on the queue and on now only,
    and survive the journal.
    """
    one, two = queue.snapshot(), queue.snapshot()
    assert snapshots.pack_snapshot(one) == snapshots.pack_snapshot(two)
    assert snapshots.unpack_snapshot(snapshots.pack_snapshot(one)).digest == two.digest
    assert queue.snapshot(NOW + 1).digest != one.digest
    rows, story = snapshots.PreviousRows(), Story(queue)
    for gpus in (8, 4):
        story.play("cancel l\nwait 1")
        assert queue.purge(0) == 1
        queue.submit_many([{"job_id": "l", **JOB, "max_gpus": gpus}])
        with queue.store.read() as connection:
            warm = snapshots.build_snapshot(connection, NOW + 100, rows)
            assert warm == snapshots.build_snapshot(connection, NOW + 100)
        assert list(warm.tables["jobs.csv"].texts("max_gpus")) == ["8", "8", str(gpus)]


def test_the_first_allocation_under_a_used_name_is_no_change(queue: Queue) -> None:
    """Job l ran, ended and was purged. A new job l starts with generation 2, its first: it has not
    changed. Its next allocation is a change.
    """

    def changed() -> set[str]:
        with queue.store.read() as connection:
            starts = steadiness.read_allocation_starts(connection)
        return {name for name, (_, is_changed) in starts.items() if is_changed}

    story = Story(queue)
    story.play("want l=a/2\nstarts -> l.1")
    assert changed() == set()
    story.play("say l running 10\nsay l finished 90\nwait 1")
    assert queue.purge(0) == 1
    queue.submit_many([{"job_id": "l", **JOB}])
    story.play("want l=a/2\nstarts -> l.2")
    assert changed() == set()
    story.play("""
        say l running 10
        want l=a/4
        stops -> l.2
        say l stopped 20
        starts -> l.3
    """)
    assert changed() == {"l"}


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
    of = {"model": "m", "gpu_type": "A"}
    learned = [
        {**of, "gpus": 2, "work_per_s": 0.95, "state": {"n": 3}},
        {**of, "gpus": 4, "work_per_s": None, "state": {"n": 1}},
        {**of, "gpu_type": "B", "gpus": 2, "work_per_s": 0.75},
    ]
    with queue.store.write() as connection:
        cluster_.learn(connection, learned, NOW)
    rates = queue.snapshot().tables["rates.csv"].texts
    keys = zip(rates("model"), rates("gpu_type"), rates("gpus"), strict=True)
    speed = dict(zip(keys, map(float, rates("work_per_s")), strict=True))
    found = [speed["m", "A", "2"], speed["m", "A", "4"], speed["m", "B", "2"]]
    assert found == pytest.approx([0.95, 3.5, 0.75])


def test_observations_are_kept_for_learning_and_dropped_after(queue: Queue) -> None:
    """The last two of each allocation stay; of jobs that are over none."""
    control = Controller(queue)
    control.want(j=("a", 2), k=("a", 2))
    control.starts()
    for t in range(5):
        control.see(Seen("j", 1, NOW + t, "running", t), Seen("k", 1, NOW + t, "running", t))
    control.say("k", "finished")
    with queue.store.write() as connection:
        assert observations.prune(connection, control.lease.token, 2) == 9
        assert [r["work_done"] for r in verbs.read_observations(connection, "j")] == [3.0, 4.0]
        assert verbs.read_observations(connection, "k") == []


def test_the_database_itself_refuses_two_open_allocations(queue: Queue) -> None:
    """The last line of defence: a partial unique index, and checks on states and phases."""
    control = Controller(queue)
    control.want(j=("a", 2))
    control.starts()
    for statement in (
        (
            "INSERT INTO allocations SELECT job_id, 9, pool, gpus, gpu_type, phase, ordered_s,"
            " running_s, stop_ordered_s, ended_s, observed_s, work_at_start, work_done, detail,"
            " host, held_gpus, memory_gb, since_s, nodes, reported FROM allocations"
        ),
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
        made = queue.snapshot()
        assert made == queue.snapshot()
        problem = validate(made)
        taught = problem.finished
        assert [problem.models[m] for m in taught.model.tolist()] == ["m", "m", "n", "n"]
        assert taught.total_work.tolist() == [9e5, 8e5, 70.0, 90.0]


ROWS = "pool,headroom_gpus,sessions_per_hour,session_s,late_share\na,,,,0.3\nb,1,,,\n"
ASKS = {"model": "m", "total_work": 1e6, "interactive": True}


@pytest.fixture(params=series(BACKENDS, 1))
def hall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """A queue that keeps headroom for sessions."""
    with fresh(request.param, tmp_path, cluster(**{"interactive.csv": ROWS}), Clock()) as made:
        yield made


def kept(hall: Queue) -> list[int]:
    return wanted_headroom(validate(hall.snapshot())).tolist()


def test_a_queue_keeps_what_its_sessions_needed(hall: Queue) -> None:
    """Pool a, 8 GPUs, three of ten sessions may be late. A session of 1 GPU, another of 2 while it
    is there, one of 4 when the first has been gone for a round: needs of 1, 3 and 6, no share of
    three is late, so 6. Batch jobs and pool b do not count; a batch job leaves the 6 GPUs, two
    sessions being there in three of them or not."""
    story = Story(hall)

    def start(name: str, gpus: int, wants: str) -> None:
        hall.submit(**ASKS, job_id=name, min_gpus=gpus, max_gpus=gpus, requested_gpus=gpus)
        story.play(f"wait 10\nwant {wants}\nstarts\nsay {name} running")

    assert kept(hall) == [0, 1]
    hall.submit(**ASKS | {"interactive": False}, job_id="batch", max_gpus=8)
    start("first", 1, "first=a/1")
    assert kept(hall) == [1, 1]
    start("second", 2, "first=a/1 second=a/2")
    assert kept(hall) == [3, 1]
    story.play("say first finished 1e6\nwait 61")
    start("third", 4, "second=a/2 third=a/4")
    assert kept(hall) == [6, 1]
    assert 'pool "a"' not in "".join(validate(hall.snapshot()).warnings)
    result = decide(validate(hall.snapshot())).jobs
    assert dict(zip(result["job_id"], result["gpus"], strict=True)) == {
        "batch": 2,
        "second": 2,
        "third": 4,
    }
    again = hall.snapshot()
    assert again.digest == hall.snapshot().digest


def test_what_is_long_ago_does_not_count(hall: Queue) -> None:
    """A session of 29 days ago."""
    assert isinstance(hall.clock, Clock)
    hall.submit(**ASKS, job_id="old", max_gpus=4, min_gpus=4)
    Story(hall).play("want old=a/4\nstarts")
    assert kept(hall) == [4, 1]
    hall.clock.now = NOW + 29 * 86400
    assert kept(hall) == [0, 1]
