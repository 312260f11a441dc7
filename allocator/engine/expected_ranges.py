"""Ranges of 90 % around what is expected of jobs: factors that were measured in simulations.

What happened, divided by what the model of expected.py says, was collected over simulations of the
default under several families and loads (expected_factors.csv). Each row has the 5 %, 50 % and 95 %
quantiles for what lies so many rounds ahead; between rows the logarithms are interpolated.

The middle corrects what the model cannot know: among many jobs it sees no GPUs that later ends
leave to others, and it takes the mean of unknown sizes. Predicted sizes, and those that losses say,
have the factors of known ones, with a range that is wider by the error of the prediction.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

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
FACTORS = Path(__file__).with_name("expected_factors.csv")


@cache
def read_factors() -> Mapping[tuple[str, str], Floats]:
    """Return a table (K, 4) for each time and each knowledge of sizes.

    A row has the rounds ahead, and the low, the middle and the high factor.
    """
    tables: dict[tuple[str, str], list[list[float]]] = {}
    with FACTORS.open(newline="", encoding="utf-8") as file:
        for time, sizes, *numbers in islice(csv.reader(file), 1, None):
            tables.setdefault((time, sizes), []).append(list(map(float, numbers)))
    return {key: np.array(rows) for key, rows in tables.items()}


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
        no = np.zeros(len(self.guessed), bool)
        return replace(self, learned=no, guessed=no, left_error=np.zeros(len(no)))

    @classmethod
    def of(cls, problem: Problem, plan: Allocation, waits: Bools) -> Situation:
        """Return the situation after a plan in which these jobs (J,) wait for GPUs."""
        guessed = problem.guessed
        no = np.zeros(len(waits), bool)
        wanted = problem.jobs.requested_gpus[waits | (plan.pool >= 0)]
        return cls(
            no if guessed is None else np.isnan(problem.jobs.loss_work),
            no if guessed is None else guessed,
            np.zeros(len(waits)) if problem.left_error is None else problem.left_error,
            (FEW, SOME, MANY)[int(np.searchsorted([3, 8], waits.sum(), side="right"))],
            CROWDED if wanted.sum() > problem.pools.gpus.sum() else DONE,
            problem.interval_s,
        )


def spread(what: str, of: Situation, seconds: Floats) -> Floats:
    """Return low end, middle and high end, (3, J), of what takes so long (J,) by the model."""
    rounds = seconds / of.interval_s
    factors = _factors(read_factors()[what, KNOWN], rounds)
    for information, here in ((LEARNED, of.learned), (GUESSED, of.guessed)):
        if here.any():
            factors = np.where(here, _factors(read_factors()[what, information], rounds), factors)
    wider = np.exp(COVERED * np.outer([-1.0, 0.0, 1.0], of.left_error))
    return seconds * factors * wider


def _factors(table: Floats, rounds: Floats) -> Floats:
    knots, *columns = np.log(table.T)
    at = np.log(np.maximum(rounds, table[0, 0]))
    return np.exp([np.interp(at, knots, column) for column in columns])
