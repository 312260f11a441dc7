"""The frontier of several jobs: the sum of their weighted hours against their dollars.

Each job runs in one way, a pool and a size, from now to its end. Without the limits of pools, the
best combinations of ways are the corners of the jobs' hulls in order of slope
(formulations/rental/time_cost.py). With the limits, a round is solved in which every job must get
one of its ways. The value of a way is - weight x hours, and the budget of the round is the sum of
dollars of all ways:

    max  - sum_o w_j hours_o x_o
    s.t. sum_o dollars_o x_o <= B,  sum_{o of j} x_o = 1,  GPUs of pools, tenants' quotas

A way from now to the end of a job takes

    hours   = (pause + R / (r phi A)) / 3600
    dollars = GPUs x price x max(pause + R / (r phi), billed) / 3600

R is the remaining work, r the speed, phi the useful share that revocations and checkpoints leave
(performance/lost_time.py), and A the availability of a spot pool. GPUs that are not available are
not billed. `billed` is min_billing_s, or 0 if the job keeps what it holds. The GPUs that other jobs
hold are not considered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocator.domain.findings import find_nearest
from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.engine.frontier.sweep import BudgetAnswer, Effort, Frontier, Tell
from allocator.errors import Infeasible, NoPlanInTime, Relaxation, UsageError
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.options.option_table import find_blocked_jobs, option_table
from allocator.performance.lost_time import LEAST, useful_share
from allocator.performance.sizes import estimate_sizes
from allocator.policies.base import Memory, Task
from allocator.policies.mip import mip
from allocator.solvers import registry
from allocator.solvers.base import Termination
from allocator.valuation.values import added_prices, gpu_prices
from formulations.bounds.hull import front, hull
from formulations.model.single_round import no_pairs
from formulations.objectives import context
from formulations.rental.time_cost import Together, together


@dataclass(frozen=True)
class JobWays:
    """n ways of J jobs, job by job, then by pool and size.

    Attributes
    ----------
    name, number : (J,)
        Names of the jobs and their indices in the snapshot.
    job : (n,)
        Index into the names.
    pool, gpus : (n,)
        Index of the pool, and number of GPUs.
    useful_share : (n,)
        The share phi.
    hours, listed, added : (n,)
        Hours and US dollars to the end of the job; `added` leaves out reserved pools.
    dollars : (n,)
        Either `listed` or `added`, whichever counts.
    weight : (J,)
        Weights of the jobs.
    front, hull : (n,)
        True where no way is cheaper and faster, and at corners of the lower convex hull of the job.
    option : (n,)
        Index in the option table.
    """

    name: tuple[str, ...]
    number: Ints
    weight: Floats
    job: Ints
    pool: Ints
    gpus: Ints
    useful_share: Floats
    hours: Floats
    listed: Floats
    added: Floats
    dollars: Floats
    front: Bools
    hull: Bools
    option: Ints

    def __len__(self) -> int:
        return len(self.job)


def job_ways(problem: Problem, names: Sequence[str], dollars: str = "listed") -> JobWays:
    """List all ways of the named jobs.

    `dollars` is "listed" or "added". Raises UsageError with every fault of the names.
    """
    problem, number = estimate_sizes(problem), _numbers(problem, names)
    m = option_table(problem)
    pools = problem.pools
    jobs = problem.jobs
    place = np.full(len(jobs), -1)
    place[number] = np.arange(len(number))
    option = np.flatnonzero(place[m.job] >= 0)
    phi = useful_share(problem, m.job[option], m.pool[option], m.gpus[option], m.rate[option])
    order = np.argsort(place[m.job[option]], kind="stable")
    order = order[phi[order] > LEAST]
    option = option[order]
    phi = phi[order]
    job = place[m.job[option]]
    pool = m.pool[option]
    gpus = m.gpus[option]
    none = [
        f'job "{name}" can run in no pool: no size and GPU type that fit have a known speed'
        for name, count in zip(names, np.bincount(job, minlength=len(number)), strict=True)
        if not count
    ]
    if none:
        raise UsageError("\n".join(none))
    work_s = jobs.remaining_work[number[job]] / (m.rate[option] * phi)
    hours = (m.pause_s[option] + work_s / pools.availability[pool]) / context.HOUR
    listed, added = (
        context.dollars(
            m.keep[option],
            gpus * prices(problem, m.job[option], pool, gpus),
            m.pause_s[option] + work_s,
            pools.min_billing_s[pool],
        )
        for prices in (gpu_prices, added_prices)
    )
    cost = listed if dollars == "listed" else added
    best = np.zeros(len(job), bool)
    corner = np.zeros(len(job), bool)
    best[front(job, cost, hours)] = True
    corner[hull(job, cost, hours)] = True
    return JobWays(
        tuple(names),
        number,
        problem.weight[number],
        job,
        pool,
        gpus,
        phi,
        hours,
        listed,
        added,
        cost,
        best,
        corner,
        option,
    )


def _numbers(problem: Problem, names: Sequence[str]) -> Ints:
    """Return the indices of the jobs in the snapshot."""
    place = {name: j for j, name in enumerate(problem.jobs.job_id)}
    still = find_blocked_jobs(problem)
    faults = []
    for name in dict.fromkeys(names):
        near = "" if name in place else find_nearest(name, problem.jobs.job_id)
        if name not in place:
            faults.append(
                f'no job "{name}" in the snapshot' + (f', did you mean "{near}"?' if near else "")
            )
        elif still[place[name]]:
            faults.append(
                f'job "{name}" cannot start now: it is held, or waits for a job that is not done'
            )
        if list(names).count(name) > 1:
            faults.append(f'job "{name}" is named twice')
    if faults:
        raise UsageError("\n".join(faults))
    return np.array([place[name] for name in names], np.int64)


@dataclass(frozen=True)
class JobsCase:
    """The rounds of a set of jobs at different sums of dollars.

    `whole` is the round of the snapshot with all its options.
    """

    whole: CompiledRound
    ways: JobWays
    effort: Effort

    def solve(self, budget: float, memory: Memory | None) -> BudgetAnswer[Ints]:
        """Return the best plan of the budget, which has the way of each of the J jobs."""
        round_ = self.compile(budget, True)
        task = Task(
            round_,
            self.effort.limits,
            self.effort.solver,
            math.inf,
            None if memory is None else memory.row_prices(round_.model)[0],
        )
        proposal = mip(task)
        value = task.choices.value_of(proposal.choice)
        bound = max(value, min(proposal.bound, task.dual.bound))
        ways = round_.option[proposal.choice[self.ways.number]]
        return BudgetAnswer(ways, value, bound, task, proposal)

    def compile(self, budget: float, prunes: bool) -> CompiledRound:
        """Return the round with the budget; its options are the ways, sorted by job.

        `prunes` is for other cases (`BudgetCase`): here every way stays.
        """
        w = self.ways
        i = self.whole.instance
        order = np.argsort(w.number[w.job], kind="stable")
        mandatory = np.zeros(len(i.mandatory), bool)
        mandatory[w.number] = True
        job = w.number[w.job[order]]
        cost = w.dollars[order]
        instance = replace(
            i,
            value=-(w.weight[w.job] * w.hours)[order],
            start=np.searchsorted(job, np.arange(len(i.start))),
            job=job,
            pool=w.pool[order],
            gpus=w.gpus[order],
            cost=cost,
            keep=np.zeros(len(job), bool),
            colocations=no_pairs(),
            takeovers=no_pairs(),
            mandatory=mandatory,
            budget=budget,
            tenant_budget=np.full_like(i.tenant_budget, np.inf),
            guarantee=np.zeros_like(i.guarantee),
            least_kept=0,
        )
        return replace(self.whole, instance=instance, option=order)


@dataclass(frozen=True)
class JobsFrontier:
    """The ways of the jobs and, for more than one job, the plans for all of them together.

    There are J jobs, and c corners without the limits.

    Attributes
    ----------
    dollars : str
        "listed" or "added", the dollars that count.
    free : Together
        Corners without the limits of pools.
    fits : (c,)
        Whether each corner keeps the limits.
    found : Frontier or None
        Answers within the limits, None for one job; a plan has the way of each job, (J,). Values
        are weighted hours, negative.
    """

    problem: Problem
    dollars: str
    ways: JobWays
    free: Together
    fits: Bools
    found: Frontier[Ints] | None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per way, by job and dollars."""
        w = self.ways
        order = np.lexsort((w.hours, w.dollars, w.job))
        return [
            {
                "job_id": w.name[w.job[i]],
                "pool": self.problem.pools.pool[w.pool[i]],
                "gpus": int(w.gpus[i]),
                "useful_share": float(w.useful_share[i]),
                "hours": float(w.hours[i]),
                "dollars": float(w.listed[i]),
                "added_dollars": float(w.added[i]),
                "front": bool(w.front[i]),
                "hull": bool(w.hull[i]),
            }
            for i in order.tolist()
        ]

    def plans(self) -> list[dict[str, Any]]:
        """Return one row per joint plan, by dollars.

        `without_limits` has the hours at the same dollars on the lines between the corners.
        """
        f = self.found
        if f is None:
            return []
        budget, spent, value, bound, price = f.points
        columns = {
            "budget": budget,
            "spent": spent,
            "weighted_hours": -value,
            "bound": -bound,
            "gap": (bound - value) / np.maximum(np.abs(value), 1e-9),
            "hours_per_dollar": price,
            "without_limits": self.free.mixed(spent),
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            dict(zip(columns, row, strict=True)) | {"jobs": self._describe_way(way)}
            for row, way in zip(rows, f.plans, strict=True)
        ]

    def corners(self) -> list[dict[str, Any]]:
        """Return one row per corner without limits."""
        return [
            {
                "dollars": float(x),
                "weighted_hours": float(h),
                "hours_per_dollar": None if math.isinf(m) else float(m),
                "fits": bool(ok),
                "jobs": self._describe_way(way),
            }
            for x, h, m, ok, way in zip(
                self.free.dollars,
                self.free.hours,
                self.free.mu,
                self.fits,
                self.free.way,
                strict=True,
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return ways, corners and plans as plain data, for JSON."""
        head = {
            "schema_version": 1,
            "snapshot": self.problem.name,
            "digest": self.problem.digest,
            "dollars": self.dollars,
            "jobs": list(self.ways.name),
            "ways": self.rows(),
        }
        joint = {"corners": self.corners(), "plans": self.plans()}
        return head if self.found is None else head | joint

    def _describe_way(self, way: Ints) -> dict[str, str]:
        w = self.ways
        return {
            w.name[w.job[i]]: f"{w.gpus[i]} x {self.problem.pools.pool[w.pool[i]]}"
            for i in way.tolist()
        }


def jobs_frontier(
    problem: Problem,
    ways: JobWays,
    effort: Effort,
    dollars: str = "listed",
    tell: Tell | None = None,
) -> JobsFrontier:
    """Return the frontier of jobs whose ways are known.

    Parameters
    ----------
    dollars : str
        "listed" or "added", the dollars that the ways count.
    tell : callable, optional
        Called with the number of solves done.

    Raises
    ------
    Infeasible
        The jobs cannot all run at the same time.
    NoPlanInTime
        No plan was found within the limits of time, and none was proven to be impossible.
    """
    free = together(ways.job, ways.dollars, ways.weight[ways.job] * ways.hours)
    if len(ways.name) == 1:
        fits = np.ones(len(free.mu), bool)
        return JobsFrontier(problem, dollars, ways, free, fits, None)
    case = JobsCase(compile_round(problem, False, PairOffer.RUNNING), ways, effort)
    try:
        frontier = Frontier(case, effort, math.inf, tell).refine()
    except (Infeasible, NoPlanInTime) as error:
        raise _explain_failure(case, error) from None
    # whether the ways of each corner, (J,), keep the limits of pools and tenants
    whole = case.compile(math.inf, False)
    x = np.zeros((len(free.way), whole.model.n))
    np.put_along_axis(x, np.argsort(whole.option)[free.way], 1.0, axis=1)
    fits = np.array([whole.model.feasible(chosen) for chosen in x])
    return JobsFrontier(problem, dollars, ways, free, fits, frontier)


def _explain_failure(case: JobsCase, error: Infeasible | NoPlanInTime) -> Infeasible | NoPlanInTime:
    """Return why the jobs have no plan: they do not fit, or no solver could tell in time."""
    if isinstance(error, NoPlanInTime):
        model = case.compile(math.inf, False).model
        engine = case.effort.solver or registry.get(registry.choose(model)[0])
        if engine.solve(model, case.effort.limits).termination is not Termination.INFEASIBLE:
            return error
    w = case.ways
    have = int(case.whole.problem.pools.gpus.sum())
    least = np.full(len(w.name), np.iinfo(np.int64).max)
    np.minimum.at(least, w.job, w.gpus)
    need = int(least.sum())
    return Infeasible(
        [
            (
                f"all {len(w.name)} jobs at the same time, each in one of its ways: the GPUs of the"
                " pools and the quotas of tenants do not allow it"
            ),
            *getattr(error, "conflict", ()),
        ],
        [Relaxation("GPUs of all pools", "", have, need)] if need > have else [],
    )
