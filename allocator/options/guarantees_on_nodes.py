"""How many GPUs of a guarantee nodes hold for jobs that are alone in the cluster (R18).

A small model decides, with a column for every option and every place of it
(formulations/placement/exact.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.options.kept.reservations import forbidden_nodes
from allocator.options.node_needs import NONE, NodeNeeds
from allocator.options.option_table import OptionTable, find_locked_jobs
from allocator.options.staying import Staying
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Termination
from formulations.model.linear import LinearModel, RowFamily, ragged
from formulations.placement.exact import place_options
from formulations.placement.holes import Need, Place

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
    most_jobs : (Q,)
        Jobs of each tenant at most, inf = no limit.
    """

    def __init__(self, problem: Problem, options: OptionTable, most_jobs: Floats) -> None:
        self._problem = problem
        self._options = options
        self._most_jobs = most_jobs
        self._needs = NodeNeeds(problem)
        self._forbidden = forbidden_nodes(problem, options)
        self._is_locked = find_locked_jobs(problem)

    def most(self, goal: int, jobs: Ints, pools: Bools, limits: Sequence[Limit]) -> int:
        """Return the most GPUs, at most `goal`, that nodes hold for options of these jobs.

        It is `goal` where the model would be too large, or is not solved in time.
        """
        t = self._options
        problem = self._problem
        staying = Staying.of(problem)
        candidates = ragged(t.start[jobs], t.start[jobs + 1])[1]
        candidates = candidates[(t.primary[candidates] < 0) & pools[t.pool[candidates]]]
        if not problem.has_nodes[t.pool[candidates]].any():
            return goal
        option, size = list[int](), 0
        needs, stays = dict[int, Need](), dict[int, tuple[Place, ...]]()
        nodes = np.bincount(problem.nodes.pool, minlength=len(problem.pools))
        gpus = np.bincount(problem.nodes.pool, problem.nodes.gpus, len(problem.pools))
        for o in candidates.tolist():
            j, pool = int(t.job[o]), int(t.pool[o])
            places = staying.held.get(j) if t.keep[o] and staying.stays[j] else None
            ways = [] if places is None else [places]
            for way in ways if places and self._is_locked[j] else [*ways, None]:
                if problem.has_nodes[pool]:
                    avoids = self._forbidden.get(o, NONE)
                    need = needs[len(option)] = self._needs.of(
                        j, pool, int(t.gpus[o]), int(t.nodes[o]), avoids=avoids
                    )
                    size += int((gpus if need.share < 1 else nodes)[pool])
                if way is not None:
                    stays[len(option)] = way
                option.append(o)
            if size > SMALL or registry.available("highs") is None:
                return goal
        model = self._model(goal, np.array(option, np.int64), limits)
        if self._pack(model, needs, stays) == goal:
            return goal
        placed = place_options(model, needs, stays, self._needs.holes())
        answer = registry.get("highs").solve(placed.model, SolveLimits(SEARCH_S, 0.0))
        return round(answer.bound) if answer.termination is Termination.GAP else goal

    def _pack(
        self, model: LinearModel, needs: dict[int, Need], stays: dict[int, tuple[Place, ...]]
    ) -> float:
        """Return the GPUs of options that nodes hold if they are placed the largest first."""
        holes, x = self._needs.holes(), np.zeros(model.n)
        for o in np.argsort(-model.value, kind="stable").tolist():
            x[o] = 1.0
            places = stays.get(o) or holes.find(needs[o]) if o in needs else None
            if places and holes.can_take(places, needs[o]) and model.feasible(x):
                holes.take(places, needs[o])
            else:
                x[o] = 0.0
        return float(model.value @ x)

    def _model(self, goal: int, option: Ints, limits: Sequence[Limit]) -> LinearModel:
        """Return the model by counts: one option of a job, pools without nodes, and limits."""
        t = self._options
        problem = self._problem
        gpus = t.gpus[option].astype(float)
        jobs, job = np.unique(t.job[option], return_inverse=True)
        bare = np.flatnonzero(~problem.has_nodes).tolist()
        tenant = problem.jobs.tenant[t.job[option]]
        few = np.flatnonzero(np.isfinite(self._most_jobs)).tolist()
        most_of = [
            *((job == n, 1.0) for n in range(len(jobs))),
            *((gpus * (t.pool[option] == p), problem.pools.gpus[p]) for p in bare),
            *((gpus * (who[t.job[option]] & where[t.pool[option]]), k) for who, where, k in limits),
            *((tenant == q, self._most_jobs[q]) for q in few),
            (gpus, goal),
        ]
        rows, upper = zip(*most_of, strict=True)
        matrix = np.stack(rows, axis=1).astype(float)
        column, row = np.nonzero(matrix)
        n = len(option)
        return LinearModel(
            value=gpus,
            col_lower=np.zeros(n),
            col_upper=np.ones(n),
            integer=np.ones(n, bool),
            start=np.searchsorted(column, np.arange(n + 1)),
            index=row,
            coef=matrix[column, row],
            lower=np.full(len(upper), -np.inf),
            upper=np.array(upper, float),
            families=(RowFamily("guarantee", 0, [""] * len(upper)),),
        )
