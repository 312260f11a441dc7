"""What is left of a job as far as it is known: sizes that are known, predicted, or not known at
all.

    known       what the column says
    predicted   E[S | S > a] - a, the size S log-normal about total_work, the standard deviation of
                ln S size_error
    unknown     a + D x (rate at requested_gpus on the slowest type of the cluster)

a = total_work - remaining_work is the work done so far, which is always known. Unknown: a job that
has run so long is expected to run as long again, as measured of processes (Harchol-Balter and
Downey, TOCS 1997), the mean rest of a Pareto size with exponent 2; D x rate stands for what a job
needs at least.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Floats, Problem
from allocator.performance.table import RateTable

LEAST = 1e-6  # of what has been done so far: nobody is expected to be done at once


def estimate_sizes(problem: Problem) -> Problem:
    """The problem with remaining_work as it is known; total_work is what is done and that. Known
    sizes: the same.
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
    """(J,) mean of S - a given S > a: with z = ln(a / predicted) / e,  predicted exp(e^2 / 2) Phi(e
        - z) / Phi(-z) - a.

    done a >= 0; predicted > 0: median of S; error e > 0: standard deviation of ln S.
    """
    from scipy.special import log_ndtr

    begun = done > 0
    z = np.where(begun, (np.log(np.where(begun, done, 1.0)) - np.log(predicted)) / error, -np.inf)
    share = np.where(begun, log_ndtr(error - z) - log_ndtr(-z), 0.0)
    return np.asarray(predicted * np.exp(0.5 * error**2 + share) - done, dtype=np.float64)


def _default_work(problem: Problem) -> Floats:
    """(J,) work of one interval as requested, on the slowest type that has a rate there; what is
    asked for where none has is one unit of work per second."""
    jobs, table = problem.jobs, RateTable.of(problem)
    slowest = np.full(len(jobs), np.inf)
    for t in np.unique(problem.pools.gpu_type):
        rate, _ = table.rate(jobs.model, np.full(len(jobs), t), jobs.requested_gpus)
        slowest = np.where(rate > 0, np.fmin(slowest, rate), slowest)
    return np.where(np.isfinite(slowest), slowest, 1.0) * problem.interval_s
