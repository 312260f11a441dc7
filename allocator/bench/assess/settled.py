"""A simulated cluster without the rounds in which no plan could change anything."""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import can_colocate
from allocator.simulator.cluster import TraceDrivenCluster


class UnsettledCluster(TraceDrivenCluster):
    """Leave out rounds whose only plan is that everything stays as it is.

    All else is as if they had been decided: other rounds are at the same times, and get the same
    plans.
    """

    def wait(self) -> bool:
        while super().wait():
            if not self._is_settled():
                return True
        return False

    def _is_settled(self) -> bool:
        """Return whether nothing that runs may be stopped, and nothing that waits fits.

        False also where that is harder to say: with nodes, shared GPUs or long-run budgets.
        """
        w = self.world
        problem, runs = w.workload.problem, w.pool[w.active] >= 0
        jobs, free = problem.jobs, w.capacity - w.used_gpus()
        running, waiting = w.active[runs], w.active[~runs]
        is_simple = not (
            w.has_nodes.any()
            or can_colocate(problem)
            or problem.settings.get("longrun")
            or not np.isnan(jobs.gpu_fraction).all()
        )
        return bool(
            is_simple
            and len(running)
            and not jobs.preemptible[running].any()
            and (free >= 0).all()
            and (jobs.min_gpus[waiting] > free.max()).all()
        )
