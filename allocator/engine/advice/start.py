"""When a waiting job is expected to start, and which jobs have to end before; it is no promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from allocator.domain.problem import Problem
from allocator.engine.expected import Forecast
from allocator.options.option_table import OptionTable

ROUNDING_S = 1e-9


@dataclass(frozen=True)
class StartEstimate:
    """An expected start: in `in_s` seconds, with a number of GPUs of a pool.

    `after` has the jobs that end by then and leave what the job needs, in the order of their ends.
    The start is within `range_s` in 90 % of cases; nan: it rests on speeds that are assumed.
    """

    in_s: float
    gpus: int
    pool: str
    after: tuple[str, ...]
    range_s: tuple[float, float] = field(default=(math.nan, math.nan), compare=False)


def describe_start(
    problem: Problem, options: OptionTable, forecast: Forecast, j: int
) -> StartEstimate | None:
    """Describe the expected start of job j, None if it is not known.

    It names the jobs that end in the pool by then, or else those that end anywhere.
    """
    if math.isnan(forecast.start_s[j]):
        return None
    ends = np.where(np.isnan(forecast.start_s), 0.0, forecast.start_s) + forecast.run_s
    left = [
        k
        for k in np.argsort(ends, kind="stable").tolist()
        if ends[k] <= forecast.start_s[j] + ROUNDING_S
    ]
    pool = options.pool[forecast.option[j]]
    here = [k for k in left if options.pool[forecast.option[k]] == pool]
    low, middle, high = forecast.start[:, j].tolist()
    return StartEstimate(
        middle,
        int(options.gpus[forecast.option[j]]),
        problem.pools.pool[pool],
        tuple(problem.jobs.job_id[k] for k in here or left),
        (low, high),
    )
