"""What is expected to be left of jobs of unknown sizes, from other jobs of the same model."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem

from allocator.domain.problem import Finished
from allocator.performance.sizes import SIZES, estimate_sizes, learned_remaining


def left(done: float, over: list[float]) -> float:
    """What is left of a job of a model of which other jobs are over; the least is 10."""
    none = np.zeros(1, dtype=np.int64)
    teachers = Finished(np.zeros(len(over), dtype=np.int64), np.array(over))
    return float(learned_remaining(none, np.array([done]), np.array([10.0]), teachers)[0])


@pytest.mark.parametrize("done", [0.0, 50.0, 400.0, 3000.0])
def test_the_mixture_is_the_mean_of_the_draws_that_are_longer(done: float) -> None:
    """Sixteen log-normal sizes and a Pareto size, 200,000 quantiles of each: the mean of what the
    sizes above `done` have beyond it."""
    from scipy.special import ndtri

    size = np.geomspace(20.0, 2000.0, SIZES)
    u = (np.arange(200_000) + 0.5) / 200_000
    e = float(np.std(np.log(size))) * SIZES**-0.2
    drawn = *(f * np.exp(e * ndtri(u)) for f in size), 10.0 * ((1 - u) ** -0.5 - 1)
    draws = np.concatenate(drawn) - done
    assert left(done, size.tolist()) == pytest.approx(draws[draws > 0].mean(), rel=0.01)


def test_only_jobs_without_any_other_of_their_model_are_guessed() -> None:
    p = problem(
        jobs=[{"model": m} for m in ("a", "a", "b", "c")],
        rates=[{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": 1.0} for m in "abc"],
        config={"sizes": "unknown"},
        finished=[{"model": "b", "total_work": 700.0}, {"model": "d", "total_work": 5.0}],
    )
    assert np.array_equal(estimate_sizes(p).guessed, [False, False, False, True])
    assert p.warnings == ('finished.csv:3: model "d" has no rate and no job',)


@pytest.mark.parametrize("number", [1, 2, SIZES])
def test_equal_jobs_teach_their_size(number: int) -> None:
    """Before the start, with a guess that counts as one job more."""
    e = max(0.1, 0.5 / number)
    learned = (10.0 + number * 500.0 * np.exp(e**2 / 2)) / (1 + number)
    assert left(0.0, [500.0] * number) == pytest.approx(learned)
