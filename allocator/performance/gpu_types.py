"""The GPU types that a job may use."""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Problem


def allowed_types(problem: Problem) -> Bools:
    """Return the GPU types that each job may use, (J, T)."""
    # code -1 selects the last row: any type
    sets = np.vstack([*problem.type_sets, np.ones(len(problem.gpu_types), dtype=bool)])
    allowed: Bools = sets[problem.jobs.gpu_types]
    return allowed
