"""What a policy does not know in advance: start-up times, true speeds and failures.

The intervals of checkpoints are here too, because they may depend on the failure rates.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.simulator import random_numbers
from allocator.simulator.options import SimulationOptions
from allocator.simulator.revocations import HOUR

DRIFT = 0.1  # at 8 GPUs 19 % slower at the beginning and 23 % faster at the end
OUTLIVED = 1.1  # least believed total work divided by the work done


class GroundTruth:
    """The random draws of one simulation.

    Arrays have one entry for each given job, (n,). `hazard` (P,) is the revocations per GPU-hour of
    the pools. `starts` is how many allocations each job has had before this one.
    """

    def __init__(self, problem: Problem, options: SimulationOptions, hazard: Floats) -> None:
        self._problem = problem
        self._options = options
        self._hazard = hazard

    def startup_s(self, jobs: Ints, pool: Ints, starts: Ints) -> Floats:
        """Return the start-up time of the GPUs that the jobs begin to hold, in seconds."""
        o = self._options
        return self._problem.pools.startup_s[pool] * random_numbers.lognormal(
            o.startup_spread, o.seed, random_numbers.STARTUP, jobs, -1 - starts
        )

    def checkpoints(self, jobs: Ints, pool: Ints, gpus: Ints) -> tuple[Floats, Floats]:
        """Return the cycle of checkpoints of each job, and the share of it in which the job works.

        The cycle is the seconds from one checkpoint to the next, nan if there are none. With the
        option "young-daly" the interval is sqrt(2 x cost / rate of failures).

        References
        ----------
        J. W. Young, CACM 17 (1974); J. T. Daly, Future Generation Computer Systems 22 (2006).
        """
        attributes = self._problem.jobs
        every = attributes.checkpoint_every_s[jobs]
        cost = attributes.checkpoint_s[jobs]
        hazard = self._hazard[pool] * gpus
        if self._options.checkpoints == "young-daly":
            chosen = (hazard > 0) & (cost > 0)
            every = np.where(
                chosen, np.sqrt(2 * cost * HOUR / np.where(chosen, hazard, 1.0)), every
            )
        return every + cost, np.where(np.isnan(every), 1.0, every / (every + cost))

    def speed_error(self, jobs: Ints, pool: Ints, starts: Ints) -> Floats:
        """Return the true speed divided by the believed speed.

        It is the error of the policy about the job and the GPU type, times the noise of this start.
        """
        problem = self._problem
        o = self._options
        if o.speeds != "known":  # the error is one of the belief (speed_beliefs.py)
            return random_numbers.lognormal(o.noise, o.seed, random_numbers.NOISE, jobs, starts)
        types = len(problem.gpu_types)
        wrong = random_numbers.lognormal(
            o.misjudged,
            o.seed,
            random_numbers.MISJUDGED,
            jobs * types + problem.pools.gpu_type[pool],
        )
        return wrong * random_numbers.lognormal(o.noise, o.seed, random_numbers.NOISE, jobs, starts)

    def growth(self, gpus: Ints, share_done: Floats) -> Floats:
        """Return the factor (n,) by which training changes the speed as it goes on.

        It is k^(DRIFT (2 f - 1)) after the share f of the work where speeds are not known. Large
        batches, and so many GPUs, help less than the profile says at first and more at last.
        """
        if self._options.speeds == "known":
            return np.ones(len(gpus))
        return gpus ** (DRIFT * (2.0 * share_done - 1.0))

    def believed_sizes(self, jobs: Ints, remaining: Floats) -> tuple[Floats, Floats]:
        """Return total_work and remaining_work as the policy believes them.

        `remaining` is the true remaining work.
        """
        o = self._options
        true = self._problem.jobs.total_work[jobs]
        if o.misjudged_sizes == 0:
            return true, remaining
        done = true - remaining
        wrong = random_numbers.lognormal(
            o.misjudged_sizes, o.seed, random_numbers.SIZE, jobs
        ) * np.exp(o.misjudged_sizes**2 / 2)
        total = np.maximum(true * wrong, OUTLIVED * done)
        return total, total - done

    def draw_failures(self, jobs: Ints, ran_gpu_s: Floats, failures: Ints) -> Floats:
        """Return the GPU-hours, counted from the job's first start, at which each job fails next.

        It is inf where nothing fails.
        """
        o = self._options
        if o.failures_per_gpu_hour <= 0:
            return np.full(len(jobs), np.inf)
        wait = (
            random_numbers.exponential(o.seed, random_numbers.FAILURE, jobs, failures)
            / o.failures_per_gpu_hour
        )
        return ran_gpu_s / HOUR + wait
