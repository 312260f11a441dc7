"""Shortest job first without preemption: `sjf` alone, `bsbf` shared where it pays, `ffs` always.

Source: Luo et al., "Scheduling deep learning jobs in multi-tenant GPU clusters via wise resource
sharing" (SJF-BSBF and its baselines SJF and SJF-FFS), IWQoS 2024, and the authors' simulator. Jobs
are gangs of fixed size, here the requested size. In every round the waiting jobs are served by the
time they still need alone, the shortest first; jobs that do not fit are skipped.

A job takes idle GPUs if there are enough. Otherwise `sjf` lets it wait, and the others let it join
a job that runs alone. `bsbf` joins only jobs with which sharing pays: the mean completion time of
the two is less together than one after the other (formulations/colocation/timing.py). Of these it
joins the one with the least mean. `ffs` joins any job it can, the first by submission. No job is
ever paused, moved or resized, and at most two jobs share a GPU.

Where max_primaries is 1 a job joins one other job that holds as many GPUs of the pool as it wants.
Otherwise it may join several, together with idle GPUs (policies/rules/several_primaries.py). The
effect is measured in docs/sharing.md. With several pools, idle GPUs of the fastest pool come first,
and of the running jobs of all pools the best is joined.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.rules.several_primaries import serve_with_several
from allocator.policies.rules.srtf import order_by_remaining_time
from allocator.policies.steps import (
    group_options,
    option_rates,
    options_at_requested_size,
    rank_options,
    run_steps,
    serve_first,
)
from formulations.colocation import timing
from formulations.model.linear import Floats, Ints


def sjf(task: Task) -> Proposal:
    """Serve waiting jobs, shortest first, on idle GPUs; no GPU gets a second job."""
    none = np.zeros(0, dtype=np.int64)
    return _serve_without_preemption(task, none, none)


def bsbf(task: Task) -> Proposal:
    """Serve waiting jobs, shortest first, on idle GPUs or with the job of the best mean time.

    The mean is that of both completion times.
    """
    round_ = task.round
    if round_.problem.max_primaries > 1:
        return serve_with_several(
            task,
            lambda _, *pairs: (timing.should_share(*pairs), timing.mean_completion_shared(*pairs)),
        )
    o, secondary_s, primary_s, xi_secondary, xi_primary = _colocation_candidates(round_)
    gains = timing.should_share(secondary_s, primary_s, xi_secondary, xi_primary)
    mean_s = timing.mean_completion_shared(secondary_s, primary_s, xi_secondary, xi_primary)
    return _serve_without_preemption(task, o[gains], mean_s[gains])


def ffs(task: Task) -> Proposal:
    """Serve waiting jobs, shortest first, on idle GPUs, else with any job that runs alone.

    Of these the job submitted first is joined.
    """
    round_ = task.round
    jobs = round_.problem.jobs
    if round_.problem.max_primaries > 1:
        return serve_with_several(
            task, lambda primary, *_: (np.ones(len(primary), bool), jobs.submitted_s[primary])
        )
    o = _colocation_candidates(round_)[0]
    primary = round_.instance.job[round_.instance.primary[o]]
    return _serve_without_preemption(task, o, jobs.submitted_s[primary])


def _serve_without_preemption(task: Task, colocated: Ints, key: Ints | Floats) -> Proposal:
    """Serve waiting jobs on idle GPUs, else with an option `colocated` (k,) of the least key."""
    round_ = task.round
    colocated_options = group_options(round_, colocated[np.lexsort((colocated, key))])
    asked = options_at_requested_size(round_)
    asked = asked[round_.instance.primary[asked] < 0]
    order = order_by_remaining_time(round_, asked)
    preferred = rank_options(round_, asked)

    def steps(free_capacity: FreeCapacity) -> None:
        serve_first(free_capacity, order, preferred)
        for j in free_capacity.waiting(order):
            if not free_capacity.assign_first(j, preferred[j]):
                free_capacity.assign_first(j, colocated_options[j])

    return run_steps(task, steps, start=round_.unchanged_choice(), guaranteed=False)


def _colocation_candidates(round_: CompiledRound) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """Return candidate pairs of secondary jobs at their requested size.

    Returns
    -------
    columns : (k,)
        Options of the secondary jobs.
    secondary_s, primary_s : (k,)
        Seconds that both still need alone, at the fastest option with that pool and size.
    secondary_slowdown, primary_slowdown : (k,)
        Slowdowns of both next to each other.
    """
    i = round_.instance
    m = round_.option_table
    jobs = round_.problem.jobs
    asked = options_at_requested_size(round_)
    o = asked[i.primary[asked] >= 0]
    rate = option_rates(round_)
    own = np.flatnonzero(i.primary < 0)
    span = int(i.gpus.max(initial=0)) + 1
    key = (i.job * len(i.capacity) + i.pool) * span + i.gpus
    # of equal keys the last one is the fastest
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
        rate[primary] / m.primaries["rate"][round_.option[o], 0],
    )
