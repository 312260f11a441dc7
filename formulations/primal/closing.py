"""Close the gap between a plan and the bound of the prices, without a solver.

    near ties -> rows of few groups -> partial plans, more and more of them

1. The groups nearest to a change are decided again, all others keep their columns. The better the
   plan, the fewer columns a still better one can use.
2. The knapsacks of rows that concern few groups give a tighter bound.
3. All plans above the value that is enough are searched. Either there is none, which is the proof,
   or a better plan is found.
"""

from __future__ import annotations

import math

from formulations.bounds.knapsacks import tighten_bound
from formulations.bounds.lagrangian import Dual
from formulations.model.choices import Choices
from formulations.model.linear import Ints
from formulations.primal.partial_plans import find_better_plan, improve_near_ties

KEPT = 200  # partial plans that are kept at once to improve a plan
WIDTH = 20_000  # partial plans that a search keeps at once
# groups that may change before a search, and the most open groups x rows of the search
SEARCHES = ((40, 8_000), (80, 20_000))
MOST = 200_000  # a search that kept more partial plans in all is the last one
EXACT = 1e-9  # relative gap that counts as none


def close_gap(
    c: Choices, dual: Dual, plan: Ints, gap: float, until: float = math.inf
) -> tuple[Ints, float]:
    """Return the best plan that was found and a bound on the value of every plan.

    Parameters
    ----------
    dual : Dual
        Prices, close to the best ones, with their bound.
    plan : (J,)
        A feasible plan.
    gap : float
        Relative gap that is enough.
    until : float
        Latest end (time.monotonic).
    """
    bound = dual.bound
    for groups, largest in SEARCHES:
        plan = improve_near_ties(c, dual, plan, groups, KEPT, until)
        if bound > _enough(c, plan, gap):
            bound = min(bound, tighten_bound(c, dual, plan, _enough(c, plan, gap), until).bound)
        if bound <= _enough(c, plan, max(gap, EXACT)):
            break
        enough = _enough(c, plan, gap)
        found = find_better_plan(c, dual, enough, WIDTH, until, largest)
        bound = min(bound, max(found.bound, enough))
        plan = plan if found.plan is None else found.plan
        if found.kept > MOST or bound <= _enough(c, plan, max(gap, EXACT)):
            break
    return plan, max(bound, c.value_of(plan))


def _enough(c: Choices, plan: Ints, gap: float) -> float:
    """Return the bound that proves the gap of a plan."""
    value = c.value_of(plan)
    return value + gap * abs(value)
