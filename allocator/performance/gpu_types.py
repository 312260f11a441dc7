"""Which GPU types a job may use."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Problem


def allowed_types(problem: Problem) -> Bools:
    """(J, T) True where the job may use the GPU type."""
    # code -1 = the last = any
    sets = np.vstack([*problem.type_sets, np.ones(len(problem.gpu_types), dtype=bool)])
    allowed: Bools = sets[problem.jobs.gpu_types]
    return allowed
