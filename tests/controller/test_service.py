"""The controller on a simulated cluster: rounds, failures of the decision, early rounds,
learning, stuck jobs.
"""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster
from waiting import in_time

from allocator.bench.sabotage import Sabotage
from allocator.cli.main import run as call
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting import journal
from allocator.controller.reporting.expected import NEW, measure_estimates, read_expected
from allocator.controller.reporting.replay import replay
from allocator.controller.reporting.status import format_status, status
from allocator.controller.reporting.telemetry import Metrics, Telemetry
from allocator.engine.decision import Decision, decide_round
from allocator.errors import AuditFailure, Infeasible, NoPlanInTime, UsageError
from allocator.loop.stability import Stability
from allocator.queue import cluster_tables as queue_cluster, round_journal
from allocator.queue.jobs.states import Retries
from allocator.queue.queue import Queue

RATES = {("A", 1): 1.0, ("A", 2): 1.9, ("A", 3): 2.7, ("A", 4): 3.5, ("B", 1): 0.5}


class Rig:
    """A queue, eight GPUs "a" and four "b" that work as believed times `speed`, and a
    controller.
    """

    def __init__(
        self,
        folder: Path,
        options: ControllerOptions | None = None,
        *,
        speed: float = 1.0,
        jobs: str = "",
        decide: Any = decide_round,
        **truth: Any,
    ) -> None:
        self.clock = SimulatedClock(NOW)
        self.queue = Queue.create(folder / "queue.db", cluster(jobs), clock=self.clock.now)
        self.speed = speed
        self.machines = SimulatedMachines(
            {"a": 8, "b": 4},
            self.clock,
            MachineBehaviour(rate=lambda o: RATES[o.gpu_type, o.gpus] * self.speed, **truth),
        )
        self.options = options or ControllerOptions(every_s=60.0, poll_s=10.0)
        self.log = io.StringIO()
        self.decide = decide
        self.controller = self.new()

    def new(self) -> Controller:
        return Controller(
            self.queue.store,
            SimulatedExecutor(self.machines),
            self.clock,
            self.options,
            telemetry=Telemetry(self.clock.now, self.log),
            decide=self._decide,
            holder="me",
        )

    def _decide(self, *arguments: Any, **effort: Any) -> Decision:
        return self.decide(*arguments, **effort)

    def steps(self, seconds: float, each_s: float = 10.0) -> None:
        end = self.clock.now_s + seconds
        while self.clock.now_s < end:
            self.controller.step()
            self.clock.sleep(each_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [row for row in rows if row["event"] == name]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.queue.close()


def submit(rig: Rig, *names: str, work: float = 300.0, **more: Any) -> None:
    for name in names:
        rig.queue.submit(
            **{"job_id": name, "model": "m", "total_work": work, "max_gpus": 4, **more}
        )


def test_jobs_are_done_and_every_round_can_be_decided_again(rig: Rig) -> None:
    """Ticks every 60 s; all jobs end; the plan of every round is found again byte by byte, warm
    rounds too.
    """
    submit(rig, "one", "two", "three", "four", "five")
    rig.steps(900)
    assert rig.queue.counts()["done"] == 5 and rig.machines.breaches == []
    rounds = rig.queue.rounds()
    assert [r.number for r in rounds] == list(range(1, len(rounds) + 1)) and len(rounds) > 3
    assert {r.at_s % 60 for r in rounds} == {NOW % 60}
    assert any(journal.loads(json.dumps(r.options))["memory"] for r in rounds)
    for r in rounds:
        again = replay(rig.queue.store, r.number)
        assert again.same and again.is_digest_valid and again.first is None
    with pytest.raises(UsageError, match="no round 99"):
        replay(rig.queue.store, 99)


def test_a_controller_that_looks_ahead(tmp_path: Path) -> None:
    """Policy `horizon` under --horizon 3: jobs end, the journal knows how far it looked and what
    the round before had planned, and decides every round the same again."""
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, policy="horizon", horizon=3))
    submit(rig, "one", "two", "three")
    rig.steps(600)
    assert rig.queue.counts()["done"] == 3
    rounds = rig.queue.rounds()
    assert (
        sum("plans" in (journal.loads(json.dumps(r.options))["memory"] or {}) for r in rounds) >= 2
    )
    for r in rounds:
        again = replay(rig.queue.store, r.number)
        assert again.same and again.is_digest_valid and "look ahead: 3 intervals" in again.plan
    rig.queue.close()


