"""How many GPUs of a guarantee nodes hold for jobs that are alone in the cluster (R18).

Jobs are placed by best fit first. If that reaches what counts by pool allow, nothing else is done.
Otherwise a small model decides, with a column for every option and every place of it
(formulations/placement/exact.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from allocator.domain.problem import Bools, Ints, Problem
from allocator.options.node_needs import NodeNeeds
from allocator.options.option_table import OptionTable, find_locked_jobs
from allocator.options.staying import Staying
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Termination
from formulations.model.linear import LinearModel, RowFamily
from formulations.placement.exact import place_options
from formulations.placement.holes import Holes, Need, Place

SMALL = 800  # most places of options in the model
SEARCH_S = 2.0  # most seconds of its search

Limit = tuple[Bools, Bools, float]
"""Jobs (J,), pools (P,), and the most GPUs that they may hold there."""


class GuaranteesOnNodes:
    """Answers for one round.

    Parameters
    ----------
    problem : Problem
        The round.
    options : OptionTable
        Its options.
    """

    def __init__(self, problem: Problem, options: OptionTable) -> None:
        self._problem = problem
        self._options = options

    @cached_property
    def _needs(self) -> NodeNeeds:
        return NodeNeeds(self._problem)

    @cached_property
    def _holes(self) -> Holes:
        return self._needs.holes()

    @cached_property
    def _staying(self) -> Staying:
        return Staying.of(self._problem)

    @cached_property
    def _is_locked(self) -> Bools:
        return find_locked_jobs(self._problem)

    def most(self, goal: int, jobs: Ints, pools: Bools, limits: Sequence[Limit]) -> int:
        """Return the most GPUs, at most `goal`, that nodes hold for options of these jobs.

        It is `goal` where the model would be too large, or is not solved in time.
        """
        t = self._options
        mine = np.concatenate([np.arange(t.start[j], t.start[j + 1]) for j in jobs.tolist()])
        mine = mine[(t.primary[mine] < 0) & pools[t.pool[mine]]]
        if not self._problem.has_nodes[t.pool[mine]].any():
            return goal
        is_limited = [who[t.job[mine]] & where[t.pool[mine]] for who, where, _ in limits]
        left = [float(most) for *_, most in limits]
        if self._place_one_by_one(goal, mine, is_limited, left) == goal:
            return goal
        return self._search(goal, mine, is_limited, left)

    def _place_one_by_one(
        self, goal: int, mine: Ints, is_limited: Sequence[Bools], limits: Sequence[float]
    ) -> int:
        """Return the GPUs of jobs that each take their largest option that fits, in turn.

        Jobs that can only stay come first, then those with the largest options.
        """
        t = self._options
        holes = self._holes
        free = self._problem.pools.gpus.tolist()
        has_nodes = self._problem.has_nodes.tolist()
        left = list(limits)
        missing = goal
        taken = list[tuple[tuple[Place, ...], Need]]()
        served = set[int]()
        locked = self._is_locked[t.job[mine]]
        for at in np.lexsort((-t.gpus[mine], ~locked)).tolist():
            o = int(mine[at])
            j = int(t.job[o])
            pool = int(t.pool[o])
            k = int(t.gpus[o])
            rows = [n for n, here in enumerate(is_limited) if here[at]]
            if j in served or k > missing or any(k > left[n] for n in rows):
                continue
            if has_nodes[pool]:
                need = self._needs.of(j, pool, k, int(t.nodes[o]))
                places = self._stay(o)
                if places is not None and not holes.can_take(places, need):
                    places = None
                if places is None and not locked[at]:
                    places = holes.find(need)
                if places is None:
                    continue
                holes.take(places, need)
                taken.append((places, need))
            elif k > free[pool]:
                continue
            else:
                free[pool] -= k
            served.add(j)
            missing -= k
            for n in rows:
                left[n] -= k
            if not missing:
                break
        for places, need in taken:
            holes.release(places, need)
        return goal - missing

    def _stay(self, o: int) -> tuple[Place, ...] | None:
        """Return the places that a job keeps with option `o`, None = none."""
        j = int(self._options.job[o])
        is_kept = self._options.keep[o] and self._staying.stays[j]
        return self._staying.held.get(j) if is_kept else None

    def _search(
        self, goal: int, mine: Ints, is_limited: Sequence[Bools], limits: Sequence[float]
    ) -> int:
        t = self._options
        problem = self._problem
        option, of = list[int](), list[int]()  # of each column, and its number in `mine`
        needs = dict[int, Need]()
        stays = dict[int, tuple[Place, ...]]()
        nodes = np.bincount(problem.nodes.pool, minlength=len(problem.pools))
        gpus = np.bincount(problem.nodes.pool, problem.nodes.gpus, len(problem.pools))
        size = 0
        for at, o in enumerate(mine.tolist()):
            j = int(t.job[o])
            pool = int(t.pool[o])
            held = self._stay(o)
            ways = [] if held is None else [held]
            for way in ways if held and self._is_locked[j] else [*ways, None]:
                if problem.has_nodes[pool]:
                    need = needs[len(option)] = self._needs.of(
                        j, pool, int(t.gpus[o]), int(t.nodes[o])
                    )
                    size += int((gpus if need.share < 1 else nodes)[pool])
                if way is not None:
                    stays[len(option)] = way
                option.append(o)
                of.append(at)
        if size > SMALL or registry.available("highs") is None:
            return goal
        rows = [row[of] for row in is_limited]
        model = self._model(goal, np.array(option, dtype=np.int64), rows, limits)
        placed = place_options(model, needs, stays, self._needs.holes())
        answer = registry.get("highs").solve(placed.model, SolveLimits(SEARCH_S, 0.0))
        return round(answer.bound) if answer.termination is Termination.GAP else goal

    def _model(
        self, goal: int, option: Ints, is_limited: Sequence[Bools], limits: Sequence[float]
    ) -> LinearModel:
        """Return the model by counts: one option of a job, pools without nodes, and limits."""
        t = self._options
        problem = self._problem
        gpus = t.gpus[option].astype(float)
        jobs, job = np.unique(t.job[option], return_inverse=True)
        bare = np.flatnonzero(~problem.has_nodes).tolist()
        rows = [
            *(np.where(job == n, 1.0, 0.0) for n in range(len(jobs))),
            *(np.where(t.pool[option] == p, gpus, 0.0) for p in bare),
            *(np.where(here, gpus, 0.0) for here in is_limited),
            gpus,
        ]
        upper = [
            *np.ones(len(jobs)),
            *problem.pools.gpus[bare].astype(float),
            *limits,
            float(goal),
        ]
        matrix = np.stack(rows, axis=1)
        column, row = np.nonzero(matrix)
        n = len(option)
        return LinearModel(
            value=gpus,
            col_lower=np.zeros(n),
            col_upper=np.ones(n),
            integer=np.ones(n, dtype=bool),
            start=np.searchsorted(column, np.arange(n + 1)),
            index=row,
            coef=matrix[column, row],
            lower=np.full(len(upper), -np.inf),
            upper=np.array(upper),
            families=(RowFamily("guarantee", 0, [""] * len(upper)),),
        )
