"""Fixed width: rent what arrives. Every job gets the width of its class on arrival and keeps it;
nobody queues.

Source: Li, Berg, Mukhopadhyay, Harchol-Balter, "GPU rental on a budget", EPEW 2024: of all policies
with the same long-run average of rented GPUs, fixed widths have the least mean response time,
whatever the sizes of the jobs; the width minimises (w + mu c k) / s(k), mu the price of a dollar in
weighted hours, c k dollars per hour, s(k) the speed. mu is dollar_price of config.toml plus that of
the tenant (formulations/rental finds it from a budget); w is the job's weight, without ageing, so
that a width never changes. GPUs of reserved pools are paid for anyway: c = 0.

The theory has pools that never run out. A width is chosen among those that quotas and budgets admit
at all. Where GPUs are short: strict order of submission, as in `static`, each job in the pool where
its width has most value among those with free GPUs. Knows speeds, no lengths.
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
    """Running jobs keep what they hold; waiting jobs start in order of submission at the width
    of their class.
    """
    round_ = task.round
    i, each = round_.instance, cost_of_work(round_)
    able = np.flatnonzero(find_feasible_options(i))
    by_pool = able[np.lexsort((i.gpus[able], each[able], i.pool[able], i.job[able]))]
    first = np.ones(len(by_pool), dtype=bool)
    first[1:] = (np.diff(i.job[by_pool]) != 0) | (np.diff(i.pool[by_pool]) != 0)
    widths = by_pool[first]
    return serve_in_order(task, rank_options(round_, widths, each[widths]))


def cost_of_work(round_: CompiledRound) -> Floats:
    """(n,) weighted hours that a unit of work costs at each option: (w + mu c k) / s(k)."""
    problem, i = round_.problem, round_.instance
    cost = i.gpus * problem.pools.marginal_price[i.pool]
    return response.cost_of_work(
        problem.jobs.weight[i.job], problem.money[i.job], cost, option_rates(round_)
    )
