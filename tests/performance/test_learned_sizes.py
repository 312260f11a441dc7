"""What is expected to be left of jobs of unknown sizes, from other jobs of the same model."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from hypothesis import given, strategies as st

from allocator.domain.problem import NO_FINISHED, Finished, Floats
from allocator.performance.sizes import (
    FIRST,
    NARROWEST,
    SIZES,
    estimate_sizes,
    is_alone_in_model,
    learned_remaining,
)

WORK = st.floats(0.0, 1e6)
SIZE = st.floats(1e-2, 1e6)
ROUNDS = st.integers(1, 5).flatmap(
    lambda models: st.tuples(
        st.just(models),
        st.lists(st.tuples(st.integers(0, models - 1), WORK, SIZE), min_size=1, max_size=6),
        st.lists(st.tuples(st.integers(0, models - 1), SIZE), max_size=40),
    )
)
Round = tuple[int, list[tuple[int, float, float]], list[tuple[int, float]]]


def finished(*rows: tuple[int, float]) -> Finished:
    """Finished jobs as (model, total_work)."""
    return Finished(
        np.array([m for m, _ in rows], dtype=np.int64), np.array([f for _, f in rows], dtype=float)
    )


def left(
    done: list[float], over: Finished = NO_FINISHED, least: float = 10.0, models: str = ""
) -> Floats:
    """What is left of jobs of these models, "a" for all unless they are given."""
    model = np.array([ord(m) - ord("a") for m in models or "a" * len(done)], dtype=np.int64)
    return learned_remaining(model, np.array(done), np.full(len(done), least), over)


def test_without_another_job_as_much_is_left_as_was_done() -> None:
    """And the least work; a job of another model says nothing."""
    assert left([0.0, 500.0], models="ab").tolist() == [10.0, 510.0]
    assert left([500.0], finished((1, 70.0))).tolist() == [510.0]


def test_another_unfinished_job_that_has_done_more_shows_that_more_is_left() -> None:
    """2 max(a, M) - a + x with M = 800."""
    assert left([0.0, 300.0, 800.0]).tolist() == [1610.0, 1310.0, 810.0]


@pytest.mark.parametrize("number", range(1, SIZES + 1))
def test_equal_jobs_teach_their_size(number: int) -> None:
    """Before the start, with a guess that counts as one job more."""
    e = max(NARROWEST, FIRST / number)
    mean = 500.0 * np.exp(e**2 / 2)
    assert left([0.0], finished(*[(0, 500.0)] * number)).item() == pytest.approx(
        (10.0 + number * mean) / (1 + number)
    )


@pytest.mark.parametrize("done", [0.0, 50.0, 400.0, 3000.0])
def test_the_mixture_is_the_mean_of_the_draws_that_are_longer(done: float) -> None:
    """Sixteen log-normal sizes and a Pareto size, 200,000 quantiles of each: the mean of what the
    sizes above `done` have beyond it."""
    from scipy.special import ndtri

    size = np.geomspace(20.0, 2000.0, SIZES)
    u = (np.arange(200_000) + 0.5) / 200_000
    e = float(np.std(np.log(size))) * SIZES**-0.2
    rest, number = 0.0, 0
    for draws in (*(f * np.exp(e * ndtri(u)) for f in size), 10.0 * ((1 - u) ** -0.5 - 1)):
        longer = draws[draws > done]
        rest, number = rest + float((longer - done).sum()), number + len(longer)
    learned = left([done], finished(*[(0, f) for f in size.tolist()])).item()
    assert learned == pytest.approx(rest / number, rel=0.01)


@given(ROUNDS, st.randoms(use_true_random=False))
def test_names_of_models_and_the_order_of_rows_do_not_matter(made: Round, rng: object) -> None:
    """Something is always left."""
    models, jobs, over = made
    model, done, least = (np.array(x) for x in zip(*jobs, strict=True))
    name = list(range(models + 2))
    rng.shuffle(name)  # type: ignore[attr-defined]
    other = [(name[m], f) for m, f in over]
    rng.shuffle(other)  # type: ignore[attr-defined]
    out = learned_remaining(model, done, least, finished(*over))
    assert np.isfinite(out).all()
    assert (out > 0).all()
    renamed = np.array(name)[model]
    assert learned_remaining(renamed, done, least, finished(*other)) == pytest.approx(
        out, rel=1e-9, abs=1e-12
    )
    assert (
        is_alone_in_model(renamed, finished(*other)) == is_alone_in_model(model, finished(*over))
    ).all()


def test_only_jobs_without_any_other_of_their_model_are_guessed() -> None:
    p = problem(
        jobs=[{"model": m} for m in ("a", "a", "b", "c")],
        rates=[{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": 1.0} for m in "abc"],
        config={"sizes": "unknown"},
        finished=[{"model": "b", "total_work": 700.0}, {"model": "d", "total_work": 5.0}],
    )
    guessed = estimate_sizes(p).guessed
    assert guessed is not None
    assert guessed.tolist() == [False, False, False, True]
    assert p.warnings == ('finished.csv:3: model "d" has no rate and no job',)
