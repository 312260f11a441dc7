"""Gavel: heterogeneity-aware max-min fairness by shares of time on GPU types.

A linear programme gives each job its share of the time on each GPU type. In each round the jobs
that are furthest below their share run.

Source: Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning
workloads" (OSDI 2020), sections 3 to 5, and its public code.

    max  min_m  (1 / w_m) k_m sum_t T[m,t] X[m,t] / sum_t T[m,t] G_t / sum G
    s.t. sum_t X[m,t] <= 1 for every job,   sum_m k_mt X[m,t] <= G_t for every type,   X >= 0

- X[m,t]: the share of time that job m spends on type t.
- k_mt: the GPUs that the job takes there, which are its requested size.
- T[m,t]: its speed at that size.
- w_m: its weight.
- G_t: the GPUs of the type.

With the factor k_m equal numbers mean equal GPU time, not equal time. The optimum is not unique: a
second programme maximises the sum of the same terms among the plans whose least term is the best
possible.

The priority of a job on a type is X divided by the fraction of its life that it has had the type
(received.csv). It is infinite for a job that never had the type, and 0 without a share. Of equal
priorities the larger X comes first, then the present type, then the older job. Pairs of job and
type are served greedily in that order, at the requested size, each job once.

Jobs are paused only when a lease ends. Leases last 360 s in whole rounds, at least one, and all
begin together. Inside a lease running jobs keep what they hold, and free GPUs go to waiting jobs by
priority.

Simplified:

- No two jobs share a GPU.
- The time received counts from submission, while the original forgets it when a job arrives or
  leaves. So late jobs catch up here.
- There is one level of max-min, without water filling for the jobs above it.
- Jobs that may not move are taken out of the programme with their GPUs.
- Budgets and quotas are not in the programme; the greedy filling keeps them.
- If a type does not offer the requested size, the nearest one is used.

max_changes: see steps.replan.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import (
    Steps,
    group_options,
    option_rates,
    replan,
    run_steps,
    serve_first,
)
from formulations.model.linear import Floats, Ints, begins_run

LEASE_S = 360.0  # default of the original, whose rounds have the same length
# relative: distance by which the second programme may fall below the level of the first
SLACK = 1e-7
MANY = 300  # number of classes of jobs from which an interior-point method is faster


def maxmin(task: Task) -> Proposal:
    """Compute shares of time by the linear programme, then fill greedily by priority.

    Shares are equal if there is no time for the programme.
    """
    round_ = task.round
    renewed = is_lease_start(round_.problem.now_s, round_.problem.interval_s)
    unchanged_choice = round_.unchanged_choice()
    if not renewed and (
        FreeCapacity(round_, unchanged_choice).is_full or (unchanged_choice >= 0).all()
    ):
        return run_steps(task, lambda free_capacity: None, start=unchanged_choice)
    demand = ThroughputDemand.of(round_)
    X, solved = allocate_time(demand, lambda: task.remaining().time_s)
    order, steps = _fill_by_priority(round_, demand, X)
    proposal = (
        replan(task, order, steps)
        if renewed
        else run_steps(task, steps, start=unchanged_choice, pinned=unchanged_choice >= 0)
    )
    if solved:
        return proposal
    note = "no time for the linear programme of max-min fairness: priorities from equal shares"
    return dataclasses.replace(
        proposal, detail=f"{note}; {proposal.detail}" if proposal.detail else note
    )


def is_lease_start(now_s: float, interval_s: float) -> bool:
    """Return whether this round is the first of a lease; rounds are counted from 0 of the clock."""
    return math.floor(now_s / interval_s + 1e-9) % max(1, round(LEASE_S / interval_s)) == 0


@dataclass(frozen=True)
class ThroughputDemand:
    """What the jobs ask for.

    Attributes
    ----------
    throughput : (J, T)
        Effective throughput of the whole time on a type, as in the objective, 0 where impossible.
    size : (J, T)
        GPUs for it.
    capacity : (T,)
        GPUs not bound to jobs that may not move.
    """

    throughput: Floats
    size: Ints
    capacity: Floats

    @classmethod
    def of(cls, round_: CompiledRound) -> ThroughputDemand:
        """Return the demand of a round."""
        i = round_.instance
        problem = round_.problem
        jobs = problem.jobs
        pools = problem.pools
        T = len(problem.gpu_types)
        type_ = pools.gpu_type[i.pool]
        group = i.job * T + type_
        asked = jobs.requested_gpus[i.job]
        order = np.lexsort((i.gpus, np.abs(i.gpus - asked), group))
        first = order[begins_run(group[order])]
        size = np.zeros((len(jobs), T), dtype=np.int64)
        rate = np.zeros((len(jobs), T))
        size.reshape(-1)[group[first]] = i.gpus[first]
        rate.reshape(-1)[group[first]] = option_rates(round_)[first]
        cluster = np.bincount(pools.gpu_type, i.capacity, T).astype(np.float64)
        bound = np.flatnonzero(i.mandatory[i.job])
        capacity: Floats = cluster - np.bincount(type_[bound], i.gpus[bound], T)
        rate[i.mandatory] = 0.0
        rate[size > capacity] = 0.0
        equal = (rate @ cluster / max(float(cluster.sum()), 1.0))[:, None]
        factor = (jobs.requested_gpus / jobs.weight)[:, None]
        return cls(
            factor * np.divide(rate, equal, out=np.zeros_like(rate), where=equal > 0),
            size,
            capacity,
        )


def allocate_time(demand: ThroughputDemand, remaining: Callable[[], float]) -> tuple[Floats, bool]:
    """Return X (J, T), and whether the programmes were solved.

    `remaining` gives the seconds that are left. Identical jobs get identical shares, so the
    programmes have one row per class of jobs.
    """
    if not demand.throughput.any():
        return np.zeros_like(demand.throughput), True
    rows = np.hstack([demand.throughput, np.where(demand.throughput > 0, demand.size, 0)])
    classes, member, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    T = demand.throughput.shape[1]
    throughput = classes[:, :T]
    size = classes[:, T:]
    some = np.flatnonzero(throughput.any(axis=1))
    X = np.zeros_like(throughput)
    equal = equal_shares(size[some], count[some], demand.capacity)
    shares = solve_shares(
        throughput[some], size[some], count[some], demand.capacity, equal, remaining
    )
    X[some] = equal if shares is None else shares
    return np.round(X, 9)[member.reshape(-1)], shares is not None


def equal_shares(size: Floats, count: Ints, capacity: Floats) -> Floats:
    """Return equal shares of every type for all jobs that can use it, (C, T).

    No job gets more than the whole time.
    """
    demand = count @ size
    share = np.where(size > 0, np.minimum(1.0, capacity / np.maximum(demand, 1e-300)), 0.0)
    return np.asarray(share / np.maximum(1.0, share.sum(axis=1, keepdims=True)))


def solve_shares(
    throughput: Floats,
    size: Floats,
    count: Ints,
    capacity: Floats,
    equal: Floats,
    remaining: Callable[[], float],
) -> Floats | None:
    """Return the shares (C, T) of the two programmes for C classes of `count` jobs each.

    The result is None if time runs out before the first is solved. `equal` are feasible shares,
    which only set the scale of the numbers.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    c, t = np.nonzero(throughput)
    C, T, n = *throughput.shape, len(c)
    value = throughput[c, t] / float((throughput * equal).sum(axis=1).min())
    column = np.arange(n)
    one = np.ones(n)
    entries = sparse.csr_matrix(
        (
            np.concatenate([one, count[c] * size[c, t], -value, np.ones(C)]),
            (
                np.concatenate([c, C + t, C + T + c, C + T + np.arange(C)]),
                np.concatenate([column, column, column, np.full(C, n)]),
            ),
        ),
        shape=(2 * C + T, n + 1),
    )
    upper = np.concatenate([np.ones(C), capacity, np.zeros(C)])
    best: Floats | None = None
    least = 0.0
    for cost in (np.append(np.zeros(n), -1.0), np.append(-count[c] * value, 0.0)):
        seconds = remaining()
        if seconds <= 0:
            break
        limit = {"time_limit": seconds} if np.isfinite(seconds) else {}
        bounds = np.column_stack([np.append(np.zeros(n), least), np.full(n + 1, np.inf)])
        answer = linprog(
            cost,
            A_ub=entries,
            b_ub=upper,
            bounds=bounds,
            options=limit,
            method="highs-ipm" if C > MANY else "highs-ds",
        )
        if answer.status != 0:
            break
        best = answer.x[:n]
        least = float(answer.x[n]) * (1 - SLACK)
    if best is None:
        return None
    X = np.zeros((C, T))
    X[c, t] = np.clip(best, 0.0, 1.0)
    return X