def test_a_changed_journal_is_noticed(rig: Rig) -> None:
    """Another plan under the round: replay says which line differs."""
    submit(rig, "one", "two")
    rig.steps(10)
    with rig.queue.store.write() as connection:
        entry = round_journal.read(connection, 1)
        assert entry.plan is not None
        start = len(journal.MARK) + 4
        end = start + int.from_bytes(entry.plan[start - 4 : start], "little")
        text = zlib.decompress(entry.plan[start:end]).replace(b'"optimal"', b'"feasible"')
        head = zlib.compress(text)
        plan = journal.MARK + len(head).to_bytes(4, "little") + head + entry.plan[end:]
        connection.execute(round_journal.rounds.update().values(plan=plan))
    found = replay(rig.queue.store)
    assert found.same is False and found.first is not None and "feasible" in found.first[0]


@pytest.mark.parametrize(
    "error",
    [
        NoPlanInTime("nothing found"),
        AuditFailure(["1 GPU too many"]),
        Infeasible(["budget"], []),
        RuntimeError("a bug"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_round_without_a_plan_changes_nothing(rig: Rig, error: Exception) -> None:
    """What runs goes on, the journal says why, the next round recovers."""
    submit(rig, "one", "two", work=1e5)
    rig.steps(60)
    before = {j.job_id: (j.want_pool, j.want_gpus) for j in rig.queue.jobs()}
    submit(rig, "three", work=1e5)

    def fails(*_: Any, **__: Any) -> Decision:
        raise error

    good, rig.decide = rig.decide, fails
    rig.steps(60)
    failed = rig.queue.rounds()[-1]
    assert failed.outcome == "failed" and str(error).splitlines()[0] in failed.detail
    assert {
        j.job_id: (j.want_pool, j.want_gpus) for j in rig.queue.jobs() if j.job_id in before
    } == before
    assert rig.machines.used == {
        "a": sum(g for p, g in before.values() if p == "a"),
        "b": sum(g for p, g in before.values() if p == "b"),
    }
    rig.decide = good
    rig.steps(60)
    assert rig.queue.rounds()[-1].outcome == "applied" and rig.queue.job("three").want_gpus


def test_a_policy_that_hangs_is_stopped(tmp_path: Path) -> None:
    """A decision that never ends is cut off two seconds after its limit, even where it catches
    every Exception.
    """
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, time_limit_s=0.1))
    submit(rig, "one")

    def hangs(*_: Any, **__: Any) -> Decision:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue

    rig.decide = hangs
    with in_time(10.0):
        rig.steps(10)
    assert "did not end" in rig.queue.rounds()[-1].detail
    rig.decide = decide_round
    rig.steps(120)
    assert rig.queue.job("one").want_gpus
    rig.queue.close()


def test_sabotage(tmp_path: Path) -> None:
    """A policy that hangs, breaks rules and crashes in turn: such rounds fail with their reason,
    and all jobs end.
    """
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, time_limit_s=0.1), decide=Sabotage())
    submit(rig, "one", "two", "three", "four", "five", work=700.0)
    rig.steps(900, each_s=60.0)
    failed = [r.detail for r in rig.queue.rounds() if r.outcome == "failed"]
    for words, detail in zip(
        ("did not end within", "AuditFailure", "ZeroDivisionError"), failed, strict=False
    ):
        assert words in detail
    assert len(failed) >= 3 and rig.queue.counts()["done"] == 5 and rig.machines.breaches == []
    rig.queue.close()


