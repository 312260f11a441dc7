"""The audit's own account of the objective flow: completion, with other weights and other work done.

    weight      weight x (F / mean F)^0.4, mean of the jobs with options
    F           age + interval_s + remaining_work / e, in seconds
    e           rate on an equal share, see shares.py
    done        rate x interval_s x max(0, 1 - pause / T)
    T           the least of age / (restarts + 2) and pause + remaining_work / rate, and at least interval_s
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.audit.scene import Scene
from allocator.audit.shares import equal_rate
from allocator.domain.problem import Floats, Ints


def weighed(s: Scene) -> Scene:
    """The scene with weights by flow time."""
    problem, jobs = s.problem, s.problem.jobs
    equal = equal_rate(s, np.arange(len(jobs)))
    able = np.isfinite(equal)
    seconds = _age(s) + problem.interval_s + jobs.remaining_work / equal
    factor = (seconds / (seconds[able].sum() / max(1, able.sum()) or 1.0)) ** 0.4
    return dataclasses.replace(s, problem=dataclasses.replace(problem, jobs=dataclasses.replace(
        jobs, weight=np.where(able, jobs.weight * factor, jobs.weight))))


def lasting(s: Scene, job: Ints, rate: Floats, pause: Floats) -> Floats:
    """(n,) work done by what is given to the jobs (n,), at most what is left."""
    left = s.problem.jobs.remaining_work[job]
    stretch = _age(s)[job] / (s.problem.jobs.restarts[job] + 2)
    held = np.maximum(s.problem.interval_s, np.minimum(stretch, pause + left / rate))
    return np.asarray(np.clip(rate * s.problem.interval_s * (1.0 - pause / held), 0.0, left))


def _age(s: Scene) -> Floats:
    return np.maximum(0.0, s.problem.now_s - s.problem.jobs.submitted_s)
