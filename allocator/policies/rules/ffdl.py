"""FfDL's elastic scaling: a dynamic programme that maximises the total speed of the oldest jobs.

Source: Saxena et al., "Effective elastic scaling of deep learning workloads" (MASCOTS 2020). The
paper does not say which jobs take part if not all can run. Its public re-implementation goes
through them in order of submission and admits those whose smallest size still fits; so does this
one. Jobs 1 .. J are the admitted jobs in that order. P[j][k] is the largest total speed of jobs
1 .. j on k GPUs, if every job gets one of its sizes g:

    P[j][k] = max over g of  speed_j(g) + P[j-1][k-g]

speed_j(g) is the rate at g divided by the rate on one GPU of the same type. If the job may not run
on one GPU, that rate is the one at its smallest size, divided by that size. Remaining work,
weights, prices and the pause of a change do not count. Of several plans with the same total speed,
the one that gives fewer GPUs to the job submitted last is taken.

The original has one GPU type, and neither tenants nor budgets. Here every pool has its own
programme, over the GPUs that are left when all its jobs have their smallest sizes. A running job
stays in its pool if it can. A waiting job goes to the pool where an equal share of the pool serves
it fastest. Jobs of tenants below their guarantee come first, with the GPUs that are owed. If the
size that the programme gives breaks the budget or a quota, the job gets the next smaller one that
does not; the oldest job comes first. `replan` in `allocator/policies/steps.py` limits the number
of changes.
"""

from __future__ import annotations

import numpy as np

from allocator.policies.base import Proposal, Task
from allocator.policies.free_capacity import FreeCapacity
from allocator.policies.steps import option_rates, order_by_submission, replan, serve_pinned
from formulations.model.linear import Floats, Ints, begins_run

Sizes = tuple[Ints, Floats]  # sizes of one job: GPUs (s,) ascending, and speed (s,) at each


def ffdl(task: Task) -> Proposal:
    """Place the oldest jobs at their smallest sizes, then share out the rest.

    The programme of every pool distributes the rest of its GPUs.
    """
    round_ = task.round
    i = round_.instance
    home = round_.problem.jobs.pool
    order = order_by_submission(round_)
    # blocks: the options of a job in a pool, ascending in GPUs
    new = begins_run(i.job, i.pool)
    first: Ints = np.flatnonzero(new)
    stop = np.append(first[1:], len(i.job))
    block = np.cumsum(new) - 1
    rate = option_rates(round_)
    speed = rate / (rate[first] / i.gpus[first])[block]

    def place_owed(free_capacity: FreeCapacity) -> None:
        """Place jobs of tenants below their guarantee.

        They get the most GPUs within what is owed, else the fewest, first in the pool where they
        run.
        """
        for j in order[np.isin(order, i.job[i.is_guaranteed])].tolist():
            options = np.arange(i.start[j], i.start[j + 1])
            owed = np.append(free_capacity.owed, 0)[i.account[:, options]].max(axis=0, initial=0)
            options, owed = options[owed > 0], owed[owed > 0]
            if len(options) and free_capacity.choice[j] < 0:
                size = np.where(i.gpus[options] <= owed, -i.gpus[options], i.gpus[options])
                ways = options[np.lexsort((i.pool[options] != home[j], size))]
                free_capacity.assign_first(j, ways.tolist())

    def place(free_capacity: FreeCapacity) -> None:
        """Place jobs without GPUs, first come, first served, at the smallest size of a pool.

        The pool where a job runs comes first, then pools by its speed on an equal share of the
        pool.
        """
        jobs = np.bincount(home[home >= 0], minlength=len(i.capacity)).tolist()
        for j in free_capacity.waiting(order):
            if free_capacity.is_full:
                break
            places = []
            for b in range(*np.searchsorted(i.job[first], [j, j + 1]).tolist()):
                p = int(i.pool[first[b]])
                share = int(i.capacity[p]) // (jobs[p] + 1)
                within = i.gpus[first[b] : stop[b]] <= share
                fastest = rate[first[b] : first[b] + max(1, np.count_nonzero(within))].max()
                places.append((p != home[j], -float(fastest), p, int(first[b])))
            if free_capacity.assign_first(j, (o for *_, o in sorted(places))):
                p = int(i.pool[free_capacity.choice[j]])
                jobs[p] += int(p != home[j])

    def steps(free_capacity: FreeCapacity) -> None:
        serve_pinned(free_capacity, order)
        place_owed(free_capacity)
        place(free_capacity)
        placed = free_capacity.movable(order)
        at = i.pool[free_capacity.choice[placed]] if len(placed) else placed
        for p, spare in enumerate(map(int, free_capacity.free)):
            here = placed[at == p]
            now = free_capacity.choice[here]
            options = [np.arange(o, stop[block[o]]) for o in now.tolist()]
            target = maximise_speed([(i.gpus[o] - i.gpus[o[0]], speed[o]) for o in options], spare)
            for j, o, t in zip(here.tolist(), options, target.tolist(), strict=True):
                free_capacity.assign_first(j, o[: t + 1][::-1].tolist())

    return replan(task, order, steps)


def maximise_speed(jobs: list[Sizes], spare: int) -> Ints:
    """Return the size that each job gets, (J,), as an index, in a plan of the largest total speed.

    It takes O(sizes x spare).

    Parameters
    ----------
    jobs : list of Sizes
        GPUs beyond those the job already has (first size: 0), and speed.
    spare : int
        GPUs to distribute.
    """
    spare = min(spare, sum(int(extra[-1]) for extra, _ in jobs))
    best = np.zeros(spare + 1)
    pick = np.zeros((len(jobs), spare + 1), dtype=np.int16)
    for j, (extra, speed) in enumerate(jobs):
        new = best + speed[0]
        top = float(speed[0])
        for n, (g, s) in enumerate(
            zip(extra[1:].tolist(), speed[1:].tolist(), strict=True), start=1
        ):
            if g > spare:
                break
            if s <= top:  # a smaller size is as fast
                continue
            top = s
            reached = best[: spare + 1 - g] + s
            better = reached > new[g:]
            new[g:][better] = reached[better]
            pick[j, g:][better] = n
        best = new
    chosen = np.zeros(len(jobs), dtype=np.int64)
    k = spare
    for j in range(len(jobs) - 1, -1, -1):
        chosen[j] = pick[j, k]
        k -= int(jobs[j][0][chosen[j]])
    return chosen
