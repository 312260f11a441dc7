"""The values of options: the facts of a round as an objective needs them, prices, and values.

What a GPU costs by the hour depends on the memory that the job needs:

    price = price_per_gpu_hour + price_per_gb_hour x GB

GB is what the job needs of each GPU of a pool at a size: memory_gb of the row of rates.csv that
gives its speed; of a curve that knows batches memory_gb + memory_per_sample_gb x samples on the GPU
at once; else memory_gb of the job, and 0 where that is not given. On more nodes than the size needs
it is the same. GPUs that two jobs share have the price that the job which holds them would pay
alone.

Options that teach most about speeds have a reward: [profiling] of config.toml with `share`.
Consider the sizes k of one (model, GPU type) for which models.csv has a curve with an `error`. Let
y_k = -log rate_k + log k / 2, the logarithm of the square root of time x cost. If rates differ with
the memory of pools, the fastest counts. A size that is not measured has the deviation of a Gaussian
process around the curve (performance/profiling.py). gain_k is the expected decrease of the least y
by measuring k. The value of this knowledge over `rounds` rounds is

    value_k = rounds x gain_k x sum over the jobs with options there of their best value

In each group the size of the largest gain per GPU is tried, by the job that loses least by it.
Groups of the largest value per GPU come first, as long as all tries together hold at most `share`
of the GPUs. Two jobs on the same GPUs do not show how fast either of them is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from allocator.domain.objectives import parse_sums
from allocator.domain.problem import Bools, Floats, Ints, Market, Problem
from allocator.domain.schema.columns import PROFILING
from allocator.performance import profiling
from allocator.performance.lost_time import useful_share
from allocator.performance.pipelines import due_s
from allocator.performance.speed import believed_speeds
from allocator.performance.table import RateTable, slowest_rate
from formulations.model.linear import begins_run
from formulations.objectives import combination
from formulations.objectives.context import Context, Facts, Offer


def option_values(problem: Problem, context: Context) -> Floats:
    """Return the values (n,) of the options of a context in the objective of the problem.

    The reward for exploring is added only to all exclusive options together.
    """
    value = combination.option_values(parse_sums(problem.objective), context)
    if context.exclusive is not None:
        return value
    return value + reward_exploring(problem, context.offer, value)


def bound_rounding(problem: Problem, context: Context, jobs: Ints) -> float:
    """Return the largest effect of rounding on the sum of the values of some jobs (n,)."""
    return combination.bound_rounding(parse_sums(problem.objective), context, jobs)


def build_context(
    problem: Problem,
    offer: Offer,
    every: Callable[[], Offer] | None = None,
    pays_for_gpus: Floats | Bools | bool = True,
) -> Context:
    """Build the context in which an objective values options.

    Parameters
    ----------
    offer : Offer
        The options.
    every : callable, optional
        Returns all options in which jobs hold their own GPUs; None if `offer` has these.
    pays_for_gpus : bool or (n,)
        Whether GPUs of the offer are paid for.
    """
    facts = build_facts(problem)
    whole = None if every is None else cache(lambda: Context(facts, every()))
    return Context(facts, offer, whole, pays_for_gpus)


def build_facts(problem: Problem) -> Facts:
    """Return the facts of a problem about its jobs and pools."""
    jobs = problem.jobs
    pools = problem.pools
    weight = problem.weight
    return Facts(
        interval_s=problem.interval_s,
        spread_pauses=problem.spread_pauses,
        weight=weight,
        remaining_work=jobs.remaining_work,
        sizes_known=problem.guessed is None,
        guessed=_find_guessed(problem),
        total_work=jobs.total_work,
        age_s=np.maximum(0.0, problem.now_s - jobs.submitted_s),
        attained_gpu_s=jobs.attained_gpu_s,
        restarts=jobs.restarts,
        restart_s=jobs.restart_s,
        checkpoint_every_s=jobs.checkpoint_every_s,
        dollar_price=problem.money,
        pool_gpus=pools.gpus,
        startup_s=pools.startup_s,
        min_billing_s=pools.min_billing_s,
        availability=pools.availability,
        price=lambda o: added_prices(problem, o.job, o.pool, o.gpus),
        fair_share=lambda takes_part: fair_share(problem, takes_part),
        on_demand=pools.market == Market.ON_DEMAND,
        reserved=pools.market == Market.RESERVED,
        spot=pools.market == Market.SPOT,
        useful_share=lambda o: useful_share(problem, o.job, o.pool, o.gpus, o.rate),
        requested_rate=lambda build_offer: requested_rate(problem, build_offer),
        due_in_s=lambda: due_s(problem) - problem.now_s,
    )


def fair_share(problem: Problem, takes_part: Bools) -> Floats:
    """Return the share (J,) of all GPUs that is each job's own, 0 for jobs that take no part.

    Tenants below the same parent share in proportion to their weights. The parent's own jobs are
    one more of them, of weight 1. The jobs of a tenant share in proportion to their weights.

    Parameters
    ----------
    takes_part : (J,)
        The jobs that take part.
    """
    tenants, tenant = problem.tenants, problem.jobs.tenant
    claim = problem.weight * takes_part
    claims = np.bincount(tenant, claim, len(tenants))
    lines = tenants.ancestors  # -1, above the roots, is the last of arrays (Q + 1,)
    has_jobs = np.zeros(len(tenants) + 1, dtype=bool)
    has_jobs[lines[:, claims > 0.0]] = True
    weight = tenants.weight * has_jobs[:-1]
    among = np.append(claims > 0.0, False).astype(float)
    np.add.at(among, tenants.parent, weight)
    below = np.append(weight / np.where(weight > 0.0, among[tenants.parent], 1.0), 1.0)
    own = below[lines].prod(axis=0) / np.where(claims > 0.0, among[:-1] * claims, 1.0)
    shares: Floats = own[tenant] * claim
    return shares


def _find_guessed(problem: Problem) -> Bools:
    """Return the jobs (J,) that are valued as guessed, none where losses say more of some job.

    A value that is linear in work gives a job more GPUs than a logarithm does. Where losses say
    what is left of jobs that have run for some time, the others would get too little next to them.
    """
    if problem.guessed is None or np.isfinite(problem.jobs.loss_work).any():
        return np.zeros(len(problem.jobs), dtype=bool)
    return problem.guessed


def requested_rate(problem: Problem, build_offer: Callable[[], Offer]) -> Floats:
    """Return the work per second (J,) at requested_gpus on the slowest allowed type with a rate.

    Where no type of the cluster has one, the slowest option at the size nearest to requested_gpus
    counts, the smaller of two equally near sizes.

    Parameters
    ----------
    build_offer : callable
        Returns all options with GPUs of their own. It is called only where a rate is missing.
    """
    jobs = problem.jobs
    slowest = slowest_rate(problem, jobs.requested_gpus)
    missing = ~np.isfinite(slowest)
    slowest[missing] = np.inf
    if missing.any():
        offer = build_offer()
        distance = np.abs(offer.gpus - jobs.requested_gpus[offer.job])
        order = np.lexsort((offer.rate, offer.gpus, distance, offer.job))
        first = order[begins_run(offer.job[order])]
        first = first[missing[offer.job[first]]]
        slowest[offer.job[first]] = offer.rate[first]
    return slowest


def gpu_prices(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the dollars for an hour of each GPU of n ways to run jobs, as pools.csv lists them.

    Parameters
    ----------
    job, pool, gpus : (n,)
        The job, the pool and the number of GPUs.

    Returns
    -------
    (n,) array of float
        US dollars per GPU-hour.
    """
    price = problem.pools.price_per_gpu_hour[pool]
    if not problem.pools.prices_memory:
        return price
    return price + problem.pools.price_per_gb_hour[pool] * way_memory_gb(problem, job, pool, gpus)


