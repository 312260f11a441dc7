"""Fixed width: every job gets the width of its class on arrival and keeps it; no job queues.

Source: Li, Berg, Mukhopadhyay, Harchol-Balter, "GPU rental on a budget", EPEW 2024. Of all policies
with the same long-run average of rented GPUs, fixed widths have the least mean response time,
whatever the sizes of the jobs. The width minimises (w + mu c k) / s(k):

- w: the job's weight, without ageing, so that a width never changes.
- mu: the price of a dollar in weighted hours. It is dollar_price of config.toml plus that of the
  tenant (formulations/rental finds it from a budget).
- c k: dollars per hour. GPUs of reserved pools are paid for in any case, so c = 0 there.
- s(k): the speed.

With whole GPUs the best plan of a budget splits at most one class between two widths, which are
equally good at its mu. wider_share of [rental] in config.toml says how many of its jobs take the
wider one. Which jobs do depends on nothing but their names.

A job keeps its width, unless its model has phases: it then takes the width of the phase that it is
in, where GPUs and rules allow that, and so it follows the price too.

The theory has pools that never run out. Here a width is chosen among those that quotas and budgets
allow at all. If GPUs are short, jobs start in strict order of submission, as in `static`, each in
the pool with free GPUs where its width has most value. The policy knows speeds, but no lengths.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from allocator.domain.cluster import find_phases
from allocator.domain.problem import Bools, Floats, Problem
from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task
from allocator.policies.rules.static import serve_in_order
from allocator.policies.steps import option_rates, rank_options
from allocator.valuation.values import added_prices
from formulations.model.linear import begins_run
from formulations.model.single_round import find_feasible_options
from formulations.objectives import response

EQUAL = 1e-6  # relative: widths whose cost differs by less are equally good


def rental(task: Task) -> Proposal:
    """Start waiting jobs by submission at the width of their class, and change it by phase."""
    round_ = task.round
    i, problem = round_.instance, round_.problem
    each = cost_of_work(round_)
    able = np.flatnonzero(find_feasible_options(i))
    place = i.job * len(i.capacity) + i.pool
    least = np.full(len(problem.jobs) * len(i.capacity), np.inf)
    np.minimum.at(least, place[able], each[able])
    best = able[each[able] <= least[place[able]] * (1 + EQUAL)]
    width = np.where(_takes_wider(problem)[i.job[best]], -i.gpus[best], i.gpus[best])
    best = best[np.lexsort((width, place[best]))]
    widths = best[begins_run(place[best])]
    present = round_.unchanged_choice()
    phases = [m for phase in find_phases(problem.models) for m in (phase.model, phase.phase)]
    changing = (present >= 0) & ~np.isin(present, widths) & ~i.mandatory
    changing &= np.isin(problem.jobs.model, phases)
    return serve_in_order(task, rank_options(round_, widths, each[widths]), changing)


def _takes_wider(problem: Problem) -> Bools:
    """Return the jobs that take the wider of two equally good widths, (J,)."""
    share = float(problem.settings.get("rental", {}).get("wider_share", 0.0))
    digests = [blake2b(name.encode(), digest_size=8).digest() for name in problem.jobs.job_id]
    chance = np.array([int.from_bytes(d, "big") for d in digests], dtype=np.float64)
    return chance < share * 2.0**64


def cost_of_work(round_: CompiledRound) -> Floats:
    """Return the weighted hours that a unit of work costs at each option, (n,).

    It is (w + mu c k) / s(k).
    """
    problem = round_.problem
    i = round_.instance
    cost = i.gpus * added_prices(problem, i.job, i.pool, i.gpus)
    return response.cost_of_work(
        problem.jobs.weight[i.job], problem.money[i.job], cost, option_rates(round_)
    )
