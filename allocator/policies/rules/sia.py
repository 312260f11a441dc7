"""Sia: an integer programme over (GPU count, type) configurations, valued by relative goodput.

Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
scheduling" (SOSP 2023, sections 3.3 and 4.3) and the defaults of its simulator. With g_o the
goodput of option o of job j:

    G_o = n_j g_o / min_{o' of j} g_o'                   n_j = min_gpus
    r_j = max(T - N S, 0) / (T + S), 1 while T < S
    V_o = min(round((r_j G_o) ** p, 2 decimals), 3000),  p = -0.5
    min  sum_o V_o x_o + lambda (J - sum_o x_o),         lambda = 1.1

T is the job's age, N its restarts so far, and S the seconds of a restart. r_j counts for every
option of a running job except the present one. Job weights are all 1. A job may go to at most twice
the GPUs it has ever had, and starts at its smallest size.

Minimising the sum is maximising sum_o (lambda - V_o) x_o. That is done here under all rows of the
round, not capacity alone, so that every hard rule holds. The gap is that of the original, 1e-4 of
Sia's objective. Jobs that may not change keep what they hold.

Simplified:

- Goodput is the speed of the options: statistical efficiency and batch sizes are not modelled. It
  is known for every type from the start.
- Sizes are those of the options, without a list of profiled shapes.
- Plans of equal value are not chosen as the original's solver would choose them. A plan that
  changes nothing is preferred.

Beyond the paper: options that are worse than waiting by more than 1, and those above the limit on
growth, count as worse by 1. So only a guarantee or a job that must run brings them into the plan.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Jobs, State
from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.mip import mip
from formulations.model.single_round import Instance, find_needed_options

POWER = -0.5
LAMBDA = 1.1
CAP = 3000.0
GAP = 1e-4
WORST = -1.0  # value of an option that the plan should not contain


def sia(task: Task) -> Proposal:
    """Return the plan of Sia's integer programme.

    Bound and gap of its own objective are not reported, because those of a Plan concern the round's
    objective. The errors are those of `mip`, which solves the programme.
    """
    round_, option = goodput_round(task.round)
    whole = dataclasses.replace(task, round=round_, prices=None)
    # GAP of the sum that Sia minimises, lambda J - value, as a gap of a value up to `most`
    most = whole.dual.bound
    jobs = np.count_nonzero(np.diff(task.round.instance.start))
    gap = GAP * max(1.0, (LAMBDA * jobs - most) / most) if most > 0 else GAP
    limits = dataclasses.replace(task.limits, gap=gap)
    proposal = mip(dataclasses.replace(whole, limits=limits, known_dual=whole.dual))
    taken = proposal.choice >= 0
    choice = np.full(len(proposal.choice), -1)
    choice[taken] = option[proposal.choice[taken]]
    ended = "heuristic" if proposal.termination == "gap" else proposal.termination
    return dataclasses.replace(
        proposal, choice=choice, bound=math.inf, bound_by="", termination=ended, task=None
    )


def goodput_round(round_: CompiledRound) -> tuple[CompiledRound, Ints]:
    """Return the round with Sia's values and without irrelevant options.

    Also return the column of the given round for each of its columns.
    """
    i = round_.instance
    jobs = round_.problem.jobs
    rate = round_.option_table.rate[round_.option] if len(round_.option) else np.zeros(0)
    factor = np.where(i.keep, 1.0, restart_factor(jobs, round_.problem.now_s)[i.job])
    value = option_value(relative_goodput(rate, i.job, jobs.min_gpus), factor, POWER, LAMBDA)
    value = np.where(
        i.keep | (i.gpus <= growth_limit(i, jobs)[i.job]), np.maximum(value, WORST), WORST
    )
    valued = dataclasses.replace(i, value=value)
    stays = np.flatnonzero(find_needed_options(valued))
    return (
        dataclasses.replace(round_, instance=valued.take(stays), option=round_.option[stays]),
        stays,
    )


def relative_goodput(rate: Floats, job: Ints, least: Ints) -> Floats:
    """Return G (n,): goodput over the job's smallest positive one, times its least GPUs (J,)."""
    smallest = np.full(len(least), np.inf)
    np.minimum.at(smallest, job, np.where(rate > 0, rate, np.inf))
    return np.asarray(rate / smallest[job] * least[job])


def restart_factor(jobs: Jobs, now_s: float) -> Floats:
    """Return r (J,): the share of its life with work if a job restarted now.

    It is 1 for jobs that do not run.
    """
    age = np.maximum(now_s - jobs.submitted_s, 0.0)
    spent = jobs.restarts * jobs.restart_s
    with np.errstate(invalid="ignore"):
        r = np.maximum(age - spent, 0.0) / (age + jobs.restart_s)
    return np.where((jobs.state == State.RUNNING) & (age >= jobs.restart_s) & (age > 0), r, 1.0)


def option_value(normal: Floats, factor: Floats, power: float, lam: float) -> Floats:
    """Return the part of an option in the maximisation.

    It is lambda - V for a negative power, and V - lambda (lambda < 0) for a positive one. normal is
    G, factor is r (1 for the present option); both have the same shape.
    """
    with np.errstate(divide="ignore"):
        raised = (normal * factor) ** power
    V = np.minimum(np.where(np.isfinite(raised), np.round(raised, 2), CAP), CAP)
    return lam - V if power < 0 else V - lam


def growth_limit(i: Instance, jobs: Jobs) -> Ints:
    """Return the most GPUs of a new option, (J,): twice the most ever held.

    It is at least the smallest size.
    """
    start = np.full(len(jobs), np.iinfo(np.int64).max)
    new: Bools = ~i.keep
    np.minimum.at(start, i.job[new], i.gpus[new])
    return np.asarray(np.maximum(2 * jobs.largest_gpus, start))