def added_prices(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the dollars that an hour of each GPU of n ways adds to the bill, (n,).

    They are 0 in reserved pools, which are paid for in any case.
    """
    listed = gpu_prices(problem, job, pool, gpus)
    return np.where(problem.pools.market[pool] == Market.RESERVED, 0.0, listed)


def way_memory_gb(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> Floats:
    """Return the memory of each GPU that n ways need, GB (n,).

    It is 0 where it is not known, and where the pool has no price for it.
    """
    out = np.zeros(len(job))
    at = np.flatnonzero(problem.pools.price_per_gb_hour[pool] > 0)
    if not len(at):
        return out
    # many jobs are of one model
    pools, most = len(problem.pools), int(gpus[at].max()) + 1
    kind = (problem.jobs.model[job[at]] * pools + pool[at]) * most + gpus[at]
    _, first, back = np.unique(kind, return_index=True, return_inverse=True)
    distinct = at[first]
    j, p, k = job[distinct], pool[distinct], gpus[distinct]
    table, model = RateTable.of(problem), problem.jobs.model[j]
    gpu_type = problem.pools.gpu_type[p]
    _, row = table.rate_in_pools(problem.pools, model, p, k, np.ones(len(distinct), dtype=bool))
    curved = np.flatnonzero((row < 0) & table.by_curve(model, gpu_type, k))
    batch, passes = np.zeros(len(distinct), dtype=np.int64), np.zeros(len(distinct), dtype=np.int64)
    if len(curved):
        speed = believed_speeds(problem, model[curved], gpu_type[curved], k[curved])
        batch[curved], passes[curved] = speed.batch, speed.accumulation
    known = known_memory_gb(problem, model, gpu_type, k, batch, passes, row)
    out[at] = or_of_job(problem, job[at], known[back.reshape(-1)])
    return out


def known_memory_gb(
    problem: Problem,
    model: Ints,
    gpu_type: Ints,
    gpus: Ints,
    batch: Ints,
    passes: Ints,
    row: Ints,
) -> Floats:
    """Return the memory of each GPU by rates.csv or models.csv, GB (n,), nan where neither knows.

    Parameters
    ----------
    batch, passes : (n,)
        The global batch and the passes of a step; a curve says nothing for batch 0.
    row : (n,)
        Row of rates.csv, -1 = none.
    """
    curve = RateTable.of(problem).curve(model, gpu_type)
    local = np.ceil(batch / (gpus * np.maximum(passes, 1)) - 1e-9)
    by_row = np.append(problem.rates.memory_gb, np.nan)[row]
    fixed, per_sample = (
        np.array([q.get(name, 0.0) for q in problem.curves.parameters] + [0.0])[curve]
        for name in ("memory_gb", "memory_per_sample_gb")
    )
    by_curve = np.where((batch > 0) & (row < 0), fixed + per_sample * local, np.nan)
    return np.where(np.isnan(by_row), by_curve, by_row)


def or_of_job(problem: Problem, job: Ints, known_gb: Floats) -> Floats:
    """Return the known memory (n,), that of the job where it is not above 0, or 0."""
    return np.nan_to_num(np.where(known_gb > 0, known_gb, problem.jobs.memory_gb[job]))


# decimal places that are compared: sums in another order differ after them, and the audit has to
# choose the same of two equal tries
DIGITS = 12
ROUNDS = next(c for c in PROFILING if c.name == "rounds").default


@dataclass(frozen=True)
class _Try:
    """The measurement of one size: `options` of the offer of one job at that size and GPU type."""

    options: Ints
    gpus: int
    value: float


def reward_exploring(problem: Problem, offer: Offer, value: Floats) -> Floats:
    """Return what to add to the values (n,) of the options, 0 unless exploring is enabled."""
    out = np.zeros(len(value))
    settings = problem.settings.get("profiling", {})
    left = gpus_to_explore(problem)
    if left < 1.0 or not len(value):
        return out
    tries = list(_tries(problem, offer, value, float(settings.get("rounds", ROUNDS))))
    for t in sorted(tries, key=lambda t: -round(t.value / t.gpus, DIGITS)):
        if t.gpus <= left:
            left -= t.gpus
            out[t.options] = t.value
    return out


def gpus_to_explore(problem: Problem) -> float:
    """Return the number of GPUs that may be used to learn speeds, 0 unless exploring is enabled."""
    share = problem.settings.get("profiling", {}).get("share", 0.0)
    return float(share) * float(problem.pools.gpus.sum())


def _tries(problem: Problem, offer: Offer, value: Floats, rounds: float) -> Iterator[_Try]:
    """Yield the best try of each curve, in the order of models.csv."""
    curves = problem.curves
    rates = problem.rates
    best = np.zeros(len(problem.jobs))
    np.maximum.at(best, offer.job, value)
    model = problem.jobs.model[offer.job]
    kind = problem.pools.gpu_type[offer.pool]
    for c, error in enumerate(curves.numbers.get("error", np.zeros(0)).tolist()):
        here = np.flatnonzero((model == curves.model[c]) & (kind == curves.gpu_type[c]))
        if not error > 0 or not len(here):
            continue
        seen = rates.gpus[(rates.model == curves.model[c]) & (rates.gpu_type == curves.gpu_type[c])]
        size, place = np.unique(offer.gpus[here], return_inverse=True)
        speed = np.zeros(len(size))
        np.maximum.at(speed, place.reshape(-1), offer.rate[here])
        deviation = np.where(
            np.isin(size, seen), 0.0, profiling.prediction_deviation(size, np.unique(seen), error)
        )
        expected_gain = profiling.expected_gain(0.5 * np.log(size) - np.log(speed), deviation)
        i = int(np.argmax(np.round(expected_gain / size, DIGITS)))
        if expected_gain[i] <= profiling.LEAST:
            continue
        some = here[offer.gpus[here] == size[i]]
        job = offer.job[some[np.argmin(np.round(best[offer.job[some]] - value[some], DIGITS))]]
        yield _Try(
            some[offer.job[some] == job],
            int(size[i]),
            rounds * float(expected_gain[i]) * float(best[np.unique(offer.job[here])].sum()),
        )