def test_early_rounds_are_bounded(tmp_path: Path) -> None:
    """With --react 30 an arrival 10 s after a round waits until 30 s after it; without, until
    the tick.
    """
    for react, expected in ((30.0, 30.0), (1e9, 60.0)):
        folder = tmp_path / str(react)
        folder.mkdir()
        rig = Rig(folder, ControllerOptions(every_s=60.0, react_s=react))
        submit(rig, "one", work=1e5)
        rig.steps(10)
        submit(rig, "two", work=1e5)
        rig.steps(70)
        assert rig.queue.rounds()[1].at_s - NOW == expected
        rig.queue.close()


def test_machines_that_go_are_not_planned_with(rig: Rig) -> None:
    """The executor says that pool "a" has 2 GPUs left: the snapshot of the next round says so
    too.
    """
    submit(rig, "one", "two", work=1e5)
    rig.steps(60)
    rig.machines.set_gpus("a", 2)
    rig.steps(70)
    assert rig.machines.breaches == [] and rig.machines.used["a"] <= 2
    assert sum(j.want_gpus for j in rig.queue.jobs() if j.want_pool == "a") <= 2


def test_wrong_profiles_are_repaired(tmp_path: Path) -> None:
    """Jobs run at half the believed speed: after some rounds the rates that rounds decide with are
    half of the profile's, and the original profile is still there."""
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0), speed=0.5)
    rig.queue.configure(objective="progress")  # the last change is long ago
    submit(rig, "one", "two", work=1e5)
    rig.steps(1500)
    with rig.queue.store.read() as connection:
        learned = {
            (r["gpu_type"], r["gpus"]): r["work_per_s"]
            for r in queue_cluster.read_learned_rates(connection)
        }
    held = {("A" if j.want_pool == "a" else "B", j.want_gpus) for j in rig.queue.jobs()}
    for key in held:
        assert learned[key] == pytest.approx(RATES[key] * 0.5, rel=0.1)
    rig.queue.close()


def test_right_profiles_stay(rig: Rig) -> None:
    """Jobs run as believed: nothing is corrected."""
    submit(rig, "one", "two", "three", work=1e4)
    rig.steps(900)
    with rig.queue.store.read() as connection:
        assert [
            r for r in queue_cluster.read_learned_rates(connection) if r["work_per_s"] is not None
        ] == []


def test_a_job_without_progress_is_retried_and_parked(tmp_path: Path) -> None:
    """Speed zero: flagged after 100 s, tried again after a pause, parked with its reason after
    three times.
    """
    rig = Rig(
        tmp_path,
        ControllerOptions(
            every_s=60.0, stall_s=100.0, retries=Retries(most=3, first_s=10.0, most_s=20.0)
        ),
        speed=0.0,
    )
    submit(rig, "one")
    rig.steps(1500)
    job = rig.queue.job("one")
    assert job.state == "failed" and "no progress for" in job.park_reason and job.generation == 3
    assert len(rig.events("stuck")) == 3
    rig.speed = 1.0
    rig.queue.retry("one")
    rig.steps(600)
    assert rig.queue.job("one").state == "done"
    rig.queue.close()


