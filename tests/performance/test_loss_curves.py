"""Which losses of a job are kept, when they say something, and what rounds make of it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from hypothesis import given, strategies as st

from allocator.domain.problem import Problem
from allocator.errors import InvalidInput
from allocator.performance.fit.loss_curves import (
    LAW,
    MOST_POINTS,
    LossCurve,
    describe_fault,
    expect_work,
)
from allocator.performance.sizes import describe_expected_work, estimate_sizes

HALF = 0.5 * 0.3**2  # of a log-normal rest with the error below the mean is exp(HALF) medians
BY_LOSS = {"total_work": 1000, "remaining_work": 600, "target_loss": 1, "loss_error": 0.3}


def curve(*works: float, target: float = 2000.0, noise: float = 0.0) -> LossCurve:
    luck = np.random.default_rng(0)
    made = LossCurve()
    for k in works:
        loss = 0.5 * (target + 100.0) / (k + 100.0) + 0.5
        made = made.add(k, loss * float(np.exp(noise * luck.standard_normal())))
    return made


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(1e-3, 1e3)), max_size=200))
def test_losses_are_kept_as_they_were_reported(reports: list[tuple[float, float]]) -> None:
    """At most MOST_POINTS, ascending, none that was not reported."""
    made = LossCurve()
    for work, loss in reports:
        made = made.add(work, loss)
    assert len(made.points) <= MOST_POINTS
    assert set(made.points) <= set(reports)
    assert sorted({k for k, _ in made.points}) == [k for k, _ in made.points]
    assert bool(made.points) == bool(reports)


def test_a_long_job_keeps_losses_of_all_its_work() -> None:
    """After 1,000 reports between 32 and 64 are left, evenly spaced; work that is done again adds
    nothing."""
    made = curve(*range(10, 10_010, 10))
    works = np.array([k for k, _ in made.points])
    assert 32 <= len(works) <= 64
    assert np.diff(works).max() <= 2.5 * np.diff(works).min()
    assert made.add(5000.0, 99.0) is made


def test_what_is_no_loss_is_refused() -> None:
    for loss, words in {
        "nan": "a finite number",
        "inf": "a finite number",
        "-1": "above 0",
    }.items():
        assert f"loss {loss}: must be {words}" in (describe_fault(float(loss)) or "")
    assert describe_fault(2.5) is None


def test_what_losses_say() -> None:
    """A clean curve says its end, and the error that all laws have. Too few, a rising one, a target
    below its floor, and early losses with much noise say nothing."""
    clean = curve(*range(50, 1050, 50))
    rising = LossCurve(tuple((k, 5.0 - loss) for k, loss in clean.points))
    early = curve(*range(10, 110, 10), noise=0.2)
    curves = [clean, LossCurve(clean.points[:5]), rising, clean, early, LossCurve()]
    work, error = expect_work(curves, np.array([1.0, 1.0, 1.0, 0.4, 1.0, 1.0]))
    assert work[0] == pytest.approx(2000.0, rel=1e-3)
    assert error[0] == pytest.approx(LAW, rel=1e-2)
    assert np.isnan(work[1:]).all()
    assert np.isnan(error[1:]).all()


def made(**changes: float) -> Problem:
    """A job of 1,000, of which 400 are done, and whose losses say something; another one of which
    nothing is known."""
    return problem(
        jobs=[BY_LOSS | changes, {"model": "n", "total_work": 500, "remaining_work": 500}],
        rates=[{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": 1.0} for m in ("m", "n")],
        config={"sizes": "unknown", "interval_s": 300},
    )


def test_losses_say_what_is_left() -> None:
    """100 by the median, 100 exp(.045) in the mean; of the other job nothing is known. The range is
    that of times and divided by exp(1.645 x 0.3)."""
    found = estimate_sizes(made(loss_work=500.0))
    assert found.jobs.remaining_work == pytest.approx([100 * np.exp(HALF), 300.0])
    assert estimate_sizes(found) is found
    assert describe_expected_work(found, 0) == (
        "remaining work 104.6 (61.05 to 163.8), expected from the losses that it reports"
    )
    assert found.guessed is not None and found.guessed.tolist() == [False, True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss_work": 5.0, "loss_error": None}, "loss_work 5 needs loss_error, which is empty"),
        ({"loss_error": 0.3}, "loss_error 0.3 needs loss_work, which is empty"),
        ({"loss_work": 5.0, "target_loss": None}, "loss_work 5 needs target_loss"),
    ],
)
def test_faults_name_file_line_job_value_and_rule(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(**changes)  # type: ignore[arg-type]
    [fault] = caught.value.faults
    assert (fault.file, fault.line) == ("jobs.csv", 2)
    assert words in fault.message
