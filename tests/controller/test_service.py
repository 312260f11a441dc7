"""The controller on a simulated cluster: rounds, failures of the decision, early rounds,
learning, stuck jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from unittest.mock import Mock

import postgres_server
import pytest
import sqlalchemy as sa
from commands import Output, call
from controller_rigs import Rig, believed
from fakes.simulated_executor import SimulatedExecutor
from queues import BACKENDS, NOW

from allocator.bench.sabotage import Sabotage
from allocator.controller.options import Stability
from allocator.controller.reporting.expected import NEW
from allocator.controller.reporting.journal import replay
from allocator.controller.reporting.status import status
from allocator.domain.problem import Problem
from allocator.engine.decision import decide_round
from allocator.errors import Infeasible, UsageError
from allocator.loop.executor import Order
from allocator.queue import round_journal
from allocator.queue.database.schema import rounds
from allocator.queue.holdings import Retries
from allocator.queue.queue import Queue

MakeRig = Callable[..., Rig]


def test_jobs_are_done_and_every_round_can_be_decided_again(rig: Rig) -> None:
    """Ticks every 60 s; all jobs end; the plan of every round is found again byte by byte, warm
    rounds too. They run as believed, so that nothing is corrected.
    """
    rig.submit("one", "two", "three", "four", "five")
    rig.steps(900)
    assert rig.queue.counts()["done"] == 5
    rounds = rig.queue.rounds()
    assert [row for row in rig.learned() if row["work_per_s"] is not None] == []
    assert len(rounds) > 3 and {r.at_s % 60 for r in rounds} == {NOW % 60}
    assert any(r.options["memory"] for r in rounds)
    assert all(again.first is None for again in rig.replay_all())
    with pytest.raises(UsageError, match="no round 99"):
        replay(rig.queue.store, 99)


def test_a_controller_that_looks_ahead(make: MakeRig) -> None:
    """Policy `horizon` under --horizon 3: jobs end, the journal knows how far it looked and what
    the round before had planned, and decides every round the same again."""
    rig = make(policy="horizon", horizon=3)
    rig.submit("one", "two", "three")
    rig.steps(400)
    assert rig.queue.counts()["done"] == 3
    memories = [r.options["memory"] or {} for r in rig.queue.rounds()]
    assert sum("plans" in memory for memory in memories) >= 2
    assert all("look ahead: 3 intervals" in again.plan for again in rig.replay_all())


def test_a_round_without_a_plan_changes_nothing(rig: Rig) -> None:
    """What runs goes on, the journal says why, the next round recovers."""
    rig.submit("one", "two", work=1e5)
    rig.steps(60)
    wanted, used = rig.wanted(), {**rig.machines.used}
    rig.submit("three", work=1e5)
    rig.decide = Mock(side_effect=Infeasible(["budget"], []))
    rig.steps(60)
    failed = rig.queue.rounds()[-1]
    assert failed.outcome == "failed" and "budget" in failed.detail
    assert (rig.wanted(), rig.machines.used) == ({**wanted, "three": ("", 0)}, used)
    rig.decide = decide_round
    rig.steps(60)
    assert rig.queue.rounds()[-1].outcome == "applied" and rig.queue.job("three").want_gpus


@pytest.mark.nightly
def test_sabotage(make: MakeRig) -> None:
    """A policy that hangs, breaks rules and crashes in turn: such rounds fail with their reason,
    and all jobs end.
    """
    rig = make(time_limit_s=0.1, decide=Sabotage())
    rig.submit("one", "two", "three", "four", "five", work=700.0)
    rig.steps(900, each_s=60.0)
    failed = [r.detail for r in rig.queue.rounds() if r.outcome == "failed"]
    words = ("did not end within", "AuditFailure", "ZeroDivisionError")
    assert [word in detail for word, detail in zip(words, failed, strict=False)] == [True] * 3
    assert rig.queue.counts()["done"] == 5


def test_starts_that_were_not_given_wait_for_machines(rig: Rig) -> None:
    """Two starts of four GPUs are ordered and the executor cannot take them; then half of the
    machines go. Neither is given before a round has decided for what is left."""

    class Mute(SimulatedExecutor):
        def start(self, order: Order) -> None:
            raise OSError(28, "disk full")

    rig.renew(Mute)
    rig.submit("one", "two", work=1e5, gpus=4, gpu_types="A")
    rig.controller.step()
    rig.machines.set_gpus("a", 4)
    rig.renew()
    rig.steps(20)
    assert rig.machines.orders == 0
    rig.steps(120)
    assert rig.machines.used["a"] == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quiet_poll_misses_nothing(make: MakeRig, backend: str) -> None:
    """A poll after which nothing changes is not made again, until somebody else writes to the
    queue, machines go or come back, a job's time comes, or a round is due.
    """
    rig = make(name=postgres_server.new_database() if backend == "postgresql" else None)
    rig.submit("one", "two", work=1e6)
    cluster = rig.controller.cluster
    cluster._poll = poll = Mock(wraps=cluster._poll)

    def polls(seconds: float = 0.1) -> bool:
        poll.reset_mock()
        rig.clock.sleep(seconds)
        rig.controller.step()
        return bool(poll.called)

    with Queue(rig.path, clock=rig.clock.now) as other:
        late = {"submitted_s": rig.clock.now_s + 9, "model": "m", "total_work": 1, "max_gpus": 1}
        for change in (
            lambda: other.hold("two"),
            lambda: rig.machines.set_gpus("b", 2),
            lambda: rig.machines.lose("one", "test"),
            lambda: other.submit(job_id="late", **late),
            lambda: rig.clock.sleep(9),
            lambda: rig.clock.sleep(60),
        ):
            assert any(not polls() for _ in range(20)) and not polls()
            change()
            assert polls()


def test_a_round_that_changes_nothing_orders_nothing(rig: Rig) -> None:
    """After a change of a job, or under another controller, it looks at what is wanted again."""
    rig.submit("one", "two", work=1e6)
    rig.steps(60)
    for change in (lambda: rig.queue.change("one", weight=1.0), rig.renew):
        change()
        cluster = rig.controller.cluster
        cluster._write_orders = write = Mock(wraps=cluster._write_orders)
        rig.steps(240, each_s=60)
        assert write.call_count == 1 and rig.queue.rounds()[-1].outcome == "applied"


@pytest.mark.parametrize(
    ("nodes", "rates"), [({"n0": 4}, [2.0, 3.0]), ({"n0": 2, "n1": 2}, [4.0, 3.0])]
)
def test_shapes_are_not_mixed(nodes: dict[str, int], rates: list[float], make: MakeRig) -> None:
    """A job of 4 GPUs runs at half its speed. On one node the packed rate is corrected to that; on
    two nodes nothing is learned. The rate of two nodes stays as it was given."""
    tables = {
        "pools.csv": "pool,gpu_type,gpus,gpus_per_node\na,A,4,4\n",
        "nodes.csv": "node,pool,gpus\n" + "".join(f"{n},a,{k}\n" for n, k in nodes.items()),
        "rates.csv": "model,gpu_type,gpus,work_per_s,spread\nm,A,4,4,\nm,A,4,3,2\n",
    }
    rig = make(tables=tables, nodes=nodes, gpus={"a": 4}, policy="mip")
    rig.behave(rate=lambda order: 2.0 if len(order.nodes) == 1 else 1.5)
    rig.submit("j", work=1e6, gpus=4, placement="spread")
    rig.steps(1200, 20.0)
    assert {row["node"] for row in rig.queue.nodes() if row["jobs"]} == set(nodes)
    found = [*map(float, rig.column("rates", "work_per_s"))]
    assert found == pytest.approx(rates, rel=0.1)
    assert bool(rig.learned()) == (len(nodes) == 1)


def test_a_job_without_progress_is_retried_and_parked(make: MakeRig) -> None:
    """Speed zero: flagged after 100 s, tried again after a pause, parked with its reason after
    three times.
    """
    rig = make(stall_s=100.0, retries=Retries(most=3, first_s=10.0, most_s=20.0))
    rig.behave(rate=lambda order: 0.0)
    rig.submit("one")
    rig.steps(1500)
    job = rig.queue.job("one")
    assert job.state == "failed" and "no progress for" in job.park_reason and job.generation == 3
    assert len(rig.events("stuck")) == 3
    rig.behave(rate=believed)
    rig.queue.retry("one")
    rig.steps(600)
    assert rig.queue.job("one").state == "done"


def test_a_jump_makes_nobody_stuck(make: MakeRig) -> None:
    """A clock that jumps by ten hours just when a job has written no checkpoint for a while, and
    twenty hours back later: rounds go on, and nothing is lost."""
    rig = make(stall_s=300.0)
    rig.behave(checkpoint_s=lambda order: 200.0)
    rig.submit("one", work=2000.0, max_gpus=1)
    rig.steps(120)
    rig.clock.jump(36000.0)
    rig.steps(500, each_s=30.0)
    rig.clock.jump(-72000.0)
    rig.steps(2000, each_s=30.0)
    assert rig.events("stuck") == [] and rig.queue.job("one").state == "done"


@pytest.mark.parametrize(
    ("stability", "gpus"),
    [(Stability(), 2), (Stability(payback=True), 1)],
)
def test_jobs_are_left_alone(make: MakeRig, stability: Stability, gpus: int) -> None:
    """greedy doubles a job with 40 s left, which costs 30 s: 1.9 (60 - 30) < 60. With --payback
    it is left alone.
    """
    rig = make(policy="greedy", stability=stability)
    rig.submit("one", work=100.0, max_gpus=2, requested_gpus=1)
    rig.submit(*(f"full-{i}" for i in range(7)), work=50.0, max_gpus=1, gpu_types="A")
    rig.steps(61, each_s=60.0)
    job = rig.queue.job("one")
    assert (job.want_gpus, job.generation) == (gpus, gpus)
    assert ("left alone: one" in rig.queue.rounds()[1].detail) == (gpus == 1)
    assert replay(rig.queue.store, 2).same


def test_left_alone_gives_way_to_rules(make: MakeRig) -> None:
    """The budget falls below what jobs within their minimum run time cost: that round fails, and
    the next one, at once, decides without the minimum and keeps the budget."""
    rig = make(stability=Stability(min_run_s=1e4))
    rig.submit("one", "two", work=1e5)
    rig.steps(60)
    rig.queue.configure(budget_per_hour=3.0)
    rig.steps(80, each_s=5.0)
    outcomes = [r.outcome for r in rig.queue.rounds()]
    assert outcomes[1] == "failed" and outcomes[2] in ("decided", "applied")
    prices = {"a": 2.5, "b": 1.0, "": 0.0}
    assert 0 < sum(prices[pool] * gpus for pool, gpus in rig.wanted().values()) <= 3.0


def test_status_and_metrics(rig: Rig) -> None:
    """The status names the leading controller, jobs and pools; metrics in Prometheus' format with
    what happened. Quotes, backslashes and line ends in a name make no new lines."""
    rig.submit("one", "two")
    rig.steps(30)
    found = status(rig.queue)
    assert found["controller"]["state"] == "in charge" and found["jobs"]["running"] == 2
    assert any("me leads" in line for line in rig.said(""))
    rig.clock.sleep(1e4)
    assert status(rig.queue)["controller"]["state"] == "silent"
    metrics = rig.controller.log.metrics
    metrics.set("pool_gpus", 3, pool='a"b\\c\nd')
    text = metrics.text()
    for metric in (
        'allocator_rounds_total{outcome="decided"} 1',
        'allocator_jobs{state="running"}',
        'allocator_decision_seconds_bucket{le="+Inf"} 1',
        'allocator_pool_gpus{pool="a\\"b\\\\c\\nd"} 3.0\n',
    ):
        assert metric in text


def test_old_snapshots_are_dropped_and_a_changed_journal_is_noticed(make: MakeRig) -> None:
    """Only the last rounds keep their snapshot and plan; every round stays in the journal. The plan
    of another round stands under the last: replay says which line differs."""
    rig = make(every_s=10.0, policy="greedy", keep_rounds=5)
    rig.submit("one", work=1e6)
    rig.steps(210)
    assert len(rig.queue.rounds()) == 21
    with pytest.raises(UsageError, match="not kept"):
        replay(rig.queue.store, 1)
    assert replay(rig.queue.store, 21).same
    with rig.queue.store.write() as connection:
        plan = round_journal.read(connection, 20).plan
        connection.execute(rounds.update().where(rounds.c.number == 21).values(plan=plan))
    found = replay(rig.queue.store, 21)
    assert found.same is False and found.first is not None and "digest" in found.first[0]


@pytest.mark.parametrize(
    ("settle_s", "outcome", "holder"), [(30.0, "applied", "new"), (0.0, "decided", "old")]
)
def test_once_follows_its_round(make: MakeRig, settle_s: float, outcome: str, holder: str) -> None:
    """One GPU; the job that has it is put on hold and takes 20 s to stop. One call ends with the
    next job on it if it may look on for 30 s; else the next call starts that. Each call decides
    once."""
    rig = make(poll_s=5.0, settle_s=settle_s)
    rig.behave(stop_s=lambda order: 20.0)
    rig.queue.set_gpus({"a": 1, "b": 0})

    def call_once(expected: str) -> None:
        assert rig.controller.run(once=True) == 1
        assert rig.queue.rounds()[-1].outcome == expected
        rig.clock.sleep(60.0)
        rig.renew()

    rig.submit("old", work=1e5, max_gpus=1)
    call_once("applied")
    rig.queue.hold("old")
    rig.submit("new", work=1e5, max_gpus=1)
    call_once(outcome)
    assert [j.job_id for j in rig.queue.jobs(states=["running"])] == [holder]
    call_once("applied")
    assert rig.queue.job("new").state == "running"


def test_every_command_tells_what_the_last_round_expects(rig: Rig, capsys: Output) -> None:
    """List, show and status read the plan of the round; later, history compares."""
    rig.submit(*(f"job-{i:02}" for i in range(14)), work=400.0, gpus=1)
    rig.steps(10)
    rig.submit("late")
    listed = call(capsys, "queue", "list", rig.path, "--format", "json")[1]
    rows = {row["job_id"]: row for row in json.loads(listed)["jobs"]}
    late = rows.pop("late")
    assert (late["expected_note"], late["position"]) == (NEW, None)
    first, _ = names = [row["job_id"] for row in status(rig.queue)["waiting"]]
    assert [rows[name]["position"] for name in names] == [1, 2] and rig.said("waits       job-")
    said = call(capsys, "queue", "show", rig.path, first)[1]
    assert "place 1 of those that wait; start in " in said
    rig.steps(2000)
    said = call(capsys, "history", rig.path, "--estimates")[1]
    assert "of 14 in range, error " in said and "of 2 in range, error " in said


def test_a_round_without_jobs(rig: Rig, capsys: Output) -> None:
    """The only job is cancelled after its round was due and before it was observed: the plan is
    packed and read again without jobs, commands answer, and a new controller decides the next
    round."""
    rig.submit("last")
    observe = rig.controller.cluster.observe

    def observe_after_cancel() -> Problem:
        rig.queue.cancel("last")
        return observe()

    rig.controller.cluster.observe = observe_after_cancel  # type: ignore[method-assign]
    rig.controller.step()
    rig.submit("next", work=50.0)
    for words in ("queue show {} next", "status {}", "history {}", "report {}", "replay {}"):
        code, _, err = call(capsys, words.format(rig.path))
        assert (code, err) == (0, "")
    rig.clock.sleep(60.0)
    rig.renew()
    rig.steps(120.0)
    assert rig.queue.job("next").state == "done"


WATCHED = ("a", "g", "h", "j", "t", "allocations", "jobs", "observations", "turns")


def test_a_step_reads_open_allocations_only(rig: Rig) -> None:
    """No statement of a round goes through all allocations or jobs that ever were: on SQLite each
    finds its rows by an index. What grows without end costs no time."""
    rig.submit("one", "two", work=1e6)
    rig.steps(60)
    said: list[str] = []
    listen = ("checkout", lambda driver, *_: driver.set_trace_callback(said.append))
    sa.event.listen(rig.queue.store.engine, *listen)
    rig.submit("three", work=1e6)
    rig.queue.cancel("one")
    rig.steps(10)
    sa.event.remove(rig.queue.store.engine, *listen)
    with rig.queue.store.read() as connection:
        lines = [
            line[3]
            for statement in said
            if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")
            for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")
        ]
    assert len(lines) > 30
    scans = [line for line in lines if line.startswith("SCAN ") and " USING " not in line]
    assert [line for line in scans if line.split()[1] in WATCHED] == []
