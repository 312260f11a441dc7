"""Announced changes of the coming intervals: GPUs and prices of the pools, and rounds with them.

A snapshot announces changes by rows of prices.csv after now_s (`Problem.announced`), and by nodes
that leave and return (R70). GPUs that leave within an interval, or at its end, are not available to
a plan for it, because their job would lose the work since the last checkpoint. GPUs that arrive
within an interval are available from the next one on, because no decision is made before.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.options.instance_building import CompiledRound, compile_round

EDGE = 1e-9  # share of an interval: a change this close to its start happens at the start


def gpus_ahead(problem: Problem, intervals: int) -> Ints:
    """Return the GPUs that each pool has throughout each of the coming intervals, (H, P)."""
    out = np.repeat(problem.pools.gpus[None, :], intervals, axis=0)
    known = problem.announced
    change = _place(problem)
    for i in np.flatnonzero((known.gpus >= 0) & (change <= intervals)).tolist():
        first = math.ceil(change[i])
        p = int(known.pool[i])
        there = int(known.gpus[i])
        out[first - 1, p] = min(there, out[first - 1, p])
        out[first:, p] = there
    nodes, D = problem.nodes, problem.interval_s
    for h, begin_s in enumerate(problem.now_s + D * (np.arange(intervals) + EDGE)):
        np.add.at(out[h], nodes.pool, nodes.change_until(begin_s, begin_s + D))
    return out


def prices_ahead(problem: Problem, intervals: int) -> Floats:
    """Return the mean price per GPU-hour in each of the coming intervals, (H, P).

    GPUs that are paid for in any case have the price 0.
    """
    out = np.repeat(problem.pools.price_per_gpu_hour[None, :], intervals, axis=0)
    last = problem.pools.price_per_gpu_hour.copy()
    known = problem.announced
    change = _place(problem)
    for i in np.flatnonzero(~np.isnan(known.price_per_gpu_hour) & (change < intervals)).tolist():
        h = int(change[i])
        p = int(known.pool[i])
        price = float(known.price_per_gpu_hour[i])
        out[h, p] += (price - last[p]) * (1.0 - (change[i] - h))
        out[h + 1 :, p] = last[p] = price
    return np.where(problem.pools.market == Market.RESERVED, 0.0, out)


def _place(problem: Problem) -> Floats:
    """Return the intervals from now to each announced change, (C,)."""
    place = (problem.announced.at_s - problem.now_s) / problem.interval_s
    return np.where(np.abs(place - np.round(place)) <= EDGE, np.round(place), place)


def fixed_gpus(round_: CompiledRound) -> Ints:
    """Return the GPUs held by jobs that must keep them, (P,)."""
    i = round_.instance
    bound = i.keep & i.mandatory[i.job]
    return np.bincount(i.pool[bound], i.gpus[bound], minlength=len(i.capacity)).astype(np.int64)


def with_gpus(round_: CompiledRound, gpus: Ints) -> CompiledRound:
    """Return the round with the GPUs of the first of the intervals `gpus` (H, P).

    It has all options that fit into any of the intervals. Jobs that must run, guarantees of tenants
    and the limits of other rules are those of the given round.
    """
    most = np.maximum(gpus.max(axis=0), round_.problem.pools.gpus)
    wide = round_
    if (most > round_.problem.pools.gpus).any():
        larger = replace(round_.problem, pools=replace(round_.problem.pools, gpus=most))
        wide = replace(compile_round(larger, prunes=False), problem=round_.problem)
    i = round_.instance
    limits = zip(i.rules, wide.instance.rules, strict=True)
    return replace(
        wide,
        instance=replace(
            wide.instance,
            capacity=gpus[0],
            mandatory=i.mandatory,
            quota=i.quota,
            guarantee=i.guarantee,
            least_kept=i.least_kept,
            # rows that there are not now have no limit
            rules=tuple(
                replace(rule.keep(np.isin(rule.labels, now.labels)), upper=now.upper)
                for now, rule in limits
            ),
        ),
    )
