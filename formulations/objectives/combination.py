"""One value of every option from several objectives: weighted sums, and ranks of such sums.

v_o^a is the value of option o in objective a. A sum `a=f,b=g` adds the values of two objectives,
each in its own unit; the factors f and g are rates of exchange:

    v_o = f v_o^a + g v_o^b

Ranks `a > b > c` add the later objectives with factors s and s' that are so small that they hardly
cost anything of the first. With w = v^b + s' v^c, and s' found from b and c in the same way as s:

    v_o   = v_o^a + s (v_o^b + s' v_o^c)
    s     = 0.01 U(v^a) / U(w)
    U(v)  = U+(v) + U+(-v)
    U+(v) = min over prices p >= 0 of p G + sum_j max(0, max_{o of j} v_o - p k_o)

The dollars that the options of job j cost in the interval of length D reduce every value:

    value = v_o - mu_j m_o B_o / 3600
    mu_j  = dollar_price + dollar_price of the tenant: objective per dollar, 0 unless given
    m_o   = GPUs x (price_per_gpu_hour + price_per_gb_hour x GB of a GPU that the job needs);
            0 in reserved pools, which are paid for in any case
    B_o   = b_o; at least min_billing_s where the option is not what the job holds
    b_o   = seconds of the interval in which the job holds the GPUs, at most D

With G GPUs in all and k_o GPUs of option o, any plan has at most the value U+(v) in v, so two plans
differ by at most U(v). Hence a plan of the largest ranked value misses the best v^a by at most 0.01
U(v^a). Of two plans with equal v^a, the one with more v^b is better. The money of the round is
deducted once, in units of the sum or of the first objective. Its speeds have losses if any of the
objectives counts losses.

`objective_value`, `bound` and `gap` of a plan are those of the combined value, in units of the
first objective. They are as true as for a single objective, because solvers do not know of ranks. A
gap g leaves up to g V of the ranked value open. At the default of 1e-3 that is about a tenth of
what the second objective may decide, so use a smaller gap (`--gap 1e-5`) where the second matters.
The alternative, a second solve with a row for "at least the best of the first", is not used:
policies that do not search could not be measured by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from formulations.model.linear import Floats, Ints, begins_run
from formulations.objectives import Objective
from formulations.objectives.context import Context

Sum = Sequence[tuple[Objective, float]]
"""Objectives and their factors."""

# share of an objective's spread of values U that all later objectives together may cost it
GIVEN_UP = 0.01
HALVINGS = 200  # of an interval of prices of a GPU: more than a float has digits
EPSILON = 1e-12  # relative error of a term: some thousand units in its last place


def option_values(ranks: Sequence[Sum], c: Context) -> Floats:
    """Return the values (n,) of the options of a context.

    Parameters
    ----------
    ranks : sequence of sums
        Weighted sums of objectives, the most important first.
    c : Context
        Speeds without losses.
    """
    sums = [weighted_sum(terms, c) for terms in ranks]
    value = sums[0]
    if len(ranks) > 1:
        value = combine_ranks(sums, rank_factors(ranks, c))
    if not c.dollar_price.any():
        return value
    counts_losses = any(objective.counts_losses for terms in ranks for objective, _ in terms)
    return value - c.dollar_price * (c.with_losses if counts_losses else c).dollars


def weighted_sum(terms: Sum, c: Context) -> Floats:
    """Return the weighted sum of objectives for the options (n,) of a context."""
    return np.asarray(np.sum([f * objective_values(o, c) for o, f in terms], axis=0))


def objective_values(objective: Objective, c: Context) -> Floats:
    """Return the values (n,) of options in one objective, computed once for each context."""
    seen = c.with_losses if objective.counts_losses else c
    values: dict[str, Floats] = seen.__dict__
    key = f"values of {objective.name}"
    if key not in values:
        values[key] = objective.value(seen)
    return values[key]


def rank_factors(ranks: Sequence[Sum], c: Context) -> list[float]:
    """Return the factors s_2, s_3, ... of ranks by all exclusive options of a context."""
    o = c.everything.offer
    values = [weighted_sum(terms, c.everything) for terms in ranks]
    return factors(values, o.job, o.gpus, int(c.facts.pool_gpus.sum()))


def combine_ranks(values: Sequence[Floats], factors: Sequence[float]) -> Floats:
    """Return v_1 + s_2 (v_2 + s_3 (v_3 + ...)), shape (n,), in units of the first.

    Parameters
    ----------
    values : sequence of (n,)
        v_1, v_2, ...
    factors : sequence of float
        s_2, s_3, ...
    """
    value = np.asarray(values[-1], np.float64)
    for v, s in zip(reversed(values[:-1]), reversed(factors), strict=True):
        value = v + s * value
    return value


def factors(values: Sequence[Floats], job: Ints, gpus: Ints, total: int) -> list[float]:
    """Return the factors s_2, s_3, ... of `combine_ranks` for values v_i.

    Parameters
    ----------
    values : sequence of (n,)
        v_1, v_2, ...
    job : (n,)
        Jobs of the options, ascending; at most one option of a job is chosen.
    gpus : (n,)
        GPUs of the options.
    total : int
        GPUs of all pools.
    """

    def value_spread(v: Floats) -> float:
        return most(job, v, gpus, total) + most(job, -v, gpus, total)

    value = np.asarray(values[-1], np.float64)
    factors = []
    for v in reversed(values[:-1]):
        reach = value_spread(value)
        own = value_spread(v)
        factors.append(GIVEN_UP * own / reach if own > 0 and reach > 0 else 1.0)
        value = v + factors[-1] * value
    return factors[::-1]


def most(job: Ints, value: Floats, gpus: Ints, total: int) -> float:
    """Return U+(v), which no choice of one option per job within the GPUs exceeds.

    The bound is convex in the price of a GPU, and its minimum is found by halving. The parameters
    are those of `factors`.
    """
    first = np.flatnonzero(begins_run(job))
    if not len(first):
        return 0.0
    many = np.diff(first, append=len(job))

    def bound(price: float) -> tuple[float, bool]:
        """Return the bound at a price, and whether the choices there take more GPUs than exist."""
        gain = value - price * gpus
        best = np.maximum(0.0, np.maximum.reduceat(gain, first))
        taken = np.minimum.reduceat(np.where(gain >= np.repeat(best, many), gpus, total + 1), first)
        return price * total + float(best.sum()), int(taken[best > 0].sum()) > total

    low = 0.0
    high = float(np.max(value / np.maximum(gpus, 1), initial=0.0))
    least, over = bound(low)
    if not over:
        return least
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        at_price, over = bound(middle)
        least = min(least, at_price)
        low, high = (middle, high) if over else (low, middle)
    return least


def bound_rounding(ranks: Sequence[Sum], c: Context, jobs: Ints) -> float:
    """Return the largest effect of rounding on the sum of the values of some jobs (n,).

    Most values are products. Those of a few objectives are differences of what is expected with a
    round and without it. Where a job has a billion rounds of work left, such a difference is lost
    in the rounding of its terms.
    """
    if not any(objective.largest_term for terms in ranks for objective, _ in terms):
        return 0.0
    if len(ranks) > 1:  # factors come from the values of all jobs, and so do their errors
        jobs = np.unique(c.everything.job)
    # the factor of each rank in the value
    scale = np.cumprod([1.0, *(rank_factors(ranks, c) if len(ranks) > 1 else ())])
    lost = (
        s * factor * float(objective.largest_term(c.everything.with_losses)[jobs].sum())
        for s, terms in zip(scale, ranks, strict=True)
        for objective, factor in terms
        if objective.largest_term
    )
    return float(EPSILON * (1.0 if len(ranks) == 1 else 3.0) * sum(lost))
