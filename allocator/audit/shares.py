"""The audit's own account of objectives that look at fair shares, or at how much a job has had.

utility     weight x log(1 + 9 x) / sqrt(1 + attained_gpu_s / 600)
x           rate x (interval_s - pause) / (interval_s x rate of the job's slowest option)
fairness    (rho of waiting)^2 / 2 - (rho of the plan)^2 / 2, rho = t / (total_work / e)
maxmin      ((rho of waiting / w)^p - (rho of the plan / w)^p) / p, p = ln(how many jobs have
            options) / ln 1.25, at least 2; w the largest rho of waiting among these
makespan    (t of waiting)^2 / 2 - (t of the plan)^2 / 2, t in hours, without the age; all jobs
            count alike
t           age + seconds until the job is done if it goes on at e after this round
e           its rate on an equal share of all GPUs, in proportion to weight x weight of the
            tenant, among jobs with
            options: the slowest pool of each size, straight lines between sizes, in proportion
                below the smallest,
            as the largest above it
"""

from __future__ import annotations

import math

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints


def utility(s: Scene, job: Ints, rate: Floats, pause: Floats) -> Floats:
    """(n,) worth of what is given to the jobs (n,); seconds lost. The work left plays no part."""
    problem, jobs = s.problem, s.problem.jobs
    owner, _, _, speed = s.useful_options(np.unique(job))
    slowest = np.full(len(jobs), np.inf)
    np.minimum.at(slowest, owner, speed)
    x = rate / slowest[job] * np.maximum(0.0, 1.0 - pause / problem.interval_s)
    lessened = np.sqrt(1.0 + jobs.attained_gpu_s[job] / 600.0)
    return np.asarray(problem.weight[job] * np.log(1.0 + 9.0 * x) / lessened)


def shared(s: Scene, name: str, job: Ints, done: Floats, busy: Floats) -> Floats:
    """(n,) worth in `fairness`, `maxmin` or `makespan` of what is given to the jobs (n,), 0 where
    they have no option; work done, seconds on GPUs."""
    problem = s.problem
    equal = equal_rate(s, job, np.ones(len(problem.jobs)) if name == "makespan" else None)
    able = np.isfinite(equal)  # a plan for others is at fault anyway
    equal = np.where(able, equal, 1.0)
    waiting = _ratio(s, name, job, equal)
    sooner = (problem.interval_s - busy + done / equal) / _unit(s, name, job, equal)
    planned = np.maximum(0.0, waiting - sooner)  # both may be huge: their difference is known
    if name == "maxmin":
        having = np.unique(s.options()[0])
        most = _ratio(s, name, having, equal_rate(s, having)).max(initial=0.0) or 1.0
        p = max(2.0, math.log(max(1, len(having))) / math.log(1.25))
        with np.errstate(divide="ignore"):
            fallen = -np.expm1(p * np.log1p(-np.minimum(1.0, sooner / waiting)))
        worth = (waiting / most) ** p * fallen / p
    else:
        worth = sooner * (waiting + planned) / 2
    return np.where(able, worth, 0.0)


def _ratio(s: Scene, name: str, job: Ints, equal: Floats) -> Floats:
    """(n,) rho, in makespan hours, of jobs that wait for a round and go on at `equal`."""
    problem, jobs = s.problem, s.problem.jobs
    age = 0.0 if name == "makespan" else np.maximum(0.0, problem.now_s - jobs.submitted_s[job])
    seconds = age + problem.interval_s + jobs.remaining_work[job] / equal
    return np.asarray(seconds / _unit(s, name, job, equal))


def _unit(s: Scene, name: str, job: Ints, equal: Floats) -> Floats:
    """(n,) seconds of a unit of rho: those that the whole job takes at `equal`; in makespan
    hours.
    """
    whole = s.problem.jobs.total_work[job] / equal
    return np.full(len(job), 3600.0) if name == "makespan" else whole


def equal_rate(s: Scene, job: Ints, claim: Floats | None = None) -> Floats:
    """(n,) e of the jobs (n,), inf where one has no options. claim (J,): None = weight x weight
    of the tenant.
    """
    problem = s.problem
    owner, _, gpus, rate = s.useful_options()
    claim = problem.weight * problem.tenants.weight[problem.jobs.tenant] if claim is None else claim
    everybody, cluster = float(claim[np.unique(owner)].sum()), float(problem.pools.gpus.sum())
    equal = np.full(len(job), np.inf)
    first, last = (
        np.searchsorted(owner, job, side="left"),
        np.searchsorted(owner, job, side="right"),
    )
    for i in np.flatnonzero(last > first).tolist():
        mine = slice(int(first[i]), int(last[i]))
        equal[i] = _on(cluster * float(claim[job[i]]) / everybody, gpus[mine], rate[mine])
    return equal


def _on(share: float, gpus: Ints, rate: Floats) -> float:
    """Rate of a job with these options on `share` GPUs."""
    sizes = np.unique(gpus)
    slowest = [float(rate[gpus == k].min()) for k in sizes.tolist()]
    return float(np.interp(share, sizes, slowest)) * min(1.0, share / float(sizes[0]))
