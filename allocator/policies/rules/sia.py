"""Sia: an integer programme over (GPU count, type) configurations, valued by goodput relative to
the job's own worst.

Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
scheduling" (SOSP 2023, sections 3.3 and 4.3) and the defaults of its simulator. With g_o the
goodput of option o of job j:

    G_o = n_j g_o / min_{o' of j} g_o'        n_j = min_gpus: the row of a job starts at its
                                              smallest size
    r_j = max(T - N S, 0) / (T + S), 1 while T < S      T age, N restarts so far, S seconds of a
                                                        restart; counts for
                                                        every option of a running job but the one it
                                                            has
    V_o = min(round((r_j G_o) ** p, 2 decimals), 3000),  p = -0.5
    min  sum_o V_o x_o + lambda (J - sum_o x_o),  lambda = 1.1         job weights are all 1

A job may go to at most twice the GPUs it has ever had, and starts at its smallest size. Minimising
that is maximising sum_o (lambda - V_o) x_o, which is done here under all rows of the round, not
capacity alone, so that every hard rule holds; to the original's gap, 1e-4 of its own objective.
Jobs that may not change keep what they hold.

Simplified: goodput is the speed of the option table (statistical efficiency and batch sizes are not
modelled), known for every type from the start; sizes are those of the option table, which has no
list of profiled shapes; plans of equal value are not chosen as the original's solver would, a plan
that changes nothing is preferred. Beyond the paper: options that are worse than waiting by more
than 1, and those above the limit on growth, count as worse by 1; only a guarantee or a job that
must run makes the plan contain them.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from allocator.domain.problem import Jobs, State
from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.mip import mip
from formulations.model.dominance import find_needed_options
from formulations.model.instance import Instance
from formulations.model.linear import Bools, Floats, Ints

POWER = -0.5
LAMBDA = 1.1
CAP = 3000.0
GAP = 1e-4
WORST = -1.0  # of an option that the plan is not to contain


def sia(task: Task) -> Proposal:
    """The plan of Sia's integer programme. Bound and gap of its own objective are not reported: a
    Plan's are about the round's. Errors as of `mip`, which solves the programme."""
    round_, option = goodput_round(task.round)
    whole = dataclasses.replace(task, round=round_, prices=None)
    found = mip(_with_gap(whole, _value_gap(task.round, whole.dual.bound)))
    taken = found.choice >= 0
    choice = np.full(len(found.choice), -1)
    choice[taken] = option[found.choice[taken]]
    ended = "heuristic" if found.termination == "gap" else found.termination
    return dataclasses.replace(found, choice=choice, bound=math.inf, bound_by="", termination=ended)


def _value_gap(round_: CompiledRound, most: float) -> float:
    """GAP of the sum that Sia minimises, lambda J - value, as a gap of the value, which is
    `most` at most.
    """
    jobs = np.count_nonzero(np.diff(round_.instance.start))
    return GAP * max(1.0, (LAMBDA * jobs - most) / most) if most > 0 else GAP


def _with_gap(task: Task, gap: float) -> Task:
    """The task with another gap; structure and dual, found already, are the same."""
    other = dataclasses.replace(task, limits=dataclasses.replace(task.limits, gap=gap))
    vars(other).update(choices=task.choices, dual=task.dual)
    return other


def goodput_round(round_: CompiledRound) -> tuple[CompiledRound, Ints]:
    """The round with Sia's values instead of the objective's and without options that cannot
    matter; and the column of the given round that each of its columns is."""
    i, jobs = round_.instance, round_.problem.jobs
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
    """(n,) G: goodput over the job's smallest positive one, times the GPUs it needs at least
    (J,).
    """
    smallest = np.full(len(least), np.inf)
    np.minimum.at(smallest, job, np.where(rate > 0, rate, np.inf))
    return np.asarray(rate / smallest[job] * least[job], dtype=np.float64)


def restart_factor(jobs: Jobs, now_s: float) -> Floats:
    """(J,) r: the share of its life that a job would have had for work if it restarted now; 1
    where nothing runs.
    """
    age = np.maximum(now_s - jobs.submitted_s, 0.0)
    spent = jobs.restarts * jobs.restart_s
    with np.errstate(invalid="ignore"):
        r = np.maximum(age - spent, 0.0) / (age + jobs.restart_s)
    return np.where((jobs.state == State.RUNNING) & (age >= jobs.restart_s) & (age > 0), r, 1.0)


def option_value(normal: Floats, factor: Floats, power: float, lam: float) -> Floats:
    """What an option adds to the maximisation: lambda - V for a negative power, V - lambda (lambda
    < 0) for a positive one. normal: G; factor: r, 1 for the present option; arrays of equal shape.
    """
    with np.errstate(divide="ignore"):
        raised = (normal * factor) ** power
    V = np.minimum(np.where(np.isfinite(raised), np.round(raised, 2), CAP), CAP)
    return np.asarray(lam - V if power < 0 else V - lam, dtype=np.float64)


def growth_limit(i: Instance, jobs: Jobs) -> Ints:
    """(J,) most GPUs of a new option: twice the most ever held, and never less than the smallest
    size on offer.
    """
    start = np.full(len(jobs), np.iinfo(np.int64).max)
    new: Bools = ~i.keep
    np.minimum.at(start, i.job[new], i.gpus[new])
    return np.asarray(np.maximum(2 * jobs.largest_gpus, start), dtype=np.int64)
