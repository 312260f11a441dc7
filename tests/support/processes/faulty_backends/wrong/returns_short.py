"""Returns a plan for fewer columns than there are, after a sound report."""

import numpy as np

from allocator.solvers.base import SolverResult, Termination


def solve(model, limits, hint, report):
    report(np.eye(1, model.n)[0], 9.0)
    return SolverResult(Termination.GAP, np.zeros(model.n - 1), 1.0, 1.0)
