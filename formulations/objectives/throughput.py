"""Objective `throughput`: work done, in intervals of work at the size that the job requested.

    v_o    = W_j min(done_o, R_j) / base_j
    base_j = D x speed at requested_gpus on the slowest allowed GPU type

Where no allowed type of the cluster has a speed at requested_gpus, base_j uses the job's slowest
option at the nearest size, the smaller of two equally near ones. Revocations and checkpoints do not
count.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective
from formulations.objectives.context import Context


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return c.weight * np.minimum(c.done, c.remaining) / c.requested_work[c.job]


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour."""
    return c.facts.weight / c.requested_work, np.zeros(len(c.facts.weight))


OBJECTIVE = Objective("throughput", value, counts_losses=False, linear=linear)
