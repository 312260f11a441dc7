"""Losses that a running job reports: their way into the queue, what the next round expects of the
job, and that a crash loses none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from controller_rigs import Rig
from queues import observe

from allocator.domain.rules.snapshot_rules import validate
from allocator.loop.executor import Observation, Order, Phase
from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.performance.sizes import estimate_sizes
from allocator.queue import observations
from allocator.queue.jobs.verbs import list_jobs

MOST = 1e6  # work that the job states
TRUE = 3000.0  # work after which its loss is at the target of 1


def loss_after(work: float) -> float:
    return 0.5 * (TRUE + 300.0) / (work + 300.0) + 0.5


class Service(Rig):
    """A queue of unknown sizes with one job of one GPU that does one unit of work a second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queue.configure(sizes="unknown")
        self.behave(pause_s=lambda order, held: 0.0, reported=self.report)
        self.submit("train", work=MOST, gpus=1, gpu_types="A", target_loss=1.0)

    def report(self, order: Order, done: float) -> dict[str, float]:
        return {"loss": loss_after(MOST - order.remaining_work + done)}

    def run(self, rounds: int) -> None:
        self.steps(60.0 * rounds, 20.0)

    def curve(self) -> LossCurve:
        with self.queue.store.read() as connection:
            return observations.read_curves(connection, ["train"])["train"]

    def expected_left(self) -> float:
        """What the next round expects to be left."""
        return float(estimate_sizes(validate(self.queue.snapshot())).jobs.remaining_work[0])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(Service(tmp_path)) as made:
        yield made


def test_losses_become_the_work_that_is_left(service: Service) -> None:
    """Without a loss as much is left as was done. From six on, within 5 % of the truth (2 % are
    the mean above the median); and the estimate of the curve is in the queue's snapshot."""
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


def test_a_new_controller_goes_on_with_the_same_curve(service: Service) -> None:
    """The losses are in the queue: what a controller had learned stays, and what is kept twice is
    kept once."""
    service.run(12)
    before = service.curve()
    service.renew()
    assert service.curve() == before
    heard = [observations.Heard("train", 1.0, 2000.0, loss_after(2000.0))]
    for _ in range(2):
        with service.queue.store.write() as connection:
            observations.record_losses(connection, heard)
        assert service.curve() == before.add(2000.0, loss_after(2000.0))


@pytest.mark.parametrize("loss", [-1.0, 0.0, float("nan"), float("inf")])
def test_what_is_no_loss_teaches_nothing(service: Service, loss: float) -> None:
    service.behave(reported=lambda order, done: {"loss": loss})
    service.run(2)
    assert service.curve() == LossCurve()


def test_purged_jobs_leave_no_losses(service: Service) -> None:
    service.run(2)
    assert service.curve().points
    service.queue.cancel("train")
    service.run(2)
    service.clock.sleep(1e6)
    service.queue.purge(1.0)
    with service.queue.store.read() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM losses")).scalar_one() == 0


@pytest.mark.parametrize(("safe", "done"), [(720.0, 720.0), (100.0, None)])
def test_a_job_that_ends_at_its_target_has_done_what_it_did(
    service: Service, safe: float, done: float | None
) -> None:
    """It ends with 720 of at most a million done: others of its model learn 720, or the work of its
    last loss where more was seen than is safe."""
    service.run(10)
    last = service.curve().points[-1][0]
    end = Observation("train", 1, service.clock.now(), Phase.FINISHED, safe)
    with service.queue.store.write() as connection:
        connection.execute(sa.text("UPDATE allocations SET work_done = 0"))
        token = service.controller.cluster.lease_holder.token
        observe(connection, token, [end])
        job = list_jobs(connection)[0]
    assert job.state == "done"
    assert job.values["total_work"] == pytest.approx(max(done or 0.0, last))