def test_clocks_that_jump(rig: Rig) -> None:
    """Ten hours forward and twenty back: rounds go on, nothing is lost."""
    submit(rig, "one", "two", work=500.0)
    rig.steps(60)
    for jump in (36000.0, -72000.0):
        rig.clock.jump(jump)
        rig.steps(120)
    rig.steps(600)
    assert rig.queue.counts()["done"] == 2 and rig.machines.breaches == []
    numbers = [r.number for r in rig.queue.rounds()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_cooldown_holds(tmp_path: Path) -> None:
    """With a minimum run time of 1000 s nobody who runs is touched when an urgent job arrives."""
    rig = Rig(
        tmp_path,
        ControllerOptions(every_s=60.0, stability=Stability(min_run_s=1000.0, payback=True)),
    )
    submit(rig, "one", "two", "three", "four", work=1e5)
    rig.steps(60)
    held = {j.job_id: (j.want_pool, j.want_gpus) for j in rig.queue.jobs() if j.state == "running"}
    submit(rig, "urgent", work=1e3, weight=100)
    rig.steps(180)
    assert {
        j.job_id: (j.want_pool, j.want_gpus) for j in rig.queue.jobs() if j.job_id in held
    } == held
    assert all(j.generation <= 1 for j in rig.queue.jobs())
    assert "left alone" in rig.queue.rounds()[-1].detail
    rig.queue.close()


def test_changes_that_do_not_pay_are_held_back(tmp_path: Path) -> None:
    """greedy doubles a job with 40 s left, which costs 30 s: 1.9 (60 - 30) < 60. With --payback
    it is left alone.
    """
    for payback, gpus in ((False, 2), (True, 1)):
        folder = tmp_path / str(payback)
        folder.mkdir()
        rig = Rig(
            folder,
            ControllerOptions(every_s=60.0, policy="greedy", stability=Stability(payback=payback)),
        )
        submit(rig, "one", work=100.0, max_gpus=2, requested_gpus=1)
        submit(rig, *(f"full-{i}" for i in range(7)), work=50.0, max_gpus=1, gpu_types="A")
        rig.steps(61, each_s=60.0)
        job = rig.queue.job("one")
        assert (job.want_gpus, job.generation) == (gpus, 1 if payback else 2)
        assert ("left alone: one" in rig.queue.rounds()[1].detail) == payback
        assert replay(rig.queue.store, 2).same
        rig.queue.close()


def test_a_jump_makes_nobody_stuck(tmp_path: Path) -> None:
    """A clock that jumps by ten hours just when a job has written no checkpoint for a while."""
    rig = Rig(
        tmp_path, ControllerOptions(every_s=60.0, stall_s=300.0), checkpoint_s=lambda order: 200.0
    )
    submit(rig, "one", work=2000.0, max_gpus=1)
    rig.steps(120)
    rig.clock.jump(36000.0)
    rig.steps(2500, each_s=30.0)
    assert rig.events("stuck") == [] and rig.queue.job("one").state == "done"
    rig.queue.close()


def test_left_alone_gives_way_to_rules(tmp_path: Path) -> None:
    """The budget falls below what jobs within their minimum run time cost: that round fails, and
    the next one, at once, decides without the minimum and keeps the budget."""
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, stability=Stability(min_run_s=1e4)))
    submit(rig, "one", "two", work=1e5)
    rig.steps(60)
    rig.queue.configure(budget_per_hour=3.0)
    rig.steps(80, each_s=5.0)
    outcomes = [r.outcome for r in rig.queue.rounds()]
    assert outcomes[1] == "failed" and outcomes[2] in ("decided", "applied")
    prices = {"a": 2.5, "b": 1.0}
    assert (
        0 < sum(prices[j.want_pool] * j.want_gpus for j in rig.queue.jobs() if j.want_gpus) <= 3.0
    )
    rig.queue.close()


def test_status_and_metrics(rig: Rig) -> None:
    """The status names the leading controller, jobs and pools; metrics in Prometheus' format with
    what happened."""
    submit(rig, "one", "two")
    rig.steps(30)
    found = status(rig.queue)
    assert found["controller"]["state"] == "in charge" and found["jobs"]["running"] == 2
    assert any("me leads" in line for line in format_status(found))
    rig.clock.sleep(1e4)
    assert status(rig.queue)["controller"]["state"] == "silent"
    text = rig.controller.log.metrics.text()
    assert (
        'allocator_rounds_total{outcome="decided"} 1' in text
        and 'allocator_jobs{state="running"}' in text
    )
    assert 'allocator_decision_seconds_bucket{le="+Inf"} 1' in text


