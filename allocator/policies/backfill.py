"""Backfill: `easy` reserves GPUs for the first job that does not fit, `conservative` for every job.

Sources: EASY, Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; conservative backfill,
Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 2001. Slurm's backfill plugin is of this kind.

Jobs get the size they asked for (the nearest they may have), and nobody is ever stopped, moved or
resized. Waiting jobs come by weight, the largest first, then by submission. A reservation is the
earliest time at which the expected ends of those that run, and the reservations before it, leave
room for the whole run of the job. A job starts now if its run collides with no reservation: it is
over before one begins, or needs only GPUs that this one leaves.

A job with `time_limit_s` is expected to run to its limit, as its user said; another one until its
work is done at the speed of the option, as in a plan (engine/expected.py).

What differs from the sources: reservations are made anew in every round. With several pools, a job
takes the pool in which it starts first, of equal ones the fastest. A job that
is stopped by a budget or quota, and not by GPUs, has no reservation, because its wait may have no
end. Guarantees take precedence over the order.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import ROUNDING, FreeCapacity
from allocator.policies.steps import (
    option_rates,
    options_at_requested_size,
    rank_options,
    run_steps,
    serve_owed,
    serve_pinned,
)
from formulations.model.linear import Floats

CLOSE = 1e-9  # relative rounding of times


def easy(task: Task) -> Proposal:
    """Start waiting jobs in order; behind the first that has to wait, those that never delay it."""
    return _backfill(task, reservations=1)


def conservative(task: Task) -> Proposal:
    """Start waiting jobs in order; behind those that have to wait, who delays none of them."""
    return _backfill(task, reservations=math.inf)


def _backfill(task: Task, reservations: float) -> Proposal:
    """Start the waiting jobs that fit beside the reservations, of which so many are made."""
    round_ = task.round
    i, jobs = round_.instance, round_.problem.jobs
    asked = options_at_requested_size(round_)
    preferred = rank_options(round_, asked[i.primary[asked] < 0])
    order = np.lexsort((jobs.submitted_s, -jobs.weight))
    run_s = _expected_run_s(round_)

    def steps(free_capacity: FreeCapacity) -> None:
        serve_pinned(round_, free_capacity, order, i.mandatory)
        serve_owed(round_, free_capacity, order, preferred)
        waiting = order[free_capacity.choice[order] < 0]
        held = free_capacity.choice[free_capacity.choice >= 0]
        pools = [
            _FreeOverTime(free, run_s[held[mine]], i.load[held[mine]])
            for p, free in enumerate(free_capacity.free)
            for mine in (i.pool[held] == p,)
        ]
        left = reservations
        for j in waiting.tolist():
            if left == 0 and not any(free > 0 for free in free_capacity.free):
                break
            able = [o for o in preferred.of(j) if free_capacity.can_afford(o)]
            if left == 0:
                able = [o for o in able if pools[i.pool[o]].is_free_now(run_s[o], i.load[o])]
            at, best = min(
                ((pools[i.pool[o]].first(run_s[o], i.load[o]), k) for k, o in enumerate(able)),
                default=(math.inf, -1),
            )
            starts = at == 0.0 and free_capacity.assign(j, able[best])
            if starts or 0.0 < at < math.inf:
                left -= not starts
                pools[i.pool[able[best]]].take(at, run_s[able[best]], i.load[able[best]])

    return run_steps(task, steps, start=round_.unchanged_choice(), guaranteed=False)


def _expected_run_s(round_: CompiledRound) -> Floats:
    """Return the seconds from now to the end of each option of the model, as users' limits say.

    What a running job has run already is its GPU-time over its GPUs, which never change.
    """
    i, jobs = round_.instance, round_.problem.jobs
    with np.errstate(divide="ignore"):
        work_s = jobs.remaining_work[i.job] / option_rates(round_)
    ran_s = np.where(jobs.gpus > 0, jobs.attained_gpu_s / np.maximum(jobs.gpus, 1), 0.0)
    left_s = jobs.time_limit_s - ran_s
    # one that runs on past its limit is expected to end by the next round
    left_s = np.where(left_s <= 0, round_.problem.interval_s, left_s)[i.job]
    to_end_s = round_.option_table.pause_s[round_.option] + work_s
    return np.asarray(np.where(np.isnan(left_s), to_end_s, left_s), dtype=np.float64)


class _FreeOverTime:
    """Free GPUs of a pool: `free[n]` from `at_s[n]` seconds from now, until the next time."""

    def __init__(self, free: float, end_s: Floats, gpus: Floats) -> None:
        self.at_s, which = np.unique(np.append(0.0, end_s), return_inverse=True)
        self.free = np.cumsum(np.bincount(which, np.append(free, gpus))).astype(np.float64)

    def is_free_now(self, run_s: float, gpus: float) -> bool:
        """Return whether so many GPUs are free for a run that starts now."""
        end = np.searchsorted(self.at_s, run_s * (1.0 - CLOSE))
        return bool((self.free[:end] >= gpus - ROUNDING).all())

    def first(self, run_s: float, gpus: float) -> float:
        """Return the earliest start of a run of so many GPUs, inf = never."""
        if run_s == math.inf:
            return math.inf
        short = np.where(self.free < gpus - ROUNDING, self.at_s, math.inf)
        next_short = np.minimum.accumulate(short[::-1])[::-1]
        fits = next_short >= (self.at_s + run_s) * (1.0 - CLOSE)
        return float(self.at_s[fits.argmax()]) if fits.any() else math.inf

    def take(self, at_s: float, run_s: float, gpus: float) -> None:
        """Take so many GPUs from then on for a run."""
        for t in (at_s, at_s + run_s):
            n = int(np.searchsorted(self.at_s, t))
            if n == len(self.at_s) or self.at_s[n] != t:
                self.at_s = np.insert(self.at_s, n, t)
                self.free = np.insert(self.free, n, self.free[n - 1])
        self.free[(self.at_s >= at_s) & (self.at_s < at_s + run_s)] -= gpus
