"""Tiresias: discretised two-dimensional least attained service.

Source: Gu et al., NSDI 2019, section 3 (Tiresias-L). Service is GPUs times time. A job starts in
the first queue and sinks to the next when its attained service passes a threshold; queues are
served in order, first in, first out inside a queue, at the requested size; who does not fit is
skipped; running jobs of later queues are paused. No lengths and no speeds are needed. Two queues
and a threshold of one GPU-hour, as in the first example of the authors' simulator; the paper finds
the number of queues to matter little.

Simplified: first in means first started in the paper; a snapshot knows who has had service at all,
so those go before the others of their queue, each group by submission. No promotion of starved jobs
(the snapshot does not say how long a job has been paused). Consolidation by model skew has no
counterpart: pools are taken whole. Several pools: service is counted in GPU-seconds of any type.
max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.policies.base import Proposal, Task
from allocator.policies.steps import options_at_requested_size, rank_options, replan, serve
from formulations.model.linear import Floats, Ints

# attained service at which a job sinks to the next queue, GPU-seconds, ascending
THRESHOLDS_GPU_S = (3_600.0,)


def las(task: Task) -> Proposal:
    """Serve jobs by queue of attained service at the requested size, pausing whoever is in the
    way.
    """
    round_, jobs = task.round, task.round.problem.jobs
    order = order_by_attained_service(jobs.attained_gpu_s, jobs.submitted_s)
    preferred = rank_options(round_, options_at_requested_size(round_))
    return replan(
        task,
        order,
        lambda free_capacity, pinned: serve(round_, free_capacity, order, preferred, pinned),
    )


def order_by_attained_service(attained_gpu_s: Floats, submitted_s: Floats) -> Ints:
    """(J,) jobs by queue, in each those that have had service before the others, then by
    submission.
    """
    queue = np.searchsorted(np.array(THRESHOLDS_GPU_S), attained_gpu_s, side="right")
    return np.lexsort((submitted_s, attained_gpu_s <= 0, queue))
