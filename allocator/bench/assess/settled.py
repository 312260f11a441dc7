"""A simulated cluster without the rounds whose plan is plain."""

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints
from allocator.domain.workload import Workload
from allocator.market import books
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import can_colocate, compile_round
from allocator.simulator.cluster import TraceDrivenCluster
from allocator.simulator.options import SimulationOptions
from formulations.model.linear import AT_MOST_ONE, CAPACITY


class UnsettledCluster(TraceDrivenCluster):
    """Leave out rounds in which nothing may be stopped, and nothing that fits has to be chosen.

    If nothing fits, all stays as it is. If all that fits does so at once, every policy of an
    assessment starts it, each job in its fastest pool with room. Other rounds are at the same
    times, and get the same plans, as if these had been decided.

    Parameters
    ----------
    reserve_after_s : float
        A job that waits so long may get GPUs that smaller and later jobs would take.
    """

    def __init__(
        self, workload: Workload, options: SimulationOptions, reserve_after_s: float
    ) -> None:
        super().__init__(workload, options)
        problem = workload.problem
        self._is_hard = bool(
            self.world.has_nodes.any()
            or can_colocate(problem)
            or problem.settings.get("longrun")
            or not np.isnan(problem.jobs.gpu_fraction).all()
        )
        self._reserve_after_s = reserve_after_s
        self._rate = _find_rates(workload)

    def wait(self) -> bool:
        while super().wait():
            if not self._is_plain():
                return True
        return False

    def _is_plain(self) -> bool:
        """Return whether the plan of this round is plain; if so, start what it starts.

        False also where that is harder to say: with nodes, shared GPUs or long-run budgets; for
        starts also with any other rule but those of the GPUs of pools.
        """
        if self._is_hard:
            return False
        w = self.world
        jobs, runs = w.workload.problem.jobs, w.pool[w.active] >= 0
        running, waiting = w.active[runs], w.active[~runs]
        free = w.capacity - w.used_gpus()
        if jobs.preemptible[running].any() or (free < 0).any():
            return False
        if (jobs.min_gpus[waiting] > free.max()).all():
            return bool(len(running))
        if self._rate is None or jobs.preemptible[waiting].any():
            return False
        gpus = jobs.min_gpus[waiting]
        rate = np.where(gpus[:, None] <= free, self._rate[waiting], 0.0)
        fits = rate.any(axis=1)
        pool = rate[fits].argmax(axis=1)
        starts, left = waiting[fits], waiting[~fits]
        if (np.bincount(pool, gpus[fits], len(free)) > free).any() or self._are_passed_over(
            left[w.now - jobs.submitted_s[left] >= self._reserve_after_s], starts
        ):
            return False
        w.apply_allocation(starts, pool, gpus[fits])
        return bool(len(starts) or len(running))

    def _are_passed_over(self, left: Ints, starts: Ints) -> bool:
        """Return whether a job that starts may be behind one that is left, and is smaller."""
        jobs, left = self.world.workload.problem.jobs, left[:, None]
        behind = jobs.submitted_s[left] <= jobs.submitted_s[starts]
        behind |= jobs.weight[left] > jobs.weight[starts]
        return bool((behind & (jobs.min_gpus[left] > jobs.min_gpus[starts])).any())


def _find_rates(workload: Workload) -> Floats | None:
    """Return the speed of each job in each pool, (J, P), 0 = it cannot run there.

    None stands for a workload in which plans have to heed more than GPUs and speeds.
    """
    problem = workload.problem
    jobs = problem.jobs
    round_ = compile_round(problem, prunes=False, shares=PairOffer.RUNNING)
    i = round_.instance
    is_simple: Bools = np.array(
        [
            {block.kind for block in round_.rows} <= {AT_MOST_ONE, CAPACITY},
            not (len(workload.changes) or any(jobs.after) or books.limits_gpu_hours(problem)),
            np.isnan(jobs.deadline_s).all(),
            (i.value > 0).all(),
            not i.cost.any(),
        ]
    )
    if not is_simple.all():
        return None
    rate = np.zeros((len(jobs), len(problem.pools)))
    rate[i.job, i.pool] = round_.option_table.rate
    return rate
