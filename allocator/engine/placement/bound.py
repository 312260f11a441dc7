"""An upper bound on the value of every plan of a round that names nodes.

The mathematics is in formulations/placement/hole_prices.py.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Ints
from allocator.options.instance_building import CompiledRound
from allocator.options.node_needs import NodeNeeds
from allocator.options.staying import Staying
from allocator.policies.base import Task
from formulations.bounds.lagrangian import project_prices
from formulations.placement.hole_prices import NodeParts, bound_on_nodes, list_least_parts
from formulations.placement.holes import Wish

TIME = 0.5  # share of the time that is left


def bound_round(task: Task, wide: CompiledRound, value: float) -> float:
    """Return an upper bound on the value of every plan that names nodes.

    The bound does not know CPUs, memory, shares of a GPU, nor what is kept for a reservation. Each
    of these only forbids plans, so the bound holds with them as well. Nodes, and the domains of
    each level, give a bound each, of which the lowest counts.

    Parameters
    ----------
    task : Task
        The task of the round, with its prices.
    wide : CompiledRound
        The round with moves.
    value : float
        Value of the plan that is known.
    """
    c = wide.choices
    prices = task.dual.prices
    if len(prices) != c.model.m or not wide.has_all_pairs:
        return math.inf
    until, best = task.share_of_time(TIME), math.inf
    wishes, levels = {*wide.problem.jobs.placement}, wide.problem.levels
    for level in (-1, *(n for n, x in enumerate(levels) if f"same_{x.name}" in wishes)):
        parts = _find_parts(wide, level)
        best = min(best, bound_on_nodes(c, project_prices(c, prices), parts, value, until))
    return best


def _find_parts(wide: CompiledRound, level: int) -> NodeParts:
    """Find the GPUs of nodes that columns keep, and the holes that the others need.

    A column that needs one GPU fits wherever a GPU is free, so it needs no hole. With a level, -1 =
    none, a domain counts as one node, and holes are those of jobs that want to be in one domain.
    """
    i, problem = wide.instance, wide.problem
    needs = NodeNeeds(problem)
    pool = np.array(needs.holes().pool)
    gpus = np.where(pool >= 0, problem.nodes.gpus, 0)
    own = (i.primary < 0) & problem.has_nodes[i.pool]
    # columns that keep GPUs on known nodes, without those of jobs that might also move by a column
    # that the round does not have
    move = (i.job * len(i.capacity) + i.pool) * (int(i.gpus.max(initial=0)) + 1) + i.gpus
    staying = Staying.of(problem)
    columns = np.bincount(i.job, minlength=len(i.mandatory))
    firm = i.mandatory & (columns == 1)  # what can do nothing else has its GPUs for sure
    fixed = i.keep & ~staying.assumed[i.job]
    fixed &= firm[i.job] | np.isin(move, move[~i.keep & (i.primary < 0)])
    stays: Ints = np.array(
        [
            (c, n, k)
            for c in np.flatnonzero(own & fixed).tolist()
            for n, k, g in staying.held.get(int(i.job[c]), ())
            if pool[n] >= 0 and g < 0
        ],
        np.int64,
    ).reshape(-1, 3)
    sure = firm[i.job[stays[:, 0]]]
    gpus = gpus - np.bincount(stays[sure, 1], stays[sure, 2], len(gpus)).astype(np.int64)
    largest = [int(problem.nodes.gpus[pool == p].max(initial=0)) for p in range(len(problem.pools))]
    kinds = dict[tuple[int, int], int]()
    holes = list[tuple[int, int]]()
    whole = np.isnan(problem.jobs.gpu_fraction[i.job])
    for c in np.flatnonzero(own & whole & ~i.keep & (i.gpus > 1)).tolist():
        need = wide.need_of(needs, c)
        if level >= 0 and (need.wish, need.level) == (Wish.SAME, level):
            holes.append((c, kinds.setdefault((need.pool, need.gpus), len(kinds))))
        elif level < 0 and (need.wish is Wish.PACKED or need.least_nodes):
            pods, most = need.gpus // need.pod, largest[need.pool] // need.pod
            for part in list_least_parts(pods, need.most_nodes, most):
                if part * need.pod > 1:
                    kind = kinds.setdefault((need.pool, part * need.pod), len(kinds))
                    holes.append((c, kind))
    label = problem.levels[level].domain if level >= 0 else np.arange(len(pool))
    domains, domain = np.unique(np.stack([pool, label]), axis=1, return_inverse=True)
    domain = domain.reshape(-1)
    stays[:, 1] = domain[stays[:, 1]]
    return NodeParts(
        np.bincount(domain, np.maximum(gpus, 0)).astype(np.int64),
        domains[0],
        *stays[~sure].T,
        *np.array(holes, np.int64).reshape(-1, 2).T,
        *np.array(list(kinds), np.int64).reshape(-1, 2).T,
    )
