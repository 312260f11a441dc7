"""Shortest remaining time first, preemptive, at the requested size.

Source: the classic discipline (Schrage 1968 for one server), used as the baseline with known
lengths by Tiresias, Blox and others. Every round all jobs are served again, the one with
the least time left first; jobs that do not fit are skipped (no blocking), so a running job is
paused when shorter ones need its GPUs. Knows speeds and lengths.

Several pools: the time left is remaining work over the speed at the requested size in the fastest
pool the job may use, one number per job wherever it runs; a job stays in the pool it runs in if it
can, else takes the fastest that is free. Pauses for restarts are not part of the time left.
max_changes: see steps.replan.
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
from formulations.model.linear import Floats, Ints


def srtf(task: Task) -> Proposal:
    """Serve jobs by remaining time at the requested size, shortest first, pausing jobs that are in
    the way.
    """
    round_ = task.round
    asked = options_at_requested_size(round_)
    order, preferred = order_by_remaining_time(round_, asked), rank_options(round_, asked)
    return replan(
        task,
        order,
        lambda free_capacity, pinned: serve(round_, free_capacity, order, preferred, pinned),
    )


def order_by_remaining_time(round_: CompiledRound, options: Ints) -> Ints:
    """(J,) jobs by remaining time at the fastest of their given options; then by submission. No
    option: last.
    """
    jobs = round_.problem.jobs
    return np.lexsort((jobs.submitted_s, remaining_s(round_, options)))


def remaining_s(round_: CompiledRound, options: Ints) -> Floats:
    """(J,) seconds each job would still run at the fastest of its given options, inf without
    any.
    """
    jobs = round_.problem.jobs
    fastest = np.zeros(len(jobs))
    np.maximum.at(fastest, round_.instance.job[options], option_rates(round_)[options])
    with np.errstate(divide="ignore"):
        return np.asarray(jobs.remaining_work / fastest)
