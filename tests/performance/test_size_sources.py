"""Sizes from several groups and Gittins' index, by hand and against draws."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem
from scipy.special import ndtri

from allocator.domain.problem import NO_FINISHED, Finished, Floats
from allocator.performance.sizes import estimate_sizes, learned_remaining
from scripts.studies.default.size_sources import (
    STEPS,
    FinishedOfTenants,
    SizeMixture,
    estimate_with_groups,
    gittins_work,
    mean_left,
    mix_groups,
    work_per_gpu_s,
)

MODEL = np.zeros(1, dtype=np.int64)


def of_one(done: float, *finished: list[float], least: float = 10.0) -> SizeMixture:
    """One job, and the finished jobs of its groups from the closest to the widest."""
    a, x = np.array([done]), np.array([least])
    guess = learned_remaining(MODEL, a, x, NO_FINISHED)
    work = np.array([f for group in finished for f in group])
    place = np.repeat(np.arange(len(finished)), [len(f) for f in finished])
    groups = [(MODEL, np.where(place <= wide, 0, 1)) for wide in range(len(finished))]
    return mix_groups(a, guess, (x / (a + x)) ** 2, groups, work)


def test_a_group_counts_by_its_number_and_leaves_the_rest_to_wider_ones() -> None:
    """Two jobs of the model and tenant, five of the model, eight of the tenant."""
    found = of_one(0.0, [100.0] * 2, [100.0] * 3, [100.0] * 3)
    shares = [g.share.item() for g in found.groups]
    assert shares == pytest.approx([2 / 3, 1 / 3 * 5 / 6, 1 / 18 * 8 / 9])
    assert found.guess_share.item() == pytest.approx(1 / 18 / 9)


@pytest.mark.parametrize("done", [0.0, 80.0, 3000.0])
def test_the_group_of_the_model_alone_is_the_estimate_of_the_product(done: float) -> None:
    work = np.geomspace(20.0, 2000.0, 7)
    product = learned_remaining(
        MODEL, np.array([done]), np.array([10.0]), Finished(np.zeros(7, dtype=np.int64), work)
    )
    assert mean_left(of_one(done, work.tolist())) == pytest.approx(product)


def test_the_index_of_a_guess_is_half_its_mean() -> None:
    """E min(S, x) / P(S <= x) = G (G + x) / (2 G + x) of a Pareto size is least as x goes to 0."""
    mixture = of_one(990.0)
    assert mean_left(mixture).item() == pytest.approx(1000.0)
    assert gittins_work(mixture).item() == pytest.approx(500.0, rel=0.03)


def draws(done: float, sizes: list[float], deviation: float, number: int = 20_000) -> Floats:
    """What is left of log-normal sizes and of the Pareto size of the guess, by quantiles."""
    u = (np.arange(number) + 0.5) / number
    drawn = [f * np.exp(deviation * ndtri(u)) for f in sizes]
    drawn.append(10.0 * ((1 - u) ** -0.5 - 1))
    rest = np.concatenate(drawn) - done
    return np.sort(rest[rest > 0])


@pytest.mark.parametrize("done", [0.0, 25.0, 200.0, 450.0])
@pytest.mark.parametrize("sizes", [[20.0] * 8 + [2000.0] * 8, [500.0] * 16])
def test_the_index_is_the_least_work_per_completion_of_all_draws(
    sizes: list[float], done: float
) -> None:
    """Enumerated: stop after each of the draws. Half of the jobs are short, or all are equal."""
    spread = float(np.std(np.log(sizes)))
    rest = draws(done, sizes, max(0.1, spread * 16**-0.2, 0.5 / 16))
    ends = np.arange(1, len(rest) + 1)
    served = np.cumsum(rest) + rest * (len(rest) - ends)
    mixture = of_one(done, sizes)
    mean = mean_left(mixture).item()
    assert mean == pytest.approx(rest.mean(), rel=0.05)
    tried = (rest >= STEPS[0] * mean) & (rest <= STEPS[-1] * mean)
    best = float((served / ends)[tried].min())
    assert gittins_work(mixture).item() == pytest.approx(best, rel=0.08)


def test_a_tenant_teaches_across_models_in_gpu_seconds() -> None:
    """Model b does twice the work of a in a GPU-second. The tenant's twenty jobs of model a had
    500 GPU-seconds each, so its first job of b is expected to do 1,000; a stranger's is guessed."""
    p = problem(
        jobs=[
            {"model": "b", "tenant": "known", "remaining_work": 7},
            {"model": "c", "tenant": "other", "remaining_work": 7},
        ],
        rates=[
            {"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": r}
            for m, r in (("a", 1.0), ("b", 2.0), ("c", 1.0))
        ],
        config={"sizes": "unknown", "interval_s": 5},
        finished=[{"model": "a", "total_work": 500.0}] * 20,
    )
    known = p.jobs.tenant[0]
    taught = FinishedOfTenants(
        p.finished.model, p.finished.total_work, np.full(20, known, dtype=np.int64)
    )
    p = p.__class__(**{**vars(p), "finished": taught})
    assert work_per_gpu_s(p)[p.jobs.model].tolist() == [2.0, 1.0]
    found = estimate_with_groups(p, by_tenant=True, by_index=False)
    mean = 500.0 * np.exp(0.1**2 / 2)
    assert found.jobs.remaining_work[0] == pytest.approx(2.0 * (20 * mean + 5.0) / 21)
    assert found.guessed is not None
    assert found.guessed.tolist() == [False, True]
    alone = estimate_sizes(p).jobs.remaining_work
    assert found.jobs.remaining_work[1] == pytest.approx(alone[1])
    assert estimate_with_groups(p, False, False).jobs.remaining_work == pytest.approx(alone)
    assert (
        estimate_with_groups(p, True, True).jobs.remaining_work <= found.jobs.remaining_work
    ).all()
