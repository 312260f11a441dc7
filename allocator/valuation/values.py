"""The values of options: the facts of a round as an objective needs them, and its values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from allocator.domain.objectives import parse_sums
from allocator.domain.problem import Bools, Floats, Ints, Market, Problem
from allocator.performance.lost_time import useful_share
from allocator.performance.pipelines import due_s
from allocator.performance.table import slowest_rate
from allocator.valuation import exploring
from allocator.valuation.prices import added_prices
from formulations.model.sparse_rows import begins_run
from formulations.objectives import combination
from formulations.objectives.context import Context, Facts, Offer


def option_values(problem: Problem, context: Context) -> Floats:
    """Return the values (n,) of the options of a context in the objective of the problem.

    The reward for exploring is added only to all exclusive options together.
    """
    value = combination.option_values(parse_sums(problem.objective), context)
    if context.exclusive is not None:
        return value
    return value + exploring.reward_exploring(problem, context.offer, value)


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
