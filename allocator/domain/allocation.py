"""Who gets what: the decision itself, before anyone vouches for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Allocation:
    """One option per job, in the order of Problem.jobs; arrays (J,).

    pool: index into Problem.pools, -1 = nothing. gpus: 0 = nothing. row: the row of Problem.rates
    that gives batch and variant, -1 = interpolated, by formula, or nothing. primary job: index into
    Problem.jobs of the job that holds the GPUs on which this one runs as a second one, a secondary
    job: of the same pool and gpus, and itself no secondary job. -1 = it holds them itself, or
    nothing.
    """

    pool: Ints
    gpus: Ints
    row: Ints
    primary: Ints

    @property
    def held(self) -> Ints:
        """(J,) GPUs that each job holds itself: those that two jobs run on count once."""
        return np.where(self.primary < 0, self.gpus, 0)


@dataclass(frozen=True)
class Repairs:
    """Rules of the snapshot that physics has broken and that the round therefore may not insist on.

    released: (J,) True for non-preemptible jobs whose pool lost the GPUs they hold: keep or pause.
    max_changes: the limit in force (-1 none), raised when lost GPUs force more changes than
    allowed. usable: (Q,) GPUs u that the guarantee of each tenant amounts to (contract 1,
    tenants.csv). messages: one line for each repair.
    """

    released: NDArray[np.bool_]
    max_changes: int
    usable: Ints
    messages: tuple[str, ...] = ()
