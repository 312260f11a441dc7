"""Answers at once: nothing is given to anybody. Keeps the process id of its worker in `detail`."""

import os

import numpy as np

from allocator.solvers.base import SolverResult, Termination


def solve(model, *_):
    return SolverResult(Termination.GAP, np.zeros(model.n), 0.0, 9.0, detail=str(os.getpid()))
