"""Objective `utility`: more speed adds less and less value; it needs no sizes of jobs.

    v_o = W_j log(1 + 9 done_o / (D min_o r_o)) / sqrt(1 + A_j / 600)
    A_j = attained_gpu_s, GPU-seconds held so far

Each doubling of the speed adds less, so GPUs spread over jobs. The slowest option has the value log
10 = 2.3, twice its speed 0.64 more, and four times its speed 1.31 more. So among jobs with equal
GPU time, starting one more job is better than making another job up to eleven times as fast. A job
with little GPU time so far counts more: among jobs whose sizes vary a lot it is likely to be done
soonest (least attained service: Nuyens and Wierman, "The foreground-background queue", 2008). The
work left has no influence.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective
from formulations.objectives.context import Context, least_by_job, measure_whole_jobs

STEEP = 9.0
NEW_GPU_S = 600.0  # GPU-seconds after which a job counts 1/sqrt(2) of a new one


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    fresh_weight = c.facts.weight / np.sqrt(1.0 + c.facts.attained_gpu_s / NEW_GPU_S)
    return fresh_weight[c.job] * diminished(c, c.done)


def diminished(c: Context, done: Floats) -> Floats:
    """Return log(1 + 9 speed), shape (n,), of options that do the work `done` (n,)."""
    return np.log1p(done / (slowest(c)[c.job] * c.facts.interval_s) * STEEP)


@measure_whole_jobs
def slowest(c: Context) -> Floats:
    """Return the work per second (J,) of each job's slowest option, inf without options."""
    return least_by_job(len(c.facts.weight), c.job, c.rate)


OBJECTIVE = Objective("utility", value)
