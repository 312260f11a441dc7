"""Tiresias: discretised two-dimensional least attained service.

Source: Gu et al., NSDI 2019, section 3 (Tiresias-L). Service is GPUs times time. A job starts in
the first queue, and moves to the next when its attained service passes a threshold. Queues are
served in order, first in, first out inside a queue, at the requested size. Jobs that do not fit are
skipped, and running jobs of later queues are paused. Neither lengths nor speeds are needed. There
are two queues and a threshold of one GPU-hour, as in the first example of the authors' simulator;
the paper finds that the number of queues matters little.

Simplified:

- In the paper, jobs of a queue are ordered by their first start. A snapshot only says which jobs
  have had service at all. So these come before the others of their queue, each group by submission.
- Starved jobs are not promoted, because the snapshot does not say how long a job has been paused.
- Consolidation by model skew has no counterpart, because pools are taken whole.
- With several pools, service is counted in GPU-seconds of any type.

max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.policies.base import Proposal, Task
from allocator.policies.steps import options_at_requested_size, rank_options, replan, serve

# attained service at which a job sinks to the next queue, GPU-seconds, ascending
THRESHOLDS_GPU_S = (3_600.0,)


def las(task: Task) -> Proposal:
    """Serve jobs by queue of attained service at the requested size, pausing others if needed."""
    round_ = task.round
    jobs = round_.problem.jobs
    queue = np.searchsorted(THRESHOLDS_GPU_S, jobs.attained_gpu_s, side="right")
    order = np.lexsort((jobs.submitted_s, jobs.attained_gpu_s <= 0, queue))
    preferred = rank_options(round_, options_at_requested_size(round_))
    return replan(task, order, lambda free_capacity: serve(free_capacity, order, preferred))
