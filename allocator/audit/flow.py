"""The audit's own account of the objective flow: completion, with other weights and other work
done.

    weight      weight x (1 + delay / (0.8 x mean))
    delay       age - (total_work - remaining_work) / rate of the fastest, at least 0; age without
                options
    mean        interval_s + the mean over the jobs with options of total_work / rate of the fastest
    done        rate x interval_s x max(0, 1 - pause / T)
    T           the least of age / (restarts + 2) and pause + remaining_work / rate, and at least
                interval_s
"""

from __future__ import annotations

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints


def weights(s: Scene) -> Floats:
    """(J,) weights by delay."""
    jobs = s.problem.jobs
    job, _, _, rate = s.useful_options()
    per_unit = np.full(len(jobs), np.inf)  # seconds, of each job that has options
    np.minimum.at(per_unit, job, 1.0 / rate)
    able = np.isfinite(per_unit)
    mean = s.problem.interval_s + (jobs.total_work * per_unit)[able].sum() / max(1, int(able.sum()))
    worked = (jobs.total_work - jobs.remaining_work) * np.where(able, per_unit, 0.0)
    return np.asarray(s.problem.weight * (1.0 + np.clip(_age(s) - worked, 0.0, None) / mean / 0.8))


def lasting(s: Scene, job: Ints, rate: Floats, pause: Floats) -> Floats:
    """(n,) work done by what is given to the jobs (n,), at most what is left."""
    left = s.problem.jobs.remaining_work[job]
    stretch = _age(s)[job] / (s.problem.jobs.restarts[job] + 2)
    held = np.maximum(s.problem.interval_s, np.minimum(stretch, pause + left / rate))
    return np.asarray(np.clip(rate * s.problem.interval_s * (1.0 - pause / held), 0.0, left))


def _age(s: Scene) -> Floats:
    return np.maximum(0.0, s.problem.now_s - s.problem.jobs.submitted_s)
