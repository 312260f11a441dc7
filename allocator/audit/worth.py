"""The audit's own account of what a plan is worth.

With seconds lost `pause_s`, work done `done = rate x max(0, interval_s - pause_s)` and seconds on GPUs
`busy = min(interval_s, pause_s + remaining_work / rate)` (contract section 3, formulations/README.md):

    progress    weight x min(1, done / remaining_work)
    throughput  weight x min(done, remaining_work) / base
    base        interval_s x the slowest rate at requested_gpus among the allowed types of the cluster's pools that have
                one; if none has, the slowest of the job's options at the size nearest to requested_gpus, the smaller of
                two sizes as near (the contract is silent on this case)
    response    V x min(done, remaining_work) + weight x (interval_s - busy) / 3600
    V           the least of (weight + money x price x gpus) / (3600 rate) over the job's options
    completion  as response, with V at least B / (3600 C)
    C           work per second if all GPUs of the pools worked on jobs like it, in each pool at the best work per GPU
    B           weights of the jobs with options that are not before it in the order of remaining_work / (C x weight)
    cost        dollars that are saved against waiting: see _saving
    money       dollar_price + dollar_price of the tenant; deducted from every objective: money x dollars
    dollars     price x gpus x busy / 3600, busy at least min_billing_s where the plan changes something; GPUs of
                reserved pools are paid for anyway
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from allocator.audit.guarantee import options
from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints, Market
from allocator.performance.pipelines import due_s
from allocator.performance.useful import useful


def worth(s: Scene, rate: Floats) -> Floats:
    """(J,) value of the plan, 0 where it gives nothing. rate (J,): work per second, 0 where nothing is known."""
    problem, jobs = s.problem, s.problem.jobs
    value = np.zeros(len(jobs))
    j = np.flatnonzero(s.on & (rate > 0))
    if not len(j):
        return value
    rate, pool = rate[j], s.pool[j]
    startup = problem.pools.startup_s[pool]
    pause = np.where(s.kept[j], 0.0, np.where(s.running[j], jobs.restart_s[j] + startup, startup))
    if problem.objective in ("response", "cost", "completion"):
        rate = rate * useful(problem, j, pool, s.gpus[j])           # what revocations leave
    done = rate * np.maximum(0.0, problem.interval_s - pause)
    left, weight = jobs.remaining_work[j], problem.weight[j]
    busy = np.minimum(problem.interval_s, pause + left / rate)
    if problem.objective == "progress":
        value[j] = weight * np.minimum(1.0, done / left)
    elif problem.objective == "throughput":
        value[j] = weight * np.minimum(done, left) / (_base_rate(s, j) * problem.interval_s)
    elif problem.objective in ("response", "completion"):
        value[j] = _work_worth(s, j) * np.minimum(done, left) + weight * (problem.interval_s - busy) / 3600.0
    billed = np.where(s.kept[j], busy, np.maximum(busy, problem.pools.min_billing_s[pool]))
    dollars = _price(s, pool) * s.gpus[j] * billed / 3600.0
    if problem.objective == "cost":
        value[j] = _saving(s, j, np.minimum(done, left), dollars, busy)
    value[j] -= _money(s, j) * dollars
    return value


def _saving(s: Scene, chosen: Ints, done: Floats, dollars: Floats, busy: Floats) -> Floats:
    """Of each chosen job: cost of finishing after a round of waiting - dollars - cost of finishing after this plan.

    The cost of finishing work R in h hours is M(R, h) + L x hours too late at best; the latter only with a deadline.
    M: cheapest mix of options, L per hour too late, L/200 back per hour to spare, spot GPUs slower by their
    availability. Too late at best: on the sure options (on-demand pools; without any reserved ones; else all), with
    pauses and restart_s to spare; work that spot GPUs did, and what they did since a checkpoint, counts as not done.
    L: 10 x weight x dollars per hour of the dearest option, at least 10 x weight. h without a deadline: what the work
    takes at the requested size. GPUs that cost nothing: a thousandth of L x hours of requested speed on top.
    """
    problem, jobs, pools = s.problem, s.problem.jobs, s.problem.pools
    owner, pool, gpus, rate = options(s, chosen)
    rate = rate * useful(problem, owner, pool, gpus) * 3600.0
    price, market, round_h = _price(s, pool) * gpus, pools.market[pool], problem.interval_s / 3600.0
    asked = _base_rate(s, chosen) * 3600.0
    out, dues = np.zeros(len(chosen)), due_s(problem)
    first, last = np.searchsorted(owner, chosen, side="left"), np.searchsorted(owner, chosen, side="right")
    for i, j in enumerate(chosen.tolist()):
        mine = np.arange(first[i], last[i])
        if not len(mine):
            continue                                                # no option: the plan is at fault anyway
        late, left = 10.0 * problem.weight[j] * max(1.0, float(price[mine].max())), float(jobs.remaining_work[j])
        dated = not np.isnan(dues[j])
        due = ((dues[j] - problem.now_s) / 3600.0 if dated else left / asked[i]) - round_h
        after = due + round_h - busy[i] / 3600.0
        mix = partial(_mix, price[mine] / rate[mine], 1.0 / (rate[mine] * pools.availability[pool[mine]]), late)
        out[i] = mix(left, due) - dollars[i] - mix(left - done[i], after)
        if dated:
            sure = next(f for m in (Market.ON_DEMAND, Market.RESERVED, None)
                        if len(f := mine[(market[mine] == m) | (m is None)]))
            start, again = pools.startup_s[pool[sure]] / 3600.0, jobs.restart_s[j] / 3600.0
            stays = (pool[sure] == s.pool[j]) & (gpus[sure] == s.gpus[j])
            worst = left - done[i]
            if pools.market[s.pool[j]] == Market.SPOT:
                every = jobs.checkpoint_every_s[j]
                speed = rate[mine][(pool[mine] == s.pool[j]) & (gpus[mine] == s.gpus[j])].max(initial=0.0) / 3600.0
                worst = min(left + speed * (problem.interval_s if np.isnan(every) else every), jobs.total_work[j])
            out[i] += late * (_over(left, rate[sure], start, due - again) - _over(
                worst, rate[sure], np.where(stays, 0.0, start + again), after - again))
        if _price(s, s.pool[[j]])[0] == 0:
            out[i] += 0.001 * late * min(round_h, done[i] / asked[i])
    return out


def _mix(cost: Floats, takes: Floats, late: float, work: float, hours: float) -> float:
    """Least cost over single options and pairs of options that end exactly in time. cost, takes (k,): per work."""
    alone = takes * work - hours
    least = float((cost * work + late * np.maximum(0.0, alone) - 0.005 * late * np.maximum(0.0, -alone)).min())
    for slow, fast in itertools.product(np.flatnonzero(alone > 0).tolist(), np.flatnonzero(alone <= 0).tolist()):
        share = (hours / work - takes[fast]) / (takes[slow] - takes[fast])
        least = min(least, work * float(share * cost[slow] + (1 - share) * cost[fast]))
    return least


def _over(work: float, rate: Floats, pause: Floats, hours: float) -> float:
    return max(0.0, float((pause + work / rate).min() if work > 0 else 0.0) - hours)


def _money(s: Scene, job: Ints) -> Floats:
    return np.asarray(s.problem.dollar_price + s.problem.tenants.dollar_price[s.problem.jobs.tenant[job]])


def _price(s: Scene, pool: Ints) -> Floats:
    """Dollars per GPU-hour that are not paid anyway."""
    pools = s.problem.pools
    return np.where(pools.market[pool] == Market.RESERVED, 0.0, pools.price_per_gpu_hour[pool])


def _work_worth(s: Scene, chosen: Ints) -> Floats:
    """V of each chosen job, (len(chosen),)."""
    job, pool, gpus, rate = options(s, chosen)
    each = (s.problem.weight[job] + _money(s, job) * _price(s, pool) * gpus) / (rate * 3600.0)
    least = np.full(len(s.problem.jobs), np.inf)
    for o in np.argsort(-each, kind="stable").tolist():
        least[job[o]] = each[o]                   # dearest first: the least is written last
    least = np.where(np.isfinite(least[chosen]), least[chosen], 0.0)     # no option: the plan is at fault anyway
    return np.maximum(least, _queue_worth(s)[chosen]) if s.problem.objective == "completion" else least


def _queue_worth(s: Scene) -> Floats:
    """B / (3600 C) of every job, (J,), 0 without options."""
    pools, J = s.problem.pools, len(s.problem.jobs)
    job, pool, gpus, rate = options(s, np.arange(J))
    each = rate * useful(s.problem, job, pool, gpus) / gpus
    whole = np.zeros(J)
    for p in range(len(pools)):
        best = np.zeros(J)
        for o in np.flatnonzero(pool == p).tolist():
            best[job[o]] = max(best[job[o]], each[o])
        whole += best * pools.gpus[p]
    out = np.zeros(J)
    served = np.flatnonzero(whole > 0)
    weight = s.problem.weight[served]
    key = np.round(np.log(s.problem.jobs.remaining_work[served] / whole[served] / weight), 9)
    distinct, place = np.unique(key, return_inverse=True)
    behind = np.cumsum(np.bincount(place.reshape(-1), weight, len(distinct))[::-1])[::-1]
    out[served] = behind[place.reshape(-1)] / whole[served] / 3600.0
    return out


def _base_rate(s: Scene, chosen: Ints) -> Floats:
    """Rate of each chosen job as requested, on the slowest type; see the top of this file. Shape (len(chosen),)."""
    jobs = s.problem.jobs
    slowest = np.full(len(jobs), np.inf)
    for t in np.unique(s.problem.pools.gpu_type):
        j = chosen[s.types[chosen, t]]
        rate, _ = s.table.rate(jobs.model[j], np.full(len(j), t), jobs.requested_gpus[j])
        slowest[j] = np.minimum(slowest[j], np.where(rate > 0, rate, np.inf))
    without = chosen[np.isinf(slowest[chosen])]
    if len(without):
        job, _, gpus, rate = options(s, without)
        order = np.lexsort((rate, gpus, np.abs(gpus - jobs.requested_gpus[job]), job))
        first = order[np.append(True, np.diff(job[order]) > 0)[:len(order)]]
        slowest[job[first]] = rate[first]
    return slowest[chosen]
