"""Fixed width: every job gets the width of its class on arrival and keeps it; no job queues.

Source: Li, Berg, Mukhopadhyay, Harchol-Balter, "GPU rental on a budget", EPEW 2024. Of all policies
with the same long-run average of rented GPUs, fixed widths have the least mean response time,
whatever the sizes of the jobs. The width minimises (w + mu c k) / s(k):

- w: the job's weight, without ageing, so that a width never changes.
- mu: the price of a dollar in weighted hours. It is dollar_price of config.toml plus that of the
  tenant (formulations/rental finds it from a budget).
- c k: dollars per hour. GPUs of reserved pools are paid for in any case, so c = 0 there.
- s(k): the speed.

The theory has pools that never run out. Here a width is chosen among those that quotas and budgets
allow at all. If GPUs are short, jobs start in strict order of submission, as in `static`, each in
the pool with free GPUs where its width has most value. The policy knows speeds, but no lengths.
"""

from __future__ import annotations

import numpy as np

from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.rules.static import serve_in_order
from allocator.policies.steps import option_rates, rank_options
from formulations.model.dominance import find_feasible_options
from formulations.model.linear import Floats
from formulations.objectives import response


def rental(task: Task) -> Proposal:
    """Start waiting jobs by submission at the width of their class; running jobs change nothing."""
    round_ = task.round
    i, each = round_.instance, cost_of_work(round_)
    able = np.flatnonzero(find_feasible_options(i))
    by_pool = able[np.lexsort((i.gpus[able], each[able], i.pool[able], i.job[able]))]
    first = np.ones(len(by_pool), dtype=bool)
    first[1:] = (np.diff(i.job[by_pool]) != 0) | (np.diff(i.pool[by_pool]) != 0)
    widths = by_pool[first]
    return serve_in_order(task, rank_options(round_, widths, each[widths]))


def cost_of_work(round_: CompiledRound) -> Floats:
    """Return the weighted hours that a unit of work costs at each option, (n,).

    It is (w + mu c k) / s(k).
    """
    problem, i = round_.problem, round_.instance
    cost = i.gpus * problem.pools.marginal_price[i.pool]
    return response.cost_of_work(
        problem.jobs.weight[i.job], problem.money[i.job], cost, option_rates(round_)
    )
