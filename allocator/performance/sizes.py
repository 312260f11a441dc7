"""Estimate the remaining work of jobs whose size is not known.

    known       the value of the column
    predicted   E[S | S > a] - a, where the size S is log-normal about total_work and the standard
                deviation of ln S is size_error
    unknown     learned from the other jobs of the same model, see below

Where the losses of a job say more (loss_work F with loss_error e), they count instead:

    of losses   max(F - a, LEAST_SHARE a) exp(e^2 / 2), the mean of a log-normal rest; where sizes
                are known, at most the value of the column

a = total_work - remaining_work is the work done so far, which is always known.

Unknown sizes. Each job of the same model that is done, of work F_i, stands for a log-normal size
S_i with median F_i. One guess stands for everything else. With P_i = P(S_i > a)

    remaining = (g G + sum over i of P_i E[S_i - a | S_i > a]) / (g + sum over i of P_i)
    G = 2 max(a, M) - a + x        g = (x / (a + x))^2
    x = D x (rate at requested_gpus on the slowest type of the cluster; at min_gpus where no type
        has a rate for requested_gpus)
    M = the most work that any unfinished job of the model has done

D is the interval. The guess G says that a job of unknown size that has run for some time will run
for that time again, as measured of processes (Harchol-Balter and Downey, TOCS 1997). This is the
mean rest of a Pareto size with exponent 2, and g is the probability that such a job is still there.
x stands for the least that a job needs. Another job of the model that has done more work and is not
done shows that this one will need as much: without M the first jobs of a long model would all
count as nearly done.

The deviation of ln S_i is max(0.1, sd n^(-1/5), 0.5 / n) for n finished jobs whose logarithms have
the deviation sd: the rule of thumb for kernels (Silverman, "Density Estimation", 1986, section
3.4.1), and half a size for a single job. At most SIZES quantiles stand for the finished jobs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Finished, Floats, Ints, Problem
from allocator.performance.table import RateTable

LEAST = 1e-6  # share of the work done so far: no job is expected to end at once
SIZES = 16  # sizes that stand for all finished jobs of a model
COVERED = 1.645  # standard deviations on each side of a range of 90 %
LEAST_SHARE = 0.01  # of the work done so far: what losses leave at least
NARROWEST, FIRST = 0.1, 0.5  # deviation of ln S_i: the least; of a single finished job


def estimate_sizes(problem: Problem) -> Problem:
    """Return the problem with its estimate of remaining_work.

    total_work becomes the sum of the estimate and the work done. Known sizes are not changed, nor
    is a problem that has its estimate.
    """
    jobs = problem.jobs
    by_loss = ~np.isnan(jobs.loss_work)
    is_known = problem.sizes == "known" and not by_loss.any()
    if is_known or problem.left_error is not None or not len(jobs):
        return problem
    done = jobs.total_work - jobs.remaining_work
    error = np.where(by_loss, jobs.loss_error, 0.0)
    guessed = None
    left = jobs.remaining_work
    if problem.sizes == "predicted":
        left = expected_remaining(done, jobs.total_work, problem.size_error)
        error[~by_loss] = problem.size_error
    elif problem.sizes == "unknown":
        left = learned_remaining(jobs.model, done, _least_work(problem), problem.finished)
        of_model = np.append(jobs.model, problem.finished.model)
        guessed = (np.bincount(of_model)[jobs.model] == 1) & ~by_loss  # no other job is known
    most = jobs.remaining_work if problem.sizes == "known" else np.inf
    least = np.maximum(jobs.loss_work - done, LEAST_SHARE * done)
    expected = least * np.exp(0.5 * jobs.loss_error**2)
    left = np.where(by_loss, np.minimum(expected, most), left)
    left = np.maximum(left, LEAST * done)
    return dataclasses.replace(
        problem,
        sizes="known",
        guessed=guessed,
        left_error=error,
        jobs=dataclasses.replace(jobs, remaining_work=left, total_work=done + left),
    )


def expected_remaining(done: Floats, predicted: Floats, error: float | Floats) -> Floats:
    """Return the mean of S - a given S > a, (J,).

    With z = ln(a / predicted) / e it is predicted exp(e^2 / 2) Phi(e - z) / Phi(-z) - a.

    Parameters
    ----------
    done : (J,)
        a >= 0.
    predicted : (J,)
        Median of S, > 0.
    error : float or (J,)
        e > 0, standard deviation of ln S.
    """
    from scipy.special import log_ndtr

    z = _deviations(done, predicted, error)
    share = np.where(done > 0, log_ndtr(error - z) - log_ndtr(-z), 0.0)
    return np.asarray(predicted * np.exp(0.5 * error**2 + share) - done, np.float64)


def learned_remaining(model: Ints, done: Floats, least: Floats, finished: Finished) -> Floats:
    """Return the work (J,) expected to be left, as the module describes for unknown sizes.

    Parameters
    ----------
    model : (J,)
        Models of the unfinished jobs.
    done : (J,)
        a, their work so far.
    least : (J,)
        x > 0.
    finished : Finished
        Jobs that are done.
    """
    from scipy.special import log_ndtr

    models = 1 + int(max(model.max(initial=-1), finished.model.max(initial=-1)))
    most = np.zeros(models)
    np.maximum.at(most, model, done)
    guess = 2.0 * np.maximum(done, most[model]) - done + least
    number = np.bincount(finished.model, minlength=models)
    taught = np.flatnonzero(number[model] > 0)
    if not len(taught):
        return guess
    log_size, deviation = _quantiles(finished, number)
    m = model[taught]
    a = done[taught, None]
    e = deviation[model[taught], None]
    size = np.exp(log_size[m])  # (taught, SIZES)
    alive = np.exp(log_ndtr(-_deviations(a, size, e))) * (number[m] / SIZES)[:, None]
    rest = np.maximum(0.0, expected_remaining(np.broadcast_to(a, size.shape), size, e))
    still = (least[taught] / (done[taught] + least[taught])) ** 2
    out = guess.copy()
    out[taught] = (still * guess[taught] + (alive * rest).sum(axis=1)) / (still + alive.sum(axis=1))
    return out


def describe_expected_work(problem: Problem, j: int) -> str | None:
    """Return what is expected to be left of job j and why, None if that is known or predicted.

    `problem` has the estimate of `estimate_sizes`.
    """
    left = problem.jobs.remaining_work[j]
    if problem.left_error is not None and not np.isnan(problem.jobs.loss_work[j]):
        wider = np.exp(COVERED * problem.left_error[j])
        middle = left / np.exp(0.5 * problem.left_error[j] ** 2)
        return (
            f"remaining work {left:.4g} ({middle / wider:.4g} to {middle * wider:.4g}), expected"
            " from the losses that it reports"
        )
    if problem.guessed is None:
        return None
    number = int((problem.finished.model == problem.jobs.model[j]).sum())
    source = "the work that it has done"
    if number:
        source = f"{number} finished job{'s' if number > 1 else ''} of its model"
    elif not problem.guessed[j]:
        source = "the work that unfinished jobs of its model have done"
    return f"remaining work {left:.4g}, expected from {source}"


def _quantiles(finished: Finished, number: Ints) -> tuple[Floats, Floats]:
    """Return SIZES quantiles of ln F of each model (M, SIZES), and the deviation of ln S_i (M,).

    `number` (M,) is the number of finished jobs of each model.
    """
    log = np.log(finished.total_work)
    order = np.lexsort((log, finished.model))
    first = np.cumsum(number) - number
    at = first[:, None] + (
        (np.arange(SIZES) + 0.5) / SIZES * np.maximum(number, 1)[:, None]
    ).astype(np.int64)
    log_size = log[order][np.minimum(at, len(log) - 1)]
    n = np.maximum(number, 1)
    mean = np.bincount(finished.model, log, minlength=len(n)) / n
    square = np.bincount(finished.model, (log - mean[finished.model]) ** 2, minlength=len(n)) / n
    deviation = np.maximum.reduce(
        [np.full(len(n), NARROWEST), np.sqrt(square) * n**-0.2, FIRST / n]
    )
    return log_size, deviation


def _deviations(done: Floats, median: Floats, error: float | Floats) -> Floats:
    """Return ln(a / median) / e, -inf where nothing is done."""
    with np.errstate(divide="ignore"):
        return np.asarray((np.log(done) - np.log(median)) / error, np.float64)


def _least_work(problem: Problem) -> Floats:
    """Return the work of one interval as requested, (J,), on the slowest type with a rate there.

    Where no type has a rate at requested_gpus, min_gpus counts; without a rate there either, the
    rate is one unit of work per second.
    """
    jobs, table = problem.jobs, RateTable.of(problem)
    slowest = np.full((2, len(jobs)), np.inf)
    for t in np.unique(problem.pools.gpu_type):
        for i, gpus in enumerate((jobs.requested_gpus, jobs.min_gpus)):
            rate, _ = table.rate(jobs.model, np.full(len(jobs), t), gpus)
            slowest[i] = np.where(rate > 0, np.fmin(slowest[i], rate), slowest[i])
    asked, smallest = slowest
    known = np.where(np.isfinite(asked), asked, smallest)
    return np.where(np.isfinite(known), known, 1.0) * problem.interval_s
