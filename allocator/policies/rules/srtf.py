"""Shortest remaining time first, preemptive, at the requested size.

Source: the classic discipline (Schrage 1968 for one server), used as the baseline with known
lengths by Tiresias, Blox and others. In every round all jobs are served again, in order of the time
they have left, shortest first. Jobs that do not fit are skipped (no blocking), so a running job is
paused when shorter ones need its GPUs. The policy knows speeds and lengths.

Several pools: the time left is the remaining work divided by the speed at the requested size in the
fastest pool that the job may use. It is one number per job, wherever the job runs. A job stays in
its pool if it can, and otherwise takes the fastest pool that is free. Pauses for restarts are not
part of the time left. max_changes: see steps.replan.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    rank_options,
    replan,
    serve,
)
from formulations.model.linear import Ints


def srtf(task: Task) -> Proposal:
    """Serve jobs by remaining time at the requested size, shortest first, pausing others if needed.

    A running job is paused when shorter ones need its GPUs.
    """
    round_ = task.round
    asked = options_at_requested_size(round_)
    order = order_by_remaining_time(round_, asked)
    preferred = rank_options(round_, asked)
    return replan(task, order, lambda free_capacity: serve(free_capacity, order, preferred))


def order_by_remaining_time(round_: CompiledRound, options: Ints) -> Ints:
    """Return the jobs by remaining time at the fastest of their given options, (J,).

    Equal jobs are ordered by submission. Jobs without an option come last.
    """
    jobs = round_.problem.jobs
    fastest = np.zeros(len(jobs))
    np.maximum.at(fastest, round_.instance.job[options], option_rates(round_)[options])
    with np.errstate(divide="ignore"):
        return np.lexsort((jobs.submitted_s, jobs.remaining_work / fastest))
