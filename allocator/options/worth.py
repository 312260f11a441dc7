"""What every option is worth: the objective of the round, minus the money it costs where money has
a price.

    value = objective(work done) - (dollar_price + dollar_price of the tenant) x dollars of the
    interval

where the objective is one of OBJECTIVES, a weighted sum, or sums ranked by importance
(domain/objectives.py).

Formulas: formulations/README.md. A further objective is a function here and a name in
domain/columns.OBJECTIVES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from allocator.domain.objectives import Terms, levels, names
from allocator.domain.problem import Bools, Floats, Market, Problem
from allocator.options import exploring, flow, shares
from allocator.options.scene import LOOK_AT_RISK, Offer, Scene, of_jobs, requested_work
from allocator.performance.pipelines import due_s
from allocator.performance.table import RateTable
from formulations import deadlines, objectives
from formulations.ragged import ragged
from formulations.ranking import factors, ranked


def worth(
    problem: Problem,
    table: RateTable,
    offer: Offer,
    ordinary: Offer | None = None,
    pays: bool = True,
) -> Floats:
    """(n,) values of the options.

    ordinary: None where the offer is all options in which jobs hold their own GPUs, else these:
    what concerns a job as a whole is measured by them. pays: whether GPUs of the offer are paid
    for.
    """
    whole = offer if ordinary is None else ordinary
    ranks, named = levels(problem.objective), names(problem.objective)
    of_all = {name: Scene(problem, table, whole, name) for name in named}
    scenes = (
        of_all
        if ordinary is None
        else {name: Scene(problem, table, offer, name, of_all[name], pays) for name in named}
    )
    sums = [_sum(terms, scenes) for terms in ranks]
    if len(sums) == 1:
        value = sums[0]
    else:
        by_all = sums if ordinary is None else [_sum(terms, of_all) for terms in ranks]
        value = ranked(
            sums, factors(by_all, whole.start, whole.gpus, int(problem.pools.gpus.sum()))
        )
    money = next(
        (s for s in scenes.values() if s.objective in LOOK_AT_RISK), next(iter(scenes.values()))
    )
    value = value - money.money * money.dollars if money.money.any() else value
    return value + exploring.bonus(problem, offer, value) if ordinary is None else value


def _sum(terms: Terms, scenes: Mapping[str, Scene]) -> Floats:
    value: Floats = np.sum(
        [factor * OBJECTIVES[name](scenes[name]) for name, factor in terms], axis=0
    )
    return value


def _progress(s: Scene) -> Floats:
    return objectives.progress(s.weight, s.done, s.remaining)


def _throughput(s: Scene) -> Floats:
    return objectives.throughput(s.weight, s.done, s.remaining, requested_work(s)[s.offer.job])


def _time_saved(s: Scene) -> Floats:
    return objectives.response(
        s.weight,
        np.minimum(s.done, s.remaining),
        s.busy_s,
        work_price(s)[s.offer.job],
        s.problem.interval_s,
    )


def _flow(s: Scene) -> Floats:
    """As `completion`, with weights by delay, and pauses spread over the time that an option is
    held.
    """
    c = flow.as_completion(s)
    return objectives.response(
        c.weight,
        np.minimum(flow.lasting(s), s.remaining),
        s.busy_s,
        work_price(c)[s.offer.job],
        s.problem.interval_s,
    )


@of_jobs
def work_price(s: Scene) -> Floats:
    """(J,) weighted hours that a unit of each job's work costs later, V_j of `response`,
    `completion` and `tardiness` (there of jobs that are not in time, among themselves); inf for
    jobs without options."""
    J, o = len(s.problem.jobs), s.offer
    least = np.full(J, np.inf)
    np.minimum.at(least, o.job, objectives.work_worth(s.weight, s.money, s.cost_per_hour, s.rate))
    if s.objective not in ("completion", "tardiness"):
        return least
    # work per second of one GPU of the pool
    best = np.zeros((J, len(s.problem.pools)))
    np.maximum.at(best, (o.job, o.pool), s.rate / o.gpus)
    able = np.flatnonzero(
        np.isfinite(least) & ~(in_time(s) if s.objective == "tardiness" else False)
    )
    whole = best[able] @ s.problem.pools.gpus
    least[able] = np.maximum(
        least[able],
        objectives.queue_worth(s.problem.weight[able], s.problem.jobs.remaining_work[able], whole),
    )
    return least


def _cost(s: Scene) -> Floats:
    """Dollars saved against waiting, all to the end of the job: what is done cheaply now need not
    be bought later, and time that is lost may have to be bought back; see
    formulations/deadlines.py."""
    p, o, w = s.problem, s.offer, s.whole
    own = w.offer
    J, n, hour = len(p.jobs), len(o.job), objectives.HOUR
    done, left, pools = np.minimum(s.done, s.remaining), p.jobs.remaining_work, p.pools
    late, pace = _late_price(s), requested_work(s) / p.interval_s * hour
    due = due_s(p)
    dated = ~np.isnan(due)
    until = np.where(dated, (due - p.now_s) / hour, left / pace) - p.interval_s / hour
    # who is done early has the rest of the round
    after = until[o.job] + (p.interval_s - s.busy_s) / hour
    own_per_hour = w.rate * hour
    price, worth_ = deadlines.lines(
        own.start,
        w.cost_per_hour / own_per_hour,
        1.0 / (own_per_hour * pools.availability[own.pool]),
        SPARE * late,
        late,
    )
    value = (
        deadlines.money(price, worth_, left, until)[o.job]
        - s.dollars
        - deadlines.money(price[o.job], worth_[o.job], s.remaining - done, after)
    )
    # sure options, and questions: one for every option, then one for every job that waits
    kinds = pools.market[own.pool]
    sure = deadlines.first_kind(own.start, kinds == Market.ON_DEMAND, kinds == Market.RESERVED)
    owner = np.append(o.job, np.arange(J))
    query, f = ragged(own.start[owner], own.start[owner + 1])
    asked = sure[f] & dated[owner[query]]
    query, f = query[asked], f[asked]
    pause = pools.startup_s[own.pool[f]] + np.where(query < n, p.jobs.restart_s[own.job[f]], 0.0)
    stays = (np.append(o.pool, -1)[np.minimum(query, n)] == own.pool[f]) & (
        np.append(o.gpus, 0)[np.minimum(query, n)] == own.gpus[f]
    )
    every = p.jobs.checkpoint_every_s[o.job]
    undone = s.rate * np.where(np.isnan(every), p.interval_s, every)
    total = p.jobs.total_work[o.job]
    # spot GPUs may be taken back at any moment
    gone = np.minimum(s.remaining + undone, total)
    worst = np.append(np.where(pools.market[o.pool] == Market.SPOT, gone, s.remaining - done), left)
    # one pause that nobody foresaw
    sooner = np.append(after, until) - p.jobs.restart_s[owner] / hour
    over = deadlines.too_late(
        query, worst, sooner, 1.0 / own_per_hour[f], np.where(stays, 0.0, pause) / hour
    )
    value += late[o.job] * (over[n + o.job] - over[:n])
    ahead = np.minimum(p.interval_s / hour, done / pace[o.job])
    return value + np.where(s.cost_per_hour > 0, 0.0, EARLY * late[o.job] * ahead)


def _tardiness(s: Scene) -> Floats:
    """Weighted hours saved where a job counts its hours late, and MISSED hours if it is late at
    all.

    In time so far: MISSED x what the option takes off the risk of missing the deadline. Late, or
    without a deadline: as `completion`, among such jobs.
    """
    job = s.offer.job
    return np.where(
        in_time(s)[job], MISSED * s.weight * (_risk_of_waiting(s)[job] - _risk(s)), _time_saved(s)
    )


def _risk(s: Scene) -> Floats:
    """(n,) risk of missing the deadline after this round, 1 without one."""
    p, job = s.problem, s.offer.job
    due = due_s(p)[job] - p.now_s
    left = s.remaining - np.minimum(s.done, s.remaining)
    ended = left <= (1.0 - SURE) * s.remaining
    later = deadlines.risk(
        left,
        s.fastest[job] * objectives.HOUR,
        (due - p.interval_s - p.jobs.restart_s[job]) / objectives.HOUR,
    )
    return np.where(np.isnan(due), 1.0, np.where(ended, (s.busy_s > due).astype(np.float64), later))


@of_jobs
def in_time(s: Scene) -> Bools:
    """(J,) whether some option leaves the job's deadline within reach."""
    least = np.ones(len(s.problem.jobs))
    np.minimum.at(least, s.offer.job, _risk(s))
    return least < SURE


