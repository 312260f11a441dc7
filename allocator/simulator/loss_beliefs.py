"""Losses that simulated jobs report while they train, and what these say of their work.

Every job has a curve of its own that is at its target when all of its work is done:

    l(k) = (1 - b) ((S + c) / (k + c))^POWER + b        target 1, S the true work of the job

c / S is drawn between LEAST_C and MOST_C, evenly in the logarithm, and b between LEAST_FLOOR and
MOST_FLOOR. Between two rounds every running job reports one loss, times a factor with mean 1. Which
losses are kept and what they say is the code of the controller.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.simulator import random_numbers
from allocator.simulator.world import World

LEAST_C, MOST_C = 0.03, 1.0
LEAST_FLOOR, MOST_FLOOR = 0.3, 0.9
POWER = 1.0  # another one is a law that the fit does not know


class LossBeliefs:
    """What losses say of each job of a workload, updated round by round.

    Attributes
    ----------
    work, error : (J,)
        As `loss_work` and `loss_error` of jobs.csv; nan where losses say nothing.
    """

    def __init__(self, world: World, noise: float) -> None:
        self._world, self._noise, self._round = world, noise, 0
        number = len(world.remaining)
        self._curves = [LossCurve()] * number
        self.work, self.error = np.full((2, number), np.nan)

    def observe(self) -> None:
        """Take one loss of every job that works, and see what the losses of these jobs say."""
        w = self._world
        self._round += 1
        r = w.running[w.from_s[w.running] < w.now]
        total = w.problem.jobs.total_work[r]
        done = total - w.remaining[r]
        noise = random_numbers.lognormal(
            self._noise, w.options.seed, random_numbers.LOSS, r, self._round
        )
        loss = true_loss(w.options.seed, r, done / total) * noise
        longer = []
        for j, k, lost in zip(r.tolist(), done.tolist(), loss.tolist(), strict=True):
            before = self._curves[j]
            self._curves[j] = before.add(k, lost)
            if self._curves[j] is not before:
                longer.append(j)
        if longer:
            curves = [self._curves[j] for j in longer]
            self.work[longer], self.error[longer] = expect_work(curves, np.ones(len(longer)))


def true_loss(seed: int, jobs: Ints, share: Floats) -> Floats:
    """Return the losses (n,) of jobs of which a share is done, without noise."""
    place, height = (random_numbers.uniform(seed, random_numbers.CURVE, jobs, i) for i in (0, 1))
    c = LEAST_C * (MOST_C / LEAST_C) ** place
    floor = LEAST_FLOOR + (MOST_FLOOR - LEAST_FLOOR) * height
    falling = ((1.0 + c) / (share + c)) ** POWER
    return (1.0 - floor) * falling + floor
