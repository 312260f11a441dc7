"""The objective `flow`: completion times and squared delays, which keep the tail short; pauses may
pay off later.

    w_j    = W_j (1 + d_j / (0.8 T))     d_j: time so far beyond what the work so far takes alone
                                         T: what the jobs there would take alone, on average
    done_o = r_o D (1 - a_o / T_o)       T_o: time over which the pause of a change is spread

Everything else is `completion`. Formulas and sources: formulations/README.md.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Floats, Problem
from allocator.options.scene import Scene, of_jobs
from formulations import objectives


def as_completion(s: Scene) -> Scene:
    """The scene in which `completion` is what `flow` is here, but for the work done: with the
    weights w_j.
    """
    problem = s.problem
    weighed = dataclasses.replace(
        problem,
        jobs=dataclasses.replace(
            problem.jobs, weight=problem.jobs.weight * objectives.delayed(delay_s(s), alone_s(s))
        ),
    )
    ordinary = (
        None
        if s.ordinary is None
        else dataclasses.replace(s.ordinary, problem=weighed, objective="completion")
    )
    return dataclasses.replace(s, problem=weighed, objective="completion", ordinary=ordinary)


@of_jobs
def alone_s(s: Scene) -> float:
    """Seconds that a job with options takes alone, at its fastest, on average, and an interval
    in which it may wait.
    """
    speed = s.fastest
    able = np.flatnonzero(speed > 0)
    mean = float((s.problem.jobs.total_work[able] / speed[able]).mean()) if len(able) else 0.0
    return s.problem.interval_s + mean


@of_jobs
def delay_s(s: Scene) -> Floats:
    """(J,) seconds since submission beyond those in which each job's work so far is done alone
    at its fastest.
    """
    jobs, speed = s.problem.jobs, s.fastest
    done = np.divide(
        jobs.total_work - jobs.remaining_work, speed, out=np.zeros(len(speed)), where=speed > 0
    )
    return np.asarray(np.maximum(0.0, age_s(s.problem) - done), dtype=np.float64)


def stays_s(problem: Problem) -> Floats:
    """(J,) seconds that an allocation of each job lasts, as far as its past says: its age over the
    number of stretches of which there would be with one more change."""
    return np.asarray(age_s(problem) / (problem.jobs.restarts + 2.0), dtype=np.float64)


def age_s(problem: Problem) -> Floats:
    """(J,) seconds since submission."""
    return np.maximum(0.0, problem.now_s - problem.jobs.submitted_s)


def lasting(s: Scene) -> Floats:
    """(n,) work of the interval if the pause is spread over the time that the option will be
    held.
    """
    return objectives.lasting_work(
        s.rate, s.offer.pause_s, s.remaining, stays_s(s.problem)[s.offer.job], s.problem.interval_s
    )
