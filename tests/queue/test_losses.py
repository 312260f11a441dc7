"""Losses that a running job reports: their way into the queue, what the next round expects of the
job, and that a crash loses none of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import observe

from allocator import Job, Pool, Problem, Rate
from allocator.controller.controller import Controller, ControllerOptions
from allocator.domain.rules.snapshot_rules import validate
from allocator.loop.executor import Observation, Order, Phase
from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.performance.sizes import estimate_sizes
from allocator.queue.jobs import losses
from allocator.queue.jobs.verbs import list_jobs
from allocator.queue.queue import Queue

NOW = 1_000_000.0
ROUND_S = 60.0
MOST = 1e6  # work that the job states
TRUE = 3000.0  # work after which its loss is at the target of 1


def loss_after(work: float) -> float:
    return 0.5 * (TRUE + 300.0) / (work + 300.0) + 0.5


class Service:
    """A queue of unknown sizes with one job of one GPU that does one unit of work a second."""

    def __init__(self, folder: Path, **reported: float) -> None:
        made = Problem.build(
            jobs=[Job("train", "net", MOST, 1, submitted_s=NOW, target_loss=1.0)],
            pools=[Pool("p", "A", 1)],
            rates=[Rate("net", "A", 1, 1.0)],
            now_s=NOW,
            sizes="unknown",
        )
        self.clock = SimulatedClock(NOW)
        self.queue = Queue.create(folder / "queue.db", made.snapshot, clock=self.clock.now)
        truth = MachineBehaviour(
            rate=lambda order: 1.0,
            pause_s=lambda order, held: 0.0,
            reported=lambda order, done: reported or self._report(order, done),
        )
        self.machines = SimulatedMachines({"p": 1}, self.clock, truth)
        self.new_controller()

    def _report(self, order: Order, done: float) -> dict[str, float]:
        return {"loss": loss_after(MOST - order.remaining_work + done)}

    def new_controller(self) -> None:
        self.controller = Controller(
            self.queue.store,
            SimulatedExecutor(self.machines),  # type: ignore[arg-type]
            self.clock,
            ControllerOptions(every_s=ROUND_S, poll_s=20.0),
        )

    def run(self, rounds: int) -> None:
        for _ in range(3 * rounds):
            self.controller.step()
            self.clock.sleep(20.0)

    def curve(self) -> LossCurve:
        with self.queue.store.read() as connection:
            return losses.read_curves(connection, ["train"])["train"]

    def expected_left(self) -> float:
        """What the next round expects to be left."""
        return float(estimate_sizes(validate(self.queue.snapshot())).jobs.remaining_work[0])


def test_losses_become_the_work_that_is_left(tmp_path: Path) -> None:
    """Without a loss as much is left as was done. From six on, within 5 % of the truth (2 % are
    the mean above the median); and the estimate of the curve is in the queue's snapshot."""
    service = Service(tmp_path)
    service.run(5)
    done = validate(service.queue.snapshot()).jobs
    assert len(service.curve().points) < 6
    assert np.isnan(done.loss_work[0])
    for rounds in (5, 10):
        service.run(rounds)
        jobs = validate(service.queue.snapshot()).jobs
        true = TRUE - (MOST - jobs.remaining_work[0])
        assert service.expected_left() == pytest.approx(true, rel=0.05)
        assert jobs.loss_work[0] == pytest.approx(TRUE, rel=0.02)
    work, error = expect_work([service.curve()], np.array([1.0]))
    assert (jobs.loss_work[0], jobs.loss_error[0]) == (work[0], error[0])


def test_a_new_controller_goes_on_with_the_same_curve(tmp_path: Path) -> None:
    """The losses are in the queue: what a killed controller had learned stays, and what was kept
    twice is kept once."""
    service = Service(tmp_path)
    service.run(12)
    before = service.curve()
    service.clock.sleep(300.0)  # the lease of the killed one ends
    service.new_controller()
    assert service.curve() == before
    service.run(6)
    assert set(before.points) < set(service.curve().points)
    assert service.expected_left() == pytest.approx(TRUE - service.curve().points[-1][0], rel=0.2)


@pytest.mark.parametrize("loss", [-1.0, 0.0, float("nan"), float("inf")])
def test_what_is_no_loss_teaches_nothing(tmp_path: Path, loss: float) -> None:
    service = Service(tmp_path, loss=loss)
    service.run(2)
    assert service.curve() == LossCurve()


def test_purged_jobs_leave_no_losses(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.run(2)
    assert service.curve().points
    service.queue.cancel("train")
    service.run(2)
    service.clock.sleep(1e6)
    service.queue.purge(1.0)
    with service.queue.store.read() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM losses")).scalar_one() == 0


def test_a_job_that_ends_at_its_target_has_done_what_it_did(tmp_path: Path) -> None:
    """It ends with 720 of at most a million done: others of its model learn 720, or the work of its
    last loss where more was seen than is safe."""
    for safe, done in ((720.0, 720.0), (100.0, None)):
        (folder := tmp_path / str(safe)).mkdir()
        service = Service(folder)
        service.run(10)
        last = service.curve().points[-1][0]
        end = Observation("train", 1, service.clock.now(), Phase.FINISHED, safe)
        with service.queue.store.write() as connection:
            before = list_jobs(connection)[0]
            connection.execute(sa.text("UPDATE allocations SET work_done = 0"))
            token = service.controller.cluster.lease_holder.token
            observe(connection, token, [end])
            job = list_jobs(connection)[0]
        assert (before.values["total_work"], job.state) == (MOST, "done")
        assert job.values["total_work"] == pytest.approx(max(done or 0.0, last))
