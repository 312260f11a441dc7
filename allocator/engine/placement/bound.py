"""Bound the value of every plan of a round on nodes, from prices of rows and of holes."""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Ints
from allocator.options.instance_building import CompiledRound
from allocator.options.node_needs import NodeNeeds
from allocator.options.staying import Staying
from allocator.policies.base import Task
from formulations.bounds.lagrangian import project_prices
from formulations.model.choices import choices
from formulations.model.ragged import begins_run
from formulations.placement.hole_prices import HoleNeeds, Stays, bound_on_nodes, find_least_parts
from formulations.placement.holes import Need, Wish

TIME = 0.5  # share of the time that is left


def bound_round(task: Task, wide: CompiledRound, value: float) -> float:
    """Return a bound on the value of every plan of a round with moves on nodes.

    What jobs need besides GPUs on so many nodes, such as CPUs, racks or a share of a GPU, is left
    out: more plans have no lower bound.

    Parameters
    ----------
    task : Task
        The task of the round, with its prices.
    wide : CompiledRound
        The round with moves.
    value : float
        Value of the plan that is known.
    """
    c = choices(wide.model)
    prices = task.dual.prices
    if len(prices) != c.model.m or not wide.has_all_pairs:
        return math.inf
    needs = NodeNeeds(wide.problem)
    holes = needs.holes()
    pool = np.array(holes.pool)
    gpus = np.where(pool >= 0, wide.problem.nodes.gpus, 0)
    stays = _find_stays(wide, pool)
    return bound_on_nodes(
        c,
        project_prices(c, prices),
        gpus,
        pool,
        stays,
        _find_hole_needs(wide, needs, gpus, pool),
        value,
        task.share_of_time(TIME),
    )


def _find_stays(wide: CompiledRound, pool: Ints) -> Stays:
    """Find the columns that stay on known nodes, of jobs that could move or could do nothing else.

    A job that stays and has no move might have one that the round does not offer.
    """
    i = wide.instance
    staying = Staying.of(wide.problem)
    own = np.flatnonzero((i.primary < 0) & wide.problem.has_nodes[i.pool])
    keep = own[i.keep[own]]
    keep = keep[~staying.assumed[i.job[keep]]]
    columns = np.bincount(i.job, minlength=len(i.mandatory))
    place = np.full(len(i.mandatory), -1)
    place[i.job[keep]] = keep
    others = own[~i.keep[own]]
    same = place[i.job[others]]
    moves = (i.pool[others] == i.pool[same]) & (i.gpus[others] == i.gpus[same]) & (same >= 0)
    firm = i.mandatory & (columns == 1)
    firm[i.job[others[moves]]] = True
    rows = [
        (c, n, k)
        for c in place[firm & (place >= 0)].tolist()
        for n, k, g in staying.held.get(int(i.job[c]), ())
        if pool[n] >= 0 and g < 0
    ]
    return Stays(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


def _find_hole_needs(wide: CompiledRound, needs: NodeNeeds, gpus: Ints, pool: Ints) -> HoleNeeds:
    """Find the holes of several GPUs that columns need whose jobs are placed anew."""
    i = wide.instance
    jobs = wide.problem.jobs
    anew = np.flatnonzero((i.primary < 0) & wide.problem.has_nodes[i.pool] & ~i.keep)
    anew = anew[np.isnan(jobs.gpu_fraction[i.job[anew]])]
    wish = np.unique(jobs.placement, return_inverse=True)[1]
    alike = (jobs.model[i.job[anew]], wish[i.job[anew]], i.pool[anew], i.gpus[anew])
    alike = (*alike, wide.nodes[anew])
    order = np.lexsort(alike)
    first = begins_run(*(column[order] for column in alike)) if len(order) else order
    largest = np.zeros(len(wide.problem.pools), dtype=np.int64)
    np.maximum.at(largest, pool[pool >= 0], gpus[pool >= 0])
    kinds = dict[tuple[int, int], int]()
    rows = list[tuple[Ints, Ints]]()
    for columns in np.split(anew[order], np.flatnonzero(first)[1:]):
        need = wide.need_of(needs, int(columns[0])) if len(columns) else None
        for size in [] if need is None else _list_holes(need, int(largest[need.pool])):
            kind = kinds.setdefault((need.pool, size), len(kinds))
            rows.append((columns, np.full(len(columns), kind)))
    column, kind_of = np.hstack([np.zeros((2, 0), dtype=np.int64), *rows])
    return HoleNeeds(column, kind_of, *np.array(list(kinds), dtype=np.int64).reshape(-1, 2).T)


def _list_holes(need: Need, largest: int) -> list[int]:
    """List the holes of several GPUs that a need asks for; single GPUs are counted by pool."""
    if need.wish is not Wish.PACKED and not need.least_nodes:
        return []
    return [s for s in find_least_parts(need.gpus, need.most_nodes, largest) if s > 1]
