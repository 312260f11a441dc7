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
    cost        dollars that are saved against waiting: see _saving
    money       dollar_price + dollar_price of the tenant; deducted from every objective: money x dollars
    dollars     price x gpus x busy / 3600, busy at least min_billing_s where the plan changes something; GPUs of
                reserved pools are paid for anyway
"""

from __future__ import annotations

from functools import partial

import numpy as np

from allocator.audit.guarantee import options
from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints, Market
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
    if problem.objective in ("response", "cost"):
        rate = rate * useful(problem, j, pool, s.gpus[j])           # what revocations leave
    done = rate * np.maximum(0.0, problem.interval_s - pause)
    left, weight = jobs.remaining_work[j], problem.weight[j]
    busy = np.minimum(problem.interval_s, pause + left / rate)
    if problem.objective == "progress":
        value[j] = weight * np.minimum(1.0, done / left)
    elif problem.objective == "throughput":
        value[j] = weight * np.minimum(done, left) / (_base_rate(s, j) * problem.interval_s)
    elif problem.objective == "response":
        value[j] = _work_worth(s, j) * np.minimum(done, left) + weight * (problem.interval_s - busy) / 3600.0
    billed = np.where(s.kept[j], busy, np.maximum(busy, problem.pools.min_billing_s[pool]))
    dollars = _price(s, pool) * s.gpus[j] * billed / 3600.0
    if problem.objective == "cost":
        value[j] = _saving(s, j, np.minimum(done, left), dollars)
    value[j] -= _money(s, j) * dollars
    return value


def _saving(s: Scene, chosen: Ints, done: Floats, dollars: Floats) -> Floats:
    """Of each chosen job: cost of finishing after an interval of waiting - dollars - cost of finishing after this plan.

    Cost of finishing: least over the job's options in on-demand pools (without any: in reserved pools; else: all) of
    price x hours + L x hours too late. Work done on spot GPUs counts for the price, not for the time. L: 10 x weight x
    dollars per hour of the dearest option, at least 10 x weight. Without a deadline, L x the hours by which the work
    keeps up with the requested size comes on top; with one, a thousandth of that where GPUs cost nothing.
    """
    problem, jobs, pools = s.problem, s.problem.jobs, s.problem.pools
    owner, pool, gpus, rate = options(s, chosen)
    rate = rate * useful(problem, owner, pool, gpus) * 3600.0
    price, market, span = _price(s, pool) * gpus, pools.market[pool], problem.interval_s / 3600.0
    asked = _base_rate(s, chosen) * 3600.0
    out = np.zeros(len(chosen))
    first, last = np.searchsorted(owner, chosen, side="left"), np.searchsorted(owner, chosen, side="right")
    for i, j in enumerate(chosen.tolist()):
        mine = np.arange(first[i], last[i])
        if not len(mine):
            continue                                                # no option: the plan is at fault anyway
        late = 10.0 * problem.weight[j] * max(1.0, float(price[mine].max()))
        firm = next(f for m in (Market.ON_DEMAND, Market.RESERVED, None)
                    if len(f := mine[(market[mine] == m) | (m is None)]))
        due = (jobs.deadline_s[j] - problem.now_s - problem.interval_s) / 3600.0
        start = pools.startup_s[pool[firm]] / 3600.0
        same = (pool[firm] == s.pool[j]) & (gpus[firm] == s.gpus[j])
        risky = pools.market[s.pool[j]] == Market.SPOT
        left, after = jobs.remaining_work[j], jobs.remaining_work[j] - done[i]
        again = np.where(same, 0.0, start + jobs.restart_s[j] / 3600.0)
        finish = partial(_finish, price[firm], rate[firm], late, due)
        out[i] = finish(left, left, start) - dollars[i] - finish(after, left if risky else after, again)
        share = 1.0 if np.isnan(due) else 0.001 * bool(_price(s, s.pool[[j]])[0] == 0)
        out[i] += share * late * min(span, done[i] / asked[i])
    return out


def _finish(price: Floats, rate: Floats, late: float, due: float, work: float, worst: float, pause: Floats) -> float:
    """Least cost of finishing: price x hours + late x hours beyond due, the latter for the work left at worst."""
    hours = pause + work / rate if work > 0 else 0.0 * pause
    slow = pause + worst / rate if worst > 0 else 0.0 * pause
    return float((price * hours + late * np.maximum(0.0, slow - (np.inf if np.isnan(due) else due))).min())


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
    return np.where(np.isfinite(least[chosen]), least[chosen], 0.0)      # no option: the plan is at fault anyway


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
