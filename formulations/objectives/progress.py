"""Objective `progress`: the share of its remaining work that each job completes in the round.

    v_o = W_j min(1, done_o / R_j)

Revocations and checkpoints do not count.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective
from formulations.objectives.context import Context


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return c.weight * np.minimum(1.0, c.done / c.remaining)


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour."""
    return c.facts.weight / c.facts.remaining_work, np.zeros(len(c.facts.weight))


OBJECTIVE = Objective("progress", value, counts_losses=False, linear=linear)
