"""The audit's own account of the objective flow: completion, with other weights and other work done.

    weight      weight x (1 + age / (2 x mean))
    mean        interval_s + the mean over the jobs with options of total_work / rate of the fastest
    done        rate x interval_s x max(0, 1 - pause / T)
    T           the least of age / (restarts + 2) and pause + remaining_work / rate, and at least interval_s
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.audit.guarantee import options
from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints
from allocator.performance.useful import useful


def weighed(s: Scene) -> Scene:
    """The scene with weights by age."""
    jobs = s.problem.jobs
    job, pool, gpus, rate = options(s, np.arange(len(jobs)))
    seconds: dict[int, float] = {}                          # of each job that has options
    for j, each in zip(job.tolist(), (jobs.total_work[job] / (rate * useful(s.problem, job, pool, gpus))).tolist(),
                       strict=True):
        seconds[j] = min(each, seconds.get(j, each))
    mean = s.problem.interval_s + sum(seconds.values()) / max(1, len(seconds))
    return dataclasses.replace(s, problem=dataclasses.replace(s.problem, jobs=dataclasses.replace(
        jobs, weight=jobs.weight + jobs.weight * _age(s) / mean / 2)))


def lasting(s: Scene, job: Ints, rate: Floats, pause: Floats) -> Floats:
    """(n,) work done by what is given to the jobs (n,), at most what is left."""
    left = s.problem.jobs.remaining_work[job]
    stretch = _age(s)[job] / (s.problem.jobs.restarts[job] + 2)
    held = np.maximum(s.problem.interval_s, np.minimum(stretch, pause + left / rate))
    return np.asarray(np.clip(rate * s.problem.interval_s * (1.0 - pause / held), 0.0, left))


def _age(s: Scene) -> Floats:
    return np.maximum(0.0, s.problem.now_s - s.problem.jobs.submitted_s)
