"""Repairs of a round that lost GPUs: released jobs, and a raised limit on changes (R29).

A drained pool is no reason to refuse a round. Non-preemptible jobs that the pool can no longer hold
are released: as few GPUs as possible, and two jobs that share GPUs go or stay together.
`max_changes` is raised to the number of changes that lost GPUs force. Each repair is reported.
Every other contradiction is a conflict of rules (policies/conflict.py).
"""

from __future__ import annotations

import numpy as np

from allocator.domain.allocation import Repairs
from allocator.domain.problem import Bools, Ints, Problem, State
from allocator.options.kept import headroom
from allocator.options.option_table import OptionTable
from allocator.options.quotas import lending, lending_messages, quota_table, usable_guarantees
from allocator.options.staying import Staying


def repairs(problem: Problem, option_table: OptionTable) -> Repairs:
    """Return the repairs of a round; see allocator/domain/allocation.py.

    The option table includes the options of secondary jobs that run.
    """
    jobs = problem.jobs
    pools = problem.pools
    unit = _units(problem, option_table)
    running = jobs.state == State.RUNNING
    has_keep = _find_keepers(option_table, len(jobs))
    released = np.zeros(len(jobs), bool)
    lost = np.flatnonzero(running & ~has_keep)
    forced = len(lost)
    messages = [
        f'job "{jobs.job_id[j]}" holds {jobs.gpus[j]} GPUs of pool "{pools.pool[jobs.pool[j]]}"'
        f" that it can not keep: {_why_lost(problem, int(j))}"
        for j in lost
    ]
    for p in range(len(pools)):
        here = np.flatnonzero(running & has_keep & (jobs.pool == p))
        holders = here[unit[here] == here]
        if jobs.gpus[holders].sum() <= pools.gpus[p]:
            continue
        bound = here[~jobs.preemptible[here]]
        fixed = np.unique(unit[bound])
        gone = _least_released(fixed, problem)
        leave = bound[np.isin(unit[bound], gone)]
        released[leave] = True
        messages += [
            f'pool "{pools.pool[p]}" has {pools.gpus[p]} GPUs left: non-preemptible job'
            f' "{jobs.job_id[j]}" ({jobs.gpus[j]} GPUs) is released'
            for j in leave
        ]
        kept = int(jobs.gpus[fixed].sum() - jobs.gpus[gone].sum())
        forced += int(np.isin(unit[here], gone).sum())
        evictable = np.setdiff1d(holders, fixed)
        over = int(jobs.gpus[evictable].sum()) + kept - int(pools.gpus[p])
        members = np.bincount(unit[here], minlength=len(jobs))[evictable]
        # fewest changes for the GPUs that must be released
        order = np.argsort(-jobs.gpus[evictable] / members, kind="stable")
        freed = np.cumsum(jobs.gpus[evictable][order])
        forced += int(members[order][: np.searchsorted(freed, over) + 1].sum()) if over > 0 else 0
    limit = problem.max_changes
    if 0 <= limit < forced:
        messages.append(
            f"lost GPUs force {forced} running jobs to change: max_changes {limit} is lifted to"
            f" {forced}"
        )
        limit = forced
    mandatory = find_mandatory_jobs(problem, option_table, released)
    quotas = quota_table(problem)
    if len(problem.interactive):
        messages += headroom.repairs(problem, mandatory)
    usable = usable_guarantees(problem, quotas, option_table)
    messages += lending_messages(quotas, lending(problem, quotas, usable, mandatory))
    return Repairs(released, limit, usable, tuple(messages))


def find_mandatory_jobs(problem: Problem, option_table: OptionTable, released: Bools) -> Bools:
    """Find the non-preemptible running jobs that can keep what they hold, (J,)."""
    keeps = _find_keepers(option_table, len(released))
    return keeps & ~problem.jobs.preemptible & ~released


def _find_keepers(option_table: OptionTable, jobs: int) -> Bools:
    return np.bincount(option_table.job[option_table.keep], minlength=jobs) > 0


def _units(problem: Problem, option_table: OptionTable) -> Ints:
    """Return the job that stands for each job, (J,): two jobs on the same GPUs need them once.

    A running secondary job that may stay with its primary job is represented by the primary job.
    Several primary jobs are represented by the secondary job that may stay with all of them. Every
    other job is represented by itself.
    """
    unit = np.arange(len(problem.jobs))
    several = option_table.has_several
    for o in np.flatnonzero(option_table.keep & several).tolist():
        primaries = option_table.primaries_of(o)
        if len(primaries) == np.count_nonzero(problem.jobs.secondary == option_table.job[o]):
            unit[primaries] = option_table.job[o]
    there = np.flatnonzero(option_table.keep & (option_table.primary >= 0) & ~several)
    g = option_table.job[there]
    h = option_table.primary[there]
    unit[g] = np.where(problem.jobs.primary[g] == h, h, unit[g])
    return unit


def _why_lost(problem: Problem, j: int) -> str:
    jobs = problem.jobs
    pools = problem.pools
    on = np.unique(problem.placements.node[problem.placements.job == j]).tolist()
    if not Staying.of(problem).stays[j]:
        state = ("up", "drained", "down")
        nodes = [f'"{problem.nodes.node[n]}" ({state[problem.nodes.state[n]]})' for n in on]
        return f"it has to leave node {', '.join(nodes)}" if nodes else "no nodes hold it"
    if jobs.gpus[j] > pools.gpus[jobs.pool[j]]:
        return f"the pool has {pools.gpus[jobs.pool[j]]} left"
    model = problem.models[jobs.model[j]]
    kind = problem.gpu_types[pools.gpu_type[jobs.pool[j]]]
    return f'no rate is known for model "{model}" on {jobs.gpus[j]} x {kind}'


def _least_released(fixed: Ints, problem: Problem) -> Ints:
    """Choose the jobs to release so that all others can stay in the pool.

    The fewest GPUs are released; of equal choices the latest submitted jobs go.
    """
    jobs = problem.jobs
    if not len(fixed):
        return fixed
    capacity = int(problem.pools.gpus[jobs.pool[fixed[0]]])
    order = fixed[np.argsort(jobs.submitted_s[fixed], kind="stable")]
    mask = (1 << (capacity + 1)) - 1
    reach = [1]
    # the latest job first, so that the walk back keeps the earliest
    for j in order[::-1]:
        reach.append((reach[-1] | reach[-1] << int(jobs.gpus[j])) & mask)
    left = reach[-1].bit_length() - 1
    gone = []
    for i, j in enumerate(order):
        before = reach[len(order) - 1 - i]
        k = int(jobs.gpus[j])
        if left >= k and before >> (left - k) & 1:
            left -= k
        else:
            gone.append(j)
    return np.array(gone, np.int64)
