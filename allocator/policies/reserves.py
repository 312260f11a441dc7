"""GPUs that are not lent give way where no plan keeps all rules otherwise (R65).

For the sets of pools g = 1, 2, ... in turn, all GPUs first, then as quotas.csv names them,

    E_g = max( 0, min sum_{o in g} k_o x_o - limit_g )
    s.t.  sum_{o in h} k_o x_o <= limit_h + E_h for h < g; all rules but those of h >= g

limit_g are the GPUs that are lent (formulations/model/single_round.py, `lending`). So a plan exists
with these E wherever one exists without reserves, and no plan takes less of the first set, nor then
of the second, and so on.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from allocator.domain.problem import Problem
from allocator.options.instance_building import CompiledRound
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
from formulations.model.linear import LENDING


def find_yielding(round_: CompiledRound, until: float) -> Problem | None:
    """Return the problem of a round with the least E with which it has a plan.

    None stands for E = 0, for no plan, and for no answer by `until` (time.monotonic).
    """
    model = round_.model
    upper = np.where(model.rows_of(LENDING), np.inf, model.upper)
    yielded = dict(round_.problem.yielded)
    rows = [
        row
        for family in model.families
        if family.kind == LENDING
        for row in enumerate(family.labels, family.first)
    ]
    for r, label in rows:
        on = model.index == r
        use = np.bincount(model.entry_column[on], model.coef[on], model.n).astype(float)
        least = registry.get("highs").solve(
            replace(model, value=-use, upper=upper), SolveLimits(until - time.monotonic(), 0.0)
        )
        if least.values is None:
            return None
        more = max(0.0, round(float(use @ least.values)) - float(model.upper[r]))
        upper[r] = model.upper[r] + more
        yielded[label] = yielded.get(label, 0.0) + more
    return replace(round_.problem, yielded=yielded) if (upper > model.upper).any() else None
