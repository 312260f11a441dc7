"""Estimate the remaining work of jobs whose size is not known.

    known       the value of the column
    predicted   E[S | S > a] - a, where the size S is log-normal about total_work and the standard
                deviation of ln S is size_error
    unknown     a + D x (rate at requested_gpus on the slowest type of the cluster)

a = total_work - remaining_work is the work done so far, which is always known. D is the interval. A
job of unknown size that has run for some time is expected to run for that time again, as measured
of processes (Harchol-Balter and Downey, TOCS 1997). This is the mean rest of a Pareto size with
exponent 2. D x rate stands for the least that a job needs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Floats, Problem
from allocator.performance.table import RateTable

LEAST = 1e-6  # share of the work done so far: no job is expected to end at once


def estimate_sizes(problem: Problem) -> Problem:
    """Return the problem with its estimate of remaining_work.

    total_work becomes the sum of the estimate and the work done. Known sizes are not changed.
    """
    if problem.sizes == "known" or not len(problem.jobs):
        return problem
    done = problem.jobs.total_work - problem.jobs.remaining_work
    left = (
        expected_remaining(done, problem.jobs.total_work, problem.size_error)
        if problem.sizes == "predicted"
        else done + _default_work(problem)
    )
    left = np.maximum(left, LEAST * done)
    return dataclasses.replace(
        problem,
        sizes="known",
        jobs=dataclasses.replace(problem.jobs, remaining_work=left, total_work=done + left),
    )


def expected_remaining(done: Floats, predicted: Floats, error: float) -> Floats:
    """Return the mean of S - a given S > a, (J,).

    With z = ln(a / predicted) / e it is predicted exp(e^2 / 2) Phi(e - z) / Phi(-z) - a.

    Parameters
    ----------
    done : (J,)
        a >= 0.
    predicted : (J,)
        Median of S, > 0.
    error : float
        e > 0, standard deviation of ln S.
    """
    from scipy.special import log_ndtr

    begun = done > 0
    z = np.where(begun, (np.log(np.where(begun, done, 1.0)) - np.log(predicted)) / error, -np.inf)
    share = np.where(begun, log_ndtr(error - z) - log_ndtr(-z), 0.0)
    return np.asarray(predicted * np.exp(0.5 * error**2 + share) - done, dtype=np.float64)


def _default_work(problem: Problem) -> Floats:
    """Return the work of one interval as requested, (J,), on the slowest type with a rate there.

    Without such a type the rate is one unit of work per second.
    """
    jobs, table = problem.jobs, RateTable.of(problem)
    slowest = np.full(len(jobs), np.inf)
    for t in np.unique(problem.pools.gpu_type):
        rate, _ = table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus)
        slowest = np.where(rate > 0, np.fmin(slowest, rate), slowest)
    return np.where(np.isfinite(slowest), slowest, 1.0) * problem.interval_s
