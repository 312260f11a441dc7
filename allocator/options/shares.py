"""Objectives that look at every job's fair share, or at how much it has had: utility, fairness,
maxmin, makespan.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats
from allocator.options.scene import Scene, of_jobs
from formulations import fairness as formulas


def utility(s: Scene) -> Floats:
    """(n,) a concave worth of speed; jobs that have had little GPU time count more."""
    job = s.offer.job
    return formulas.utility(
        s.weight,
        s.done / (slowest(s)[job] * s.problem.interval_s),
        s.problem.jobs.attained_gpu_s[job],
    )


def fairness(s: Scene) -> Floats:
    """(n,) by how much the squared ratio of expected completion time to that on an equal share
    falls.
    """
    return formulas.squares(*_ratios(s))


def maxmin(s: Scene) -> Floats:
    """(n,) the same with a power so high that hardly more than the worst ratio counts."""
    return formulas.maxmin(*_ratios(s), *worst(s))


def makespan(s: Scene) -> Floats:
    """(n,) by how much the squared hours that a job still needs on an equal share, whatever its
    weight, fall.
    """
    p, hour = s.problem, formulas.HOUR
    equal = even_speed(s)[s.offer.job]
    return formulas.squares(
        *formulas.ratios(
            np.zeros(len(equal)),
            s.busy_s,
            np.minimum(s.done, s.remaining),
            s.remaining,
            equal * hour,
            equal,
            p.interval_s,
        )
    )


def _ratios(s: Scene) -> tuple[Floats, Floats]:
    """(n,) expected completion time over that on an equal share if the job waits, and what the
    option takes off it.
    """
    p, job = s.problem, s.offer.job
    age_s = np.maximum(0.0, p.now_s - p.jobs.submitted_s[job])
    return formulas.ratios(
        age_s,
        s.busy_s,
        np.minimum(s.done, s.remaining),
        s.remaining,
        p.jobs.total_work[job],
        equal_speed(s)[job],
        p.interval_s,
    )


@of_jobs
def worst(s: Scene) -> tuple[float, int]:
    """The largest ratio if nobody got anything, and the number of jobs with options; 1 and 1 if
    there are none.
    """
    return float(_ratios(s)[0].max(initial=0.0)) or 1.0, max(1, len(np.unique(s.offer.job)))


@of_jobs
def slowest(s: Scene) -> Floats:
    """(J,) work per second of each job's slowest option, inf without options."""
    least = np.full(len(s.problem.jobs), np.inf)
    np.minimum.at(least, s.offer.job, s.rate)
    return least


@of_jobs
def equal_speed(s: Scene) -> Floats:
    """(J,) work per second on an equal share of all GPUs among the jobs that have options, in
    proportion to weight x weight of the tenant; inf without options."""
    return _speed(s, s.problem.weight * s.problem.tenants.weight[s.problem.jobs.tenant])


@of_jobs
def even_speed(s: Scene) -> Floats:
    """(J,) the same with all jobs alike."""
    return _speed(s, np.ones(len(s.problem.jobs)))


def _speed(s: Scene, claim: Floats) -> Floats:
    start = s.offer.start
    mine = np.where(np.diff(start) > 0, claim, 0.0)
    share = s.problem.pools.gpus.sum() * mine / max(float(mine.sum()), 1e-300)
    return formulas.equal_speed(share, start, s.offer.gpus, s.rate)
