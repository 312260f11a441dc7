"""The best plan of every job at given prices, by dynamic programming, and the bound from it.

With prices p of all rows, the best plan of job j has the value b_j(p) = max over plans of gain -
use' p, and

    L(p) = sum_r (p_r high_r if p_r > 0 else p_r low_r) + sum_j max(0 unless must_j, b_j(p))

is at least the gain of every feasible set of plans (weak duality;
formulations/bounds/lagrangian.py).

The state of the recursion is (interval, idle or running before, work done in units of R_j / B_j). A
step is a whole run, "hold option k for m intervals", whose work is exact. Work done is rounded only
where another decision follows a run: up to the next unit, and the work left out is paid with its
largest later credit. Finishing earlier never has less value, so the recursion gives at least b_j,
and L is a bound for the problem itself, not for a discretised one. A forward search with exact work
done, pruned by the recursion, then finds the best plan and its value.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formulations.compilation import compile_functions
from formulations.horizon import pricing_compiled
from formulations.horizon.intervals import ENOUGH, Horizon, bounds
from formulations.model.linear import Floats, Ints

FEWEST, MANY = 12, 48  # range of units that are tried, in addition to the largest allowed ones
BLOCK = 96  # jobs priced at once, so that their tables stay in the cache
MARGIN = 1e-9  # relative to the amounts in the bound: more than the rounding of their sums


@dataclass(frozen=True)
class PricedPlans:
    """The result of one pricing.

    `bound` is L(p), rounded up. `best` (J,) is at least b_j. `plan` (J, H) has a nearly best plan
    of every job.
    """

    bound: float
    best: Floats
    plan: Ints


class Pricing:
    """Prices the plans of a horizon.

    Parameters
    ----------
    units : int
        Largest number of units into which the work of a job is divided.
    nodes : int
        Decisions that the search for the best plan of a job may inspect.
    """

    def __init__(self, x: Horizon, units: int = 48, nodes: int = 200) -> None:
        self.x, self.nodes = x, nodes
        self.units, self._reach = _grid(x, units)
        self._pause = np.stack([x.startup_s, x.switch_s], axis=1)
        order = np.lexsort((np.diff(x.start), self.units))
        self._blocks = [order[i : i + BLOCK] for i in range(0, x.J, BLOCK)]
        later = np.maximum.accumulate(x.work[:, ::-1], axis=1)[:, ::-1]
        self._later = np.concatenate([later, np.zeros((x.J, 1))], axis=1)

    def price(self, p: Floats, slack: float = 0.0, until: float = math.inf) -> PricedPlans | None:
        """Return bound and plans at prices p (H R,) of all rows, or None if time ran out.

        Prices of the wrong sign count as 0.

        Parameters
        ----------
        slack : float
            Value by which the plan of each job may be worse than the best.
        until : float
            Latest end (time.monotonic).
        """
        x = self.x
        low, high = bounds(x)
        p = np.where(np.isfinite(high), p, np.minimum(p, 0.0))
        p = np.where(np.isfinite(low), p, np.maximum(p, 0.0))
        rent = np.ascontiguousarray(x.matrix @ p.reshape(x.H, x.R).T)
        best, plan = np.zeros(x.J), np.full((x.J, x.H), -1)
        for jobs in self._blocks:
            if time.monotonic() >= until:
                return None
            kernel()(
                x.start,
                x.rate,
                self._pause,
                x.remaining,
                self.units,
                self._reach,
                x.current,
                x.mandatory,
                x.interval_s,
                x.work,
                self._later,
                x.finish,
                x.slope,
                x.held,
                rent,
                np.full(x.J, slack),
                self.nodes,
                jobs,
                best,
                plan,
            )
        paid = p * np.where(p > 0, high, np.where(p < 0, low, 0.0))
        counted = np.where(x.mandatory, best, np.maximum(best, 0.0))
        bound = float(paid.sum() + counted.sum()) + MARGIN * float(
            np.abs(paid).sum() + np.abs(counted).sum()
        )
        return PricedPlans(bound, best, plan)


def _grid(x: Horizon, units: int) -> tuple[Ints, Ints]:
    """Choose the units of work of each job, and the most units done before each interval.

    The units (J,) are 0 where the job cannot end within the horizon. Otherwise they are the number
    up to `units` with which short runs lose least work by rounding. The second result has the shape
    (J, H).
    """
    D = x.interval_s
    top = np.zeros(x.J)
    filled = np.flatnonzero(np.diff(x.start) > 0)
    if len(filled):
        top[filled] = np.maximum.reduceat(x.rate, x.start[filled])
    tried = np.unique(
        np.concatenate(
            [
                np.arange(min(FEWEST, units), min(units, MANY) + 1),
                np.arange(max(FEWEST, units - FEWEST), units + 1),
            ]
        )
    )
    lost = np.zeros((x.J, len(tried)))
    for m in (1, 2):
        for pause in (x.startup_s, x.switch_s):
            share = np.minimum(1.0, x.rate * np.maximum(0.0, m * D - pause) / x.remaining[x.job])
            off = share[:, None] * tried
            error = np.maximum(0.0, np.ceil(off - 1e-9) - off) / tried
            if len(filled):
                lost[filled] += np.add.reduceat(error, x.start[filled], axis=0)
    B = tried[np.argmin(np.round(lost, 12), axis=1)]
    B = np.where(top * x.H * D < x.remaining * ENOUGH, 0, B).astype(np.int64)
    step = np.ceil(top * D / x.remaining * np.maximum(1, B))
    reach = np.minimum(np.arange(x.H) * step[:, None], np.maximum(B - 1, 0)[:, None]).astype(
        np.int64
    )
    return B, reach


@functools.cache
def kernel() -> Callable[..., None]:
    """Return the compiled recursion.

    It is compiled at the first call and kept on disk for later processes.
    """
    functions = compile_functions(pricing_compiled, ("most_after", "table", "search", "price"))
    swift: Callable[..., None] = functions["price"]
    return swift
