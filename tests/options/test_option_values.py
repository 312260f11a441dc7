"""Useful shares are kept from round to round. Values of options are in
tests/audit/test_value_matrix.py.
"""

from __future__ import annotations

import numpy as np
from builders import problem

from allocator.performance.lost_time import useful_share


def test_kept_shares_are_those_of_the_same_jobs_and_pools() -> None:
    """A share does not depend on the work that is left, so it is kept from round to round. It is
    computed anew where the pool, the job or the size differs: 1 / (1 + hazard x hours to replace).
    """

    def share(hazard: float, restart_s: float, work: float, gpus: int = 4) -> float:
        lossy = problem(
            jobs=[{"synchronous": False, "restart_s": restart_s, "remaining_work": work}],
            pools=[{"market": "spot", "revocations_per_gpu_hour": hazard}],
        )
        one = np.array([0])
        found = useful_share(lossy, one, one, np.array([gpus]), np.ones(1))
        found *= 2.0  # what is kept is not the array that is returned
        return float(found[0]) / 2.0

    for _ in range(2):
        assert share(1, 3600, 100) == share(1, 3600, 5) == share(1, 3600, 5, gpus=1) == 0.5
        assert share(3, 3600, 100) == share(1, 3 * 3600, 100) == 0.25
