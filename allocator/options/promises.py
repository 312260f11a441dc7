"""A round as promises over time: what each job needs in each pool for its deadline, and the limits.

Capacity, prices, budgets and quotas are assumed not to change, and no job to arrive. Guarantees of
tenants, their max_jobs, the limit on changes, and revocations are left out. Formulas:
formulations/deadlines/satisfactory_shares.py and formulations/deadlines/joint_promises.py.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, State
from allocator.options.instance_building import CompiledRound
from allocator.performance.pipelines import due_s
from formulations.deadlines.joint_promises import CandidatePool, ReservationPlan
from formulations.deadlines.satisfactory_shares import DeadlineNeed

MOST_SLOTS = 1_000  # for times further ahead, slots are longer than rounds
MOST_CELLS = 200_000  # jobs x slots: with many jobs there are fewer slots


def build_reservations(round_: CompiledRound, who: Bools | None = None) -> ReservationPlan:
    """Build a plan without promises, with slots up to the last deadline.

    Only the jobs marked by `who` (J,) have candidate pools in it; the default is all jobs. Jobs
    that must keep what they hold have it until they are done. A job without a deadline has due =
    inf.
    """
    p = round_.problem
    due = due_s(p) - p.now_s
    due = np.where(np.isnan(due), np.inf, due)
    far = max(float(due[np.isfinite(due)].max(initial=0.0)), p.interval_s)
    slot_s = _slot_s(len(p.jobs), far, p.interval_s)
    return _chain(
        round_,
        due,
        slot_s,
        math.ceil(far / slot_s),
        np.ones(len(due), bool) if who is None else who,
    )


def extend_reservations(plan: ReservationPlan, round_: CompiledRound) -> ReservationPlan:
    """Return what these promises leave, with slots for the time after the last of them.

    The slots reach so far that every job could be done on an empty cluster. Long jobs make the
    slots long.
    """
    p = round_.problem
    end_s = plan.left.shape[1] * plan.slot_s
    rate = round_.option_table.rate[round_.option]
    slowest = np.full(len(p.jobs), np.inf)
    np.minimum.at(slowest, round_.instance.job, rate)
    far = end_s + float((p.jobs.remaining_work / slowest).max(initial=0.0)) + p.interval_s
    far += float(np.max(p.pools.startup_s, initial=0.0) + np.max(p.jobs.restart_s, initial=0.0))
    slot_s = _slot_s(len(p.jobs), far, plan.slot_s)
    who = np.array([len(of) > 0 for of in plan.places], bool)
    # one more slot, because the last promise may end inside a long slot
    out = _chain(round_, plan.due, slot_s, math.ceil(far / slot_s) + 1, who)
    first = np.arange(0, plan.left.shape[1], round(slot_s / plan.slot_s))
    until = out.left[:, : len(first)]
    np.minimum(until, np.minimum.reduceat(plan.left, first, axis=1), out=until)
    return out


def _slot_s(jobs: int, far: float, unit_s: float) -> float:
    """Return the seconds of a slot, a multiple of unit_s.

    `far` seconds then have at most MOST_SLOTS slots, and fewer with many jobs.
    """
    most = min(MOST_SLOTS, max(100, MOST_CELLS // max(1, jobs)))
    return unit_s * max(1, math.ceil(far / unit_s / most))


def _chain(
    round_: CompiledRound, due: Floats, slot_s: float, slots: int, who: Bools
) -> ReservationPlan:
    """Build a plan without promises, with `slots` slots."""
    who = who | (round_.instance.mandatory & (round_.unchanged_choice() >= 0))
    i = round_.instance
    # pools, the budget, quotas, tenants' budgets and exposures
    limits = (i.capacity, [i.budget], i.quota, i.tenant_budget, np.repeat(i.exposure, len(i.zones)))
    left = np.tile(np.concatenate(limits).astype(np.float64)[:, None], slots)
    P, K = len(i.capacity), len(i.quota)
    first = P + 1, P + 1 + K, P + 1 + 2 * K
    places = [_places(round_, j, first, float(due[j])) if who[j] else [] for j in range(len(due))]
    _serve_fixed(round_, left, places, slot_s)
    return ReservationPlan(places, due, left, slot_s)


def accept_promises(promises: ReservationPlan, round_: CompiledRound) -> list[int]:
    """Promise all deadlines that can be promised, and return the jobs that were refused.

    Running jobs come first, then jobs in order of submission.
    """
    jobs = round_.problem.jobs
    wanting = np.flatnonzero(
        np.isfinite(promises.due) & np.array([len(p) > 0 for p in promises.places], bool)
    )
    order = wanting[np.lexsort((jobs.submitted_s[wanting], jobs.state[wanting] != State.RUNNING))]
    refused = [j for j in order.tolist() if not promises.add(j)]
    promises.settle()
    return refused


def _places(
    round_: CompiledRound, j: int, first: tuple[int, int, int], due: float
) -> list[CandidatePool]:
    """Return the pools of job j with the finite rows in which they count.

    Each pool has the sizes that are faster than all smaller ones.
    """
    i = round_.instance
    p = round_.problem
    jobs = p.jobs
    out = []
    options = np.arange(i.start[j], i.start[j + 1])
    running = jobs.state[j] == State.RUNNING
    for pool in np.unique(i.pool[options]).tolist():
        o = options[i.pool[options] == pool]
        rate = round_.option_table.rate[round_.option[o]]
        o = o[np.append(True, rate[1:] > np.maximum.accumulate(rate)[:-1])]
        rate = round_.option_table.rate[round_.option[o]]
        home = bool(running and jobs.pool[j] == pool)
        startup = float(p.pools.startup_s[pool])
        rows = [pool]
        per = [1.0]
        price = float(i.cost[o[0]] / i.gpus[o[0]])
        if p.pools.prices_memory:  # sizes may need different memory of a GPU
            price = float((i.cost[o] / i.gpus[o]).max())
        quotas = i.account[:, o[0]]
        for row, limit, amount in (
            (len(i.capacity), i.budget, price),
            *((first[0] + q, i.quota[q], 1.0) for q in quotas[quotas >= 0].tolist()),
            *((first[1] + q, i.tenant_budget[q], price) for q in quotas[quotas >= 0].tolist()),
        ):
            if math.isfinite(limit) and amount > 0:
                rows.append(row)
                per.append(amount)
        if i.exposed[o[0]] >= 0:
            rows.append(first[2] + int(i.exposed[o[0]]))
            per.append(1.0)
        pause = startup + (float(jobs.restart_s[j]) if running and not home else 0.0)
        need = DeadlineNeed(
            i.gpus[o],
            rate,
            float(jobs.remaining_work[j]),
            due,
            pause,
            startup + float(jobs.restart_s[j]),
            int(jobs.gpus[j]) if home else 0,
        )
        out.append(CandidatePool(pool, need, np.array(rows), np.array(per), home))
    return out


def _serve_fixed(
    round_: CompiledRound, left: Floats, places: list[list[CandidatePool]], slot_s: float
) -> None:
    """Subtract what jobs that must keep their GPUs hold until they are done."""
    i = round_.instance
    unchanged_choice = round_.unchanged_choice()
    for j in np.flatnonzero(i.mandatory & (unchanged_choice >= 0)).tolist():
        place = next(p for p in places[j] if p.pool == i.pool[unchanged_choice[j]])
        rate = round_.option_table.rate[round_.option[unchanged_choice[j]]]
        until = math.ceil(place.need.work / rate / slot_s)
        left[place.rows, :until] -= place.per_gpu[:, None] * int(i.gpus[unchanged_choice[j]])
        places[j] = []


def first_option(round_: CompiledRound, j: int, pool: int, gpus: int) -> int:
    """Return the option of job j with that pool and size, -1 if it has none."""
    i = round_.instance
    options: Ints = np.arange(i.start[j], i.start[j + 1])
    same = options[(i.pool[options] == pool) & (i.gpus[options] == gpus)]
    return int(same[0]) if len(same) else -1
