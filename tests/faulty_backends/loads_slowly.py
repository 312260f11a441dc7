"""Needs a second to load."""

import time

import numpy as np

from allocator.solvers.base import Answer, Termination

time.sleep(1.0)


def solve(model, limits, hint, report):
    return Answer(Termination.GAP, np.zeros(model.n), 0.0, 0.0)