def _fill_by_priority(
    round_: CompiledRound, demand: ThroughputDemand, X: Floats
) -> tuple[Ints, Steps]:
    """Return the order of the jobs (J,) by best priority, and the step that fills free GPUs."""
    i = round_.instance
    problem = round_.problem
    # X over the fraction of its life that a job has had the type, (J, T)
    age_s = np.maximum(problem.now_s - problem.jobs.submitted_s, 1e-9)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        priority = np.where(X > 0, X / (problem.received / age_s), 0.0)
    type_ = problem.pools.gpu_type[i.pool]
    preferred = np.flatnonzero(i.gpus == demand.size[i.job, type_])
    job = i.job[preferred]
    of_type = type_[preferred]
    away = i.pool[preferred] != problem.jobs.pool[job]
    keys = (
        i.pool[preferred],
        -demand.throughput[job, of_type],
        problem.jobs.submitted_s[job],
        away,
        -X[job, of_type],
        -priority[job, of_type],
    )
    ranked = preferred[np.lexsort(keys)]
    first = np.full(len(i.mandatory), len(ranked))
    np.minimum.at(first, i.job[ranked], np.arange(len(ranked)))
    order = np.argsort(first, kind="stable")
    wishes = group_options(round_, ranked)
    pairs = list(zip(i.job[ranked].tolist(), ranked.tolist(), strict=True))

    def steps(free_capacity: FreeCapacity) -> None:
        serve_first(free_capacity, order, wishes)
        now = free_capacity.choice.data
        for j, o in pairs:
            if now[j] < 0 and free_capacity.assign(j, o) and free_capacity.is_full:
                break

    return order, steps
