"""The objective `flow`: completion time to the power p, which keeps the tail short, with pauses that may pay off later.

    w_j    = W_j (F_j / mean F)^(p - 1)     F_j: time from submission to the end if the job goes on at its equal share
    done_o = r_o D (1 - a_o / T_o)          T_o: time over which the pause of a change is spread

Everything else is `completion`. Formulas and sources: formulations/README.md.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Floats, Problem
from allocator.options.scene import Scene, of_jobs
from allocator.options.shares import equal_speed
from formulations import objectives


def as_completion(s: Scene) -> Scene:
    """The scene in which `completion` is what `flow` is here, but for the work done: with the weights w_j."""
    problem = s.problem
    weighed = dataclasses.replace(problem, jobs=dataclasses.replace(
        problem.jobs, weight=problem.jobs.weight * objectives.flow_factor(flow_s(s))))
    ordinary = None if s.ordinary is None else dataclasses.replace(s.ordinary, problem=weighed, objective="completion")
    return dataclasses.replace(s, problem=weighed, objective="completion", ordinary=ordinary)


@of_jobs
def flow_s(s: Scene) -> Floats:
    """(J,) seconds from submission to the end of each job if it waits this round and goes on at its equal share then;
    nan for jobs without options."""
    problem, equal = s.problem, equal_speed(s)
    age_s = np.maximum(0.0, problem.now_s - problem.jobs.submitted_s)
    flow = age_s + problem.interval_s + problem.jobs.remaining_work / equal
    return np.where(np.isfinite(equal), flow, np.nan)


def stays_s(problem: Problem) -> Floats:
    """(J,) seconds that an allocation of each job lasts, as far as its past says: its age over the number of stretches
    of which there would be with one more change."""
    age_s = np.maximum(0.0, problem.now_s - problem.jobs.submitted_s)
    return np.asarray(age_s / (problem.jobs.restarts + 2.0), dtype=np.float64)


def lasting(s: Scene) -> Floats:
    """(n,) work of the interval if the pause is spread over the time that the option will be held."""
    return objectives.lasting_work(s.rate, s.offer.pause_s, s.remaining, stays_s(s.problem)[s.offer.job],
                                   s.problem.interval_s)