def test_labels_are_escaped() -> None:
    """Names with quotes, backslashes and line ends make no new lines."""
    metrics = Metrics()
    metrics.set("pool_gpus", 3, pool='a"b\\c\nd')
    assert metrics.text().splitlines()[-1] == 'allocator_pool_gpus{pool="a\\"b\\\\c\\nd"} 3.0'


def test_old_snapshots_are_dropped(tmp_path: Path) -> None:
    """Only the last rounds keep their snapshot and plan; every round stays in the journal."""
    rig = Rig(tmp_path, ControllerOptions(every_s=10.0, policy="greedy", keep_rounds=5))
    submit(rig, "one", work=1e6)
    rig.steps(450)
    rounds = rig.queue.rounds()
    assert len(rounds) == 45
    with pytest.raises(UsageError, match="not kept"):
        replay(rig.queue.store, 1)
    assert replay(rig.queue.store, 45).same
    rig.queue.close()


@pytest.mark.parametrize(
    ("settle_s", "outcome", "holder"), [(30.0, "applied", "new"), (0.0, "decided", "old")]
)
def test_once_follows_its_round(tmp_path: Path, settle_s: float, outcome: str, holder: str) -> None:
    """One GPU; the job that has it is put on hold and takes 20 s to stop. One call ends with the
    next job on it if it may look on for 30 s; else the next call starts that. Each call decides
    once."""
    rig = Rig(
        tmp_path,
        ControllerOptions(every_s=300.0, poll_s=5.0, settle_s=settle_s),
        stop_s=lambda order: 20.0,
    )
    rig.queue.set_gpus({"a": 1, "b": 0})
    submit(rig, "old", work=1e5, max_gpus=1)
    assert rig.controller.run(once=True) == 1 and rig.queue.rounds()[0].outcome == "applied"
    rig.clock.sleep(60.0)
    rig.queue.hold("old")
    submit(rig, "new", work=1e5, max_gpus=1)
    assert rig.new().run(once=True) == 1
    assert [r.outcome for r in rig.queue.rounds()] == ["applied", outcome]
    assert [j.job_id for j in rig.queue.jobs(states=["running"])] == [holder]
    rig.clock.sleep(60.0)
    assert rig.new().run(once=True) == 1
    assert rig.queue.job("new").state == "running" and rig.machines.breaches == []
    rig.queue.close()


def test_every_command_tells_what_the_last_round_expects(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """List, show, status and report read the plan of the round; later, history compares."""
    submit(rig, *(f"job-{i:02}" for i in range(14)), work=400.0, min_gpus=1, max_gpus=1)
    rig.steps(10)
    submit(rig, "late")
    folder = rig.queue.store.name.removeprefix("sqlite:///")
    with rig.queue.store.read() as connection:
        expected = read_expected(connection)
    assert set(expected) == {f"job-{i:02}" for i in range(14)}
    waiting = sorted((row["position"], name) for name, row in expected.items() if row["position"])
    assert [place for place, _ in waiting] == list(range(1, len(waiting) + 1)) and waiting
    assert call(["queue", "list", folder, "--format", "json"]) == 0
    rows = {row["job_id"]: row for row in json.loads(capsys.readouterr().out)["jobs"]}
    assert all({**rows[name], **row} == rows[name] for name, row in expected.items())
    assert rows["late"]["expected_note"] == NEW and rows["late"]["position"] is None
    assert call(["queue", "show", folder, waiting[0][1]]) == 0
    assert "place 1 of those that wait; start in " in capsys.readouterr().out
    found = status(rig.queue)
    assert [row["job_id"] for row in found["waiting"]] == [name for _, name in waiting]
    assert any(line.startswith("waits       job-") for line in format_status(found))
    rig.steps(2000)
    with rig.queue.store.read() as connection:
        outcome = measure_estimates(connection, 1000)[1]
    assert outcome["done"].number == 14 and outcome["start"].number == len(waiting)
    assert 0 <= outcome["start"].covered <= len(waiting)
    assert call(["history", folder, "--estimates"]) == 0
    assert f"of {len(waiting)} in range, error " in capsys.readouterr().out
