"""A round seen several intervals ahead: the same options and rows, and the later value of work.

Announced changes of GPUs and prices (options/announced_capacity.py) happen in their interval.
Budgets and quotas are assumed not to change, and no job to arrive. Formulas:
formulations/README.md, section "The horizon".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.domain.objectives import parse_objectives
from allocator.domain.problem import Ints, State
from allocator.options.announced_capacity import fixed_gpus, prices_ahead
from allocator.options.instance_building import CompiledRound
from allocator.performance.lost_time import restart_s
from allocator.valuation.values import added_prices, build_context
from formulations.horizon.intervals import Horizon
from formulations.model.choices import Choices
from formulations.model.linear import CAPACITY
from formulations.objectives import Objective
from formulations.objectives.context import HOUR

# share of its value that work has one interval later, because the arrivals until then are unknown
DELTA = 0.7


def build_horizon(round_: CompiledRound, rows: Choices, gpus: Ints) -> Horizon:
    """Build the Horizon of H intervals of a round.

    Its options are the columns of the round's model.

    Parameters
    ----------
    round_ : CompiledRound
        The round.
    rows : Choices
        The round's model as choices.
    gpus : (H, P)
        GPUs that the pools have in each interval (options/announced_capacity.py).

    Raises
    ------
    ValueError
        The objective is not linear in work and time.
    """
    problem = round_.problem
    i = round_.instance
    m = round_.option_table
    objective = linear_objective(problem.objective)
    if objective is None or objective.linear is None:
        raise ValueError(f"the objective {problem.objective} is not linear in work and time")
    jobs = problem.jobs
    D = problem.interval_s
    H = len(gpus)
    J = len(problem.jobs)
    mean = np.maximum(gpus.mean(axis=0), np.bincount(m.pool, minlength=gpus.shape[1]) > 0)
    there = replace(problem, pools=replace(problem.pools, gpus=np.ceil(mean).astype(np.int64)))
    context = build_context(there, m.offer)
    context = context.with_losses if objective.counts_losses else context
    of_work, of_hours = objective.linear(context)
    later = DELTA ** np.arange(H)
    work = np.where(np.isfinite(of_work), of_work, 0.0)[:, None] * later
    slope = -of_hours[:, None] * later / HOUR
    finish = D * np.cumsum(-slope[:, ::-1], axis=1)[:, ::-1]
    current = np.full(J, -1)
    current[i.job[i.keep]] = np.flatnonzero(i.keep)
    startup = problem.pools.startup_s[i.pool]
    switch = startup + restart_s(problem, i.job, i.pool, i.gpus)
    gone = (jobs.state == State.RUNNING) & (current < 0)  # what the job holds is not an option
    o = round_.option
    prices = prices_ahead(problem, H).T[i.pool]
    if problem.pools.prices_memory:
        added = added_prices(problem, i.job, i.pool, i.gpus)
        prices = prices + (added - problem.pools.marginal_price[i.pool])[:, None]
    held_per_hour = i.gpus[:, None] * prices
    # upper bounds are the present ones, but for GPUs of pools; who must keep GPUs keeps them
    there_gpus = np.maximum(gpus, np.minimum(fixed_gpus(round_), i.capacity))
    high = np.tile(rows.high, (H, 1))
    pools = np.flatnonzero(round_.model.rows_of(CAPACITY)[rows.rows])
    high[1:, pools] += there_gpus[1:] - i.capacity
    return Horizon(
        start=i.start,
        rate=context.rate[o],
        switch_s=switch,
        startup_s=np.where(gone[i.job], switch, startup),
        matrix=rows.matrix.in_scipy,
        high=high,
        low=rows.low,
        current=current,
        mandatory=i.mandatory,
        remaining=jobs.remaining_work,
        interval_s=D,
        work=work,
        finish=finish,
        slope=slope,
        held=-(context.dollar_price[o, None] * held_per_hour * later) / HOUR,
        jobs=i.jobs,
        rows=[str(r) for r in rows.rows.tolist()],
    )


def linear_objective(text: str) -> Objective | None:
    """Return the objective called `text`, None if its values are not linear in work and time."""
    objectives = parse_objectives(text)
    is_linear = text == objectives[0].name and objectives[0].linear is not None
    return objectives[0] if is_linear else None
