"""Shortest job first on shared GPUs, without preemption: `bsbf` where sharing pays, `ffs` always.

Source: Luo et al., "Scheduling deep learning jobs in multi-tenant GPU clusters via wise resource
sharing" (SJF-BSBF and its baseline SJF-FFS), IWQoS 2024, and the authors' simulator. Gang jobs of
fixed size, here the size asked for. Every round the waiting jobs are served by the time they have
left alone, the shortest first; who does not fit is skipped. A job takes idle GPUs if there are
enough; else it joins a job that runs alone: of those with which the mean completion time of the two
is less together than one after the other (formulations/colocation/timing), the one where it is
least. `ffs` joins whom it can, the first by submission. Nobody is ever paused, moved or resized; a
GPU has two jobs at most.

Simplified: a job joins one other that holds as many GPUs as it wants of the pool; the published one
may take GPUs of several others, and idle ones with them. Its effect is measured in
docs/sharing.md (column "equal"). Several pools: idle GPUs in the fastest pool first; among
running jobs of all pools the best.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.rules.srtf import order_by_remaining_time
from allocator.policies.steps import (
    OptionRanking,
    option_rates,
    options_at_requested_size,
    rank_options,
    run_steps,
    serve_owed,
    serve_pinned,
)
from formulations.colocation import timing
from formulations.model.linear import Floats, Ints


def bsbf(task: Task) -> Proposal:
    """Waiting jobs, shortest first, on idle GPUs, else next to the job that shortens the mean
    of both most.
    """
    round_ = task.round
    o, secondary_s, primary_s, xi_secondary, xi_primary = _colocation_candidates(round_)
    pays_for_gpus = timing.should_share(secondary_s, primary_s, xi_secondary, xi_primary)
    mean_s = timing.mean_completion_shared(secondary_s, primary_s, xi_secondary, xi_primary)
    return _serve_without_preemption(
        task, rank_options_by(round_, o[pays_for_gpus], mean_s[pays_for_gpus])
    )


def ffs(task: Task) -> Proposal:
    """Waiting jobs, shortest first, on idle GPUs, else next to any job that runs alone, first
    submitted first.
    """
    round_ = task.round
    o = _colocation_candidates(round_)[0]
    jobs, primary = round_.problem.jobs, round_.instance.job[round_.instance.primary[o]]
    return _serve_without_preemption(task, rank_options_by(round_, o, jobs.submitted_s[primary]))


def _serve_without_preemption(task: Task, colocated_options: OptionRanking) -> Proposal:
    round_ = task.round
    asked = options_at_requested_size(round_)
    asked = asked[round_.instance.primary[asked] < 0]
    order, preferred = order_by_remaining_time(round_, asked), rank_options(round_, asked)

    def steps(free_capacity: FreeCapacity) -> None:
        serve_pinned(round_, free_capacity, order, round_.instance.mandatory)
        serve_owed(round_, free_capacity, order, preferred)
        for j in order[free_capacity.choice[order] < 0].tolist():
            if not free_capacity.assign_first(j, preferred.of(j)):
                free_capacity.assign_first(j, colocated_options.of(j))

    return run_steps(task, steps, start=round_.unchanged_choice(), guaranteed=False)


def _colocation_candidates(round_: CompiledRound) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """(columns of secondary jobs, seconds that secondary job and primary job have left alone,
    slowdowns of secondary job and primary job next to each other), arrays (k,), of secondary jobs
    at the size they asked for. Alone: at the fastest ordinary option of that pool and size."""
    i, m, jobs = round_.instance, round_.option_table, round_.problem.jobs
    asked = options_at_requested_size(round_)
    o = asked[i.primary[asked] >= 0]
    rate, own = option_rates(round_), np.flatnonzero(i.primary < 0)
    span = int(i.gpus.max(initial=0)) + 1
    key = (i.job * len(i.capacity) + i.pool) * span + i.gpus
    # of equals the last one is the fastest
    order = own[np.lexsort((rate[own], key[own]))]
    at = (
        np.searchsorted(key[order], key[o], side="right") - 1
        if len(order)
        else np.zeros(0, np.int64)
    )
    alone = order[np.maximum(at, 0)] if len(order) else o
    o, alone = o[key[alone] == key[o]], alone[key[alone] == key[o]]
    primary = i.primary[o]
    return (
        o,
        jobs.remaining_work[i.job[o]] / rate[alone],
        jobs.remaining_work[i.job[primary]] / rate[primary],
        rate[alone] / rate[o],
        rate[primary] / m.primary_rate[round_.option[o]],
    )


def rank_options_by(round_: CompiledRound, options: Ints, key: Floats) -> OptionRanking:
    """The options (k,) job by job, smallest key (k,) first, of equals the first column."""
    job = round_.instance.job[options]
    order = np.lexsort((options, key, job))
    start = np.searchsorted(job[order], np.arange(len(round_.problem.jobs) + 1))
    return OptionRanking(start.tolist(), options[order].tolist())
