"""Gradient noise that jobs report: its estimate, its way to the controller, and what it decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases.profiled_job import ProfiledJob

from allocator.controller.reporting.status import format_status, status
from allocator.executors import report
from allocator.performance.fit.learned_noise import LearnedNoise
from allocator.queue.jobs import verbs

COMPUTE, SYNC = 0.02, 0.4
LEAST, MOST = 256, 4096
SIZES = (1, 2, 4, 8, 16)
BELIEVED = {
    "compute": 0.05,
    "sync": 0.3,
    "min_batch": LEAST,
    "max_batch": MOST,
    "min_gpus": 1,
    "max_gpus": 16,
    "error": 0.3,
}


def true_speed(gpus: float, batch: float, noise_scale: float) -> float:
    """Useful samples per second: batch / step time x what a sample counts."""
    step_s = COMPUTE * batch / gpus + SYNC * gpus
    return batch / step_s * (noise_scale + LEAST) / (noise_scale + batch)


def draw_norms(noise_scale: float, luck: np.random.Generator) -> dict[str, float]:
    """Squared norms of the mean gradients of 8 parts of 32 samples, and of all 256.

    The true gradient has norm 1, and the gradient of a sample the covariance noise_scale / n I.
    """
    n = 20_000
    true = np.full(n, n**-0.5, dtype=np.float32)
    deviation = (noise_scale / n / 32) ** 0.5
    parts = true + deviation * luck.standard_normal((8, n), dtype=np.float32)
    return {
        "small_batch": 32.0,
        "small_norm2": float((parts**2).sum(axis=1).mean()),
        "batch": 256.0,
        "norm2": float((parts.mean(axis=0) ** 2).sum()),
    }


def test_reports_that_make_no_sense_teach_nothing() -> None:
    """Fields that are missing, negative or of equal batches change nothing."""
    good = {"small_batch": 32.0, "small_norm2": 5.0, "batch": 128.0, "norm2": 2.0}
    for change in ({"batch": 32.0}, {"norm2": -1.0}, {"small_batch": 0.0}):
        assert LearnedNoise().add_report(good | change) == LearnedNoise()
    assert LearnedNoise().add_report({"noise_scale": -1.0, "loss": 2.0}) == LearnedNoise()
    assert np.isnan(LearnedNoise().add_report(good | {"norm2": 6.0}).noise_scale)


def test_a_report_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written last is read, a loss with the work done where it was, not with what is safe
    of it; what is no field, no number or not finite is left out. Outside of an allocation nothing
    is written."""
    path = tmp_path / "progress"
    monkeypatch.delenv("ALLOCATOR_PROGRESS", raising=False)
    report.progress(1, 1)
    monkeypatch.setenv("ALLOCATOR_PROGRESS", str(path))
    report.progress(5, 3)
    report.progress(9.0, 8.0, noise_scale=1200.0, loss=2.5)
    assert [*tmp_path.iterdir()] == [path]
    said = {"noise_scale": 1200.0, "loss": 2.5, "loss_at": 9.0}
    assert report.read(path) == (9.0, 8.0, said)
    path.write_text("9 8 loss=2.5 loss_at=8.5\n")
    assert report.read(path) == (9.0, 8.0, {"loss": 2.5, "loss_at": 8.5})
    path.write_text("9 8 noise_scale=nan loss=1e999 colour=1 batch== norm2 \0 =3 batch=64\n")
    assert report.read(path) == (9.0, 8.0, {"batch": 64.0})
    path.unlink()
    assert report.read(path) is None


@pytest.mark.nightly
def test_the_batch_follows_the_noise_while_a_job_trains(tmp_path: Path) -> None:
    """The noise scale grows from 500 to 5,000 after the trials. With reports the believed speeds
    of all ways are within 5 % of the truth and the job runs within 3 % of the best batch, before
    and after, without a start in between. Without reports it stays at the batch of before."""
    configurations = {}
    for says in (True, False):
        noise, luck = [500.0], np.random.default_rng(2)
        (folder := tmp_path / str(says)).mkdir()
        service = ProfiledJob(
            folder,
            lambda k, b: true_speed(k, b, noise[0]),  # noqa: B023
            BELIEVED,
            8.0,
            work=1e9,
            poll_s=60.0,
            reported=(lambda done: draw_norms(noise[0], luck)) if says else None,  # noqa: B023
        )
        told = []
        for noise[0] in (500.0, 5000.0):
            service.run(25)
            told.append(service.configurations[-1][1:])
            if not says:
                continue
            ways = service.believed_ways()
            pairs = zip(ways.gpus.tolist(), ways.batch.tolist(), strict=True)
            true = np.array([true_speed(k, b, noise[0]) for k, b in pairs])
            assert np.abs(true / ways.rate - 1).mean() <= 0.05
            best = max(
                true_speed(k, b, noise[0]) for k in SIZES for b in range(LEAST, MOST + 1, 32)
            )
            assert true_speed(*told[-1], noise[0]) >= 0.97 * best
        configurations[says] = told
        if says:
            _check_what_is_shown(service)
        assert not service.machines.breaches
        service.queue.close()
    assert configurations[True][1][1] > 2 * configurations[True][0][1]
    assert configurations[False][1] == configurations[False][0]


def _check_what_is_shown(service: ProfiledJob) -> None:
    """The status has the noise scale, and the queue what was reported."""
    [line] = [line for line in format_status(status(service.queue)) if line.startswith("noise")]
    assert line.startswith("noise       net: gradient noise scale ")
    with service.queue.store.read() as connection:
        last = verbs.history(connection, "train")[-1]["reported"]
        kept = [one["reported"] for one in verbs.read_observations(connection, "train")]
    assert last.keys() == {"small_batch", "small_norm2", "batch", "norm2"}
    assert any(kept)
