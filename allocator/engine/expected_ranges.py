"""Ranges of 90 % around what is expected of jobs: factors that were measured in simulations.

What happened, divided by what the model of expected.py says, was collected over simulations of the
default under several families and loads. Each entry has the 5 %, 50 % and 95 % quantiles for what
lies KNOTS rounds ahead; between knots the logarithms are interpolated.

The middle corrects what the model cannot know: among many jobs it sees no GPUs that later ends
leave to others, and it takes the mean of unknown sizes. Predicted sizes, and those that losses say,
have the factors of known ones, with a range that is wider by the error of the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Floats, Problem
from allocator.performance.sizes import COVERED

FEW = "few"
SOME = "some"
MANY = "many"
"""Start of a waiting job, where up to 2, up to 7 or more jobs wait."""
DONE = "done"
CROWDED = "crowded"
LATER = "later"
RUN = "run"
"""End of a job with GPUs, where all jobs as requested fit the cluster or not; end of a waiting job;
how long that runs."""
KNOWN = "known"
LEARNED = "learned"
GUESSED = "guessed"
"""What is known of sizes: all; what other jobs of the model teach; nothing."""
KNOTS = (1.0, 3.0, 10.0, 30.0, 100.0)

Factors = tuple[tuple[float, float, float], ...]
FACTORS: Mapping[tuple[str, str], Factors] = {
    (FEW, KNOWN): (
        (1, 1, 26),
        (0.333, 1, 6),
        (0.0909, 0.846, 3.12),
        (0.0606, 1, 8),
        (0.0606, 1, 8),
    ),
    (FEW, LEARNED): (
        (0.0256, 0.5, 4),
        (0.25, 0.667, 5),
        (0.0256, 0.5, 4),
        (0.0256, 0.5, 4),
        (0.0256, 0.5, 4),
    ),
    (FEW, GUESSED): (
        (0.0106, 0.625, 17.5),
        (0.0106, 0.625, 17.5),
        (0.0106, 0.625, 17.5),
        (0.0106, 0.625, 17.5),
        (0.0106, 0.625, 17.5),
    ),
    (SOME, KNOWN): ((1, 1, 19), (0.333, 1, 9.5), (0.125, 1, 4.86), (0.2, 0.889, 2.28), (0.2, 1, 9)),
    (SOME, LEARNED): (
        (0.0667, 0.571, 6.5),
        (0.25, 1, 7.25),
        (0.0769, 0.667, 5.33),
        (0.0667, 0.571, 6.5),
        (0.0667, 0.571, 6.5),
    ),
    (SOME, GUESSED): (
        (0.0909, 1, 9),
        (0.0909, 1, 9),
        (0.0909, 1, 9),
        (0.0909, 1, 9),
        (0.0909, 1, 9),
    ),
    (MANY, KNOWN): (
        (1, 1, 10),
        (0.333, 1.5, 8),
        (0.125, 1.83, 5.22),
        (0.867, 1.52, 3.26),
        (0.25, 1.5, 7.8),
    ),
    (MANY, LEARNED): (
        (1, 9, 62),
        (0.25, 1, 9.2),
        (0.2, 0.727, 5.29),
        (0.0227, 1.21, 2.48),
        (0.2, 1, 7.86),
    ),
    (MANY, GUESSED): (
        (0.333, 1, 11),
        (0.333, 1, 11),
        (0.333, 1, 11),
        (0.333, 1, 11),
        (0.333, 1, 11),
    ),
    (DONE, KNOWN): (
        (1, 1, 1.01),
        (1, 1, 1.16),
        (0.687, 1, 1.3),
        (0.538, 1, 1.35),
        (0.183, 0.733, 1.17),
    ),
    (DONE, LEARNED): (
        (0.0806, 1.32, 11.8),
        (0.0435, 1.15, 11.7),
        (0.0802, 0.897, 7.28),
        (0.0832, 0.668, 5.04),
        (0.037, 0.408, 2.01),
    ),
    (DONE, GUESSED): (
        (0.296, 7.79, 160),
        (0.168, 3.14, 83.3),
        (0.105, 3.13, 55.6),
        (0.0718, 1.1, 17.5),
        (0.0249, 0.403, 4.72),
    ),
    (CROWDED, KNOWN): (
        (1, 1, 1.34),
        (1, 1, 1.32),
        (0.649, 1, 1.13),
        (0.258, 0.865, 1.18),
        (0.12, 0.515, 1.01),
    ),
    (CROWDED, LEARNED): (
        (0.0864, 1.14, 79.5),
        (0.0629, 1.11, 13.4),
        (0.0642, 0.841, 8.02),
        (0.05, 0.715, 4.26),
        (0.0332, 0.31, 1.76),
    ),
    (CROWDED, GUESSED): (
        (0.635, 6.76, 131),
        (0.299, 7.67, 176),
        (0.0857, 2.81, 36.6),
        (0.104, 1.57, 15.8),
        (0.0362, 0.413, 7.14),
    ),
    (LATER, KNOWN): (
        (0.313, 0.901, 1.83),
        (0.49, 1.02, 1.62),
        (0.541, 1.02, 2.24),
        (0.203, 0.996, 1.97),
        (0.266, 0.602, 1.28),
    ),
    (LATER, LEARNED): (
        (0.205, 1.26, 9.13),
        (0.205, 1.26, 9.13),
        (0.21, 1.06, 8.33),
        (0.103, 1.29, 20.7),
        (0.0452, 0.621, 7.31),
    ),
    (LATER, GUESSED): (
        (0.329, 2.56, 39.1),
        (0.329, 2.56, 39.1),
        (0.329, 2.56, 39.1),
        (0.432, 3.71, 39.1),
        (0.233, 1.95, 7.49),
    ),
    (RUN, KNOWN): (
        (0.388, 1.01, 5.93),
        (0.27, 1.33, 3.31),
        (0.515, 1.21, 2.49),
        (0.341, 0.801, 2.38),
        (0.206, 0.547, 1.38),
    ),
    (RUN, LEARNED): (
        (0.161, 1.6, 11.7),
        (0.15, 1.35, 10.6),
        (0.0944, 1.68, 12.4),
        (0.00708, 1.67, 22.5),
        (0.176, 0.565, 7.33),
    ),
    (RUN, GUESSED): (
        (0.199, 4.61, 105),
        (0.199, 4.61, 105),
        (0.199, 4.61, 105),
        (0.133, 3.53, 42.9),
        (0.141, 0.897, 2.01),
    ),
}


@dataclass(frozen=True)
class Situation:
    """What the ranges of a round depend on.

    Attributes
    ----------
    learned : (J,)
        Whether other jobs of the model, or nothing, say how much is left.
    guessed : (J,)
        Whether nothing but a job's own work so far says how much is left.
    left_error : (J,)
        Standard deviation of the logarithm of the work left, as predictions and losses have it.
    start, done : str
        FEW, SOME or MANY; DONE or CROWDED.
    interval_s : float
        Seconds of a round.
    """

    learned: Bools
    guessed: Bools
    left_error: Floats
    start: str
    done: str
    interval_s: float

    @property
    def with_known_sizes(self) -> Situation:
        """The same situation if sizes were known."""
        no = np.zeros(len(self.guessed), dtype=bool)
        return replace(self, learned=no, guessed=no, left_error=np.zeros(len(no)))

    @classmethod
    def of(cls, problem: Problem, plan: Allocation, waits: Bools) -> Situation:
        """Return the situation after a plan in which these jobs (J,) wait for GPUs."""
        guessed = problem.guessed
        no = np.zeros(len(waits), dtype=bool)
        wanted = problem.jobs.requested_gpus[waits | (plan.pool >= 0)]
        return cls(
            no if guessed is None else np.isnan(problem.jobs.loss_work),
            no if guessed is None else guessed,
            np.zeros(len(waits)) if problem.left_error is None else problem.left_error,
            (FEW, SOME, MANY)[int(np.searchsorted([3, 8], waits.sum(), side="right"))],
            CROWDED if wanted.sum() > problem.pools.gpus.sum() else DONE,
            problem.interval_s,
        )


def spread(what: str, of: Situation, seconds: Floats) -> tuple[Floats, Floats, Floats]:
    """Return low end, middle and high end (J,) of what takes so many seconds (J,) by the model."""
    low, middle, high = _factors(FACTORS[what, KNOWN], seconds / of.interval_s)
    for information, here in ((LEARNED, of.learned), (GUESSED, of.guessed)):
        if here.any():
            other = _factors(FACTORS[what, information], seconds / of.interval_s)
            low, middle, high = (
                np.where(here, a, b) for a, b in zip(other, (low, middle, high), strict=True)
            )
    wider = np.exp(COVERED * of.left_error)
    return seconds * low / wider, seconds * middle, seconds * high * wider


def _factors(table: Factors, rounds: Floats) -> tuple[Floats, Floats, Floats]:
    at = np.log(np.maximum(rounds, KNOTS[0]))
    knots = np.log(KNOTS)
    low, middle, high = (
        np.exp(np.interp(at, knots, np.log(column))) for column in zip(*table, strict=True)
    )
    return low, middle, high