@of_jobs
def _risk_of_waiting(s: Scene) -> Floats:
    """(J,) risk of missing the deadline after a round of waiting."""
    p = s.problem
    hours = (due_s(p) - p.now_s - p.interval_s - p.jobs.restart_s) / objectives.HOUR
    return np.where(
        np.isnan(hours),
        1.0,
        deadlines.risk(p.jobs.remaining_work, s.fastest * objectives.HOUR, hours),
    )


@of_jobs
def _late_price(s: Scene) -> Floats:
    """(J,) dollars per hour of lateness: LATE times what the job's dearest option costs, times
    its weight.
    """
    dearest = np.ones(len(s.problem.jobs))
    np.maximum.at(dearest, s.offer.job, s.cost_per_hour)
    return LATE * s.problem.weight * dearest


MISSED = 168.0  # hours: a deadline missed counts as a week of lateness on top
# a risk above this is a deadline missed, a share of the work above this all of it
SURE = 1.0 - 1e-9
# an hour late is as bad as ten hours of the job's dearest option: no saving is worth it
LATE = 10.0
# of that: what an hour to spare is worth, since spot GPUs may not be there when they are needed
SPARE = 0.005
# of that: what an hour of work before its time is worth on GPUs that cost nothing
EARLY = 1e-3

OBJECTIVES: Mapping[str, Callable[[Scene], Floats]] = {
    "progress": _progress,
    "throughput": _throughput,
    "response": _time_saved,
    "cost": _cost,
    "completion": _time_saved,
    "tardiness": _tardiness,
    "utility": shares.utility,
    "fairness": shares.fairness,
    "maxmin": shares.maxmin,
    "makespan": shares.makespan,
    "flow": _flow,
}
