"""Other estimates of unknown sizes: what tenants' finished jobs teach, and Gittins' index.

The product learns the work that is left of a job from the jobs of its model, and takes its mean
(allocator/performance/sizes.py). Here the finished jobs of several groups count, and Gittins' index
can take the place of the mean. `measure_sizes.py` measures both; neither became the default.

Groups come from the closest to the widest: model and tenant, model, tenant. Each is shrunk towards
the next one, and the widest towards the guess of the product, as if that had counted once:

    share of a group = n / (n + 1) x what closer groups leave,    n: its finished jobs

This is the mean of a hierarchical Dirichlet process with concentration 1 (Teh, Jordan, Beal and
Blei, JASA 2006). Work of different models is compared in GPU-seconds, at the speed of a model on
the slowest GPU type at its smallest size.

Gittins' index of a job that has done the work a is the largest chance to end per expected work

    1 / min over x > 0 of E min(S - a, x) / P(S - a <= x)        both given S > a

(Gittins, "Multi-armed bandit allocation indices", 1989; Aalto, Ayesta and Righter, "On the Gittins
index in the M/G/1 queue", 2009). The minimum is a work, at most the mean that is left. It is taken
over a geometric grid of x, from a twentieth of the mean: a job is not started for less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.problem import Finished, Floats, Ints, Problem
from allocator.performance import sizes
from allocator.performance.table import RateTable

STEPS = np.geomspace(0.05, 10.0, 16)  # x of the index, in multiples of the mean that is left


@dataclass(frozen=True)
class FinishedOfTenants(Finished):
    """Jobs that are done, with their tenants (F,)."""

    tenant: Ints


@dataclass(frozen=True)
class Group:
    """The finished jobs of a group as log-normal sizes, for J unfinished jobs.

    Attributes
    ----------
    share : (J,)
        Probability that the size of a job is one of these.
    log_size : (J, S)
        Logarithms of the medians, equally likely.
    deviation : (J, 1)
        Standard deviation of the logarithm of each.
    """

    share: Floats
    log_size: Floats
    deviation: Floats


@dataclass(frozen=True)
class SizeMixture:
    """What is known of the sizes of J unfinished jobs.

    Attributes
    ----------
    done : (J,)
        a, the work so far.
    groups : sequence of Group
        From the closest to the widest, those that have finished jobs.
    guess : (J,)
        Mean work that is left by the guess, a Pareto size with exponent 2.
    guess_share : (J,)
        Probability of the guess and that it is above a.
    """

    done: Floats
    groups: Sequence[Group]
    guess: Floats
    guess_share: Floats


def mix_groups(
    done: Floats,
    guess: Floats,
    still: Floats,
    groups: Sequence[tuple[Ints, Ints]],
    finished_work: Floats,
) -> SizeMixture:
    """Return the mixture of groups, each shrunk towards the next one.

    Parameters
    ----------
    done, guess, still : (J,)
        Work so far; mean that the guess leaves; probability that the guess is above `done`.
    groups : sequence
        Numbers of the group of each unfinished (J,) and finished (F,) job, the closest first.
    finished_work : (F,)
        Work of finished jobs.
    """
    left = np.ones(len(done))
    found = []
    for own, theirs in groups if len(finished_work) else ():
        number = np.bincount(theirs, minlength=1 + int(own.max(initial=0)))
        log_size, deviation = sizes._quantiles(Finished(theirs, finished_work), number)
        n = number[own]
        found.append(Group(left * n / (n + 1.0), log_size[own], deviation[own][:, None]))
        left = left / (n + 1.0)
    return SizeMixture(done, found, guess, left * still)


def mean_left(mixture: SizeMixture) -> Floats:
    """Return the mean work (J,) that is left."""
    a = mixture.done[:, None]
    total, weight = mixture.guess_share * mixture.guess, mixture.guess_share
    for g in mixture.groups:
        size = np.exp(g.log_size)
        alive = 1.0 - _share_done(a, g)
        rest = sizes.expected_remaining(np.broadcast_to(a, size.shape), size, g.deviation)
        total = total + g.share * (alive * np.maximum(0.0, rest)).mean(axis=1)
        weight = weight + g.share * alive.mean(axis=1)
    return np.asarray(total / weight, dtype=np.float64)


def gittins_work(mixture: SizeMixture) -> Floats:
    """Return the least expected work per completion (J,): 1 / Gittins' index."""
    mean = mean_left(mixture)
    x = mean[:, None] * STEPS
    guess, share = mixture.guess[:, None], mixture.guess_share[:, None]
    served = share * guess * x / (guess + x)
    ended = share * (1.0 - (guess / (guess + x)) ** 2)
    a = mixture.done[:, None]
    for g in mixture.groups:
        for end, sign in ((a + x, 1.0), (a, -1.0)):
            served = served + sign * g.share[:, None] * _expected_minimum(end, g)
            ended = ended + sign * g.share[:, None] * _ended(end, g)
    per_completion = np.divide(served, ended, out=np.full_like(served, np.inf), where=ended > 1e-9)
    return np.asarray(np.minimum(mean, per_completion.min(axis=1)), dtype=np.float64)


def estimate_with_groups(problem: Problem, by_tenant: bool, by_index: bool) -> Problem:
    """Return the problem with an estimate of unknown sizes in place of the product's.

    Parameters
    ----------
    by_tenant : bool
        Whether jobs of the same tenant teach as well, also those of other models. The finished jobs
        are `FinishedOfTenants` then.
    by_index : bool
        Whether Gittins' index takes the place of the mean.
    """
    if problem.sizes != "unknown" or not len(problem.jobs):
        return sizes.estimate_sizes(problem)
    jobs, finished = problem.jobs, problem.finished
    groups = [(jobs.model, finished.model)]
    unit = np.ones(len(problem.models))
    if by_tenant:
        assert isinstance(finished, FinishedOfTenants)
        unit, tenants = work_per_gpu_s(problem), len(problem.tenants)
        both = tuple(x.model * tenants + x.tenant for x in (jobs, finished))
        groups = [(both[0], both[1]), *groups, (jobs.tenant, finished.tenant)]
    work = jobs.total_work - jobs.remaining_work
    least = sizes._least_work(problem)
    guess = sizes.learned_remaining(jobs.model, work, least, Finished(*NOTHING))
    still = (least / (work + least)) ** 2
    own = unit[jobs.model]
    mixture = mix_groups(
        work / own, guess / own, still, groups, finished.total_work / unit[finished.model]
    )
    left = own * (gittins_work(mixture) if by_index else mean_left(mixture))
    left = np.maximum(left, sizes.LEAST * work)
    taught = sum((g.share for g in mixture.groups), np.zeros(len(jobs))) > 0
    return replace(
        problem,
        sizes="known",
        guessed=sizes.is_alone_in_model(jobs.model, finished) & ~taught,
        jobs=replace(jobs, remaining_work=left, total_work=work + left),
    )


NOTHING = np.zeros(0, dtype=np.int64), np.zeros(0)


def work_per_gpu_s(problem: Problem) -> Floats:
    """Return the work per GPU-second (M,) of models on the slowest type, 1 without a rate.

    The smallest power of two counts at which a model has a rate.
    """
    table, models = RateTable.of(problem), np.arange(len(problem.models))
    out = np.full(len(models), np.nan)
    for gpus in (1, 2, 4, 8, 16):
        slowest = np.full(len(models), np.inf)
        for t in np.unique(problem.pools.gpu_type).tolist():
            rate, _ = table.rate(models, np.full_like(models, t), np.full_like(models, gpus))
            slowest = np.where(rate > 0, np.fmin(slowest, rate / gpus), slowest)
        out = np.where(np.isnan(out) & np.isfinite(slowest), slowest, out)
    return np.where(np.isnan(out), 1.0, out)


def _share_done(work: Floats, group: Group) -> Floats:
    """Return P(S_i <= work) of each size of the group, (J, S); `work` has the shape (J, 1)."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore"):
        return np.asarray(ndtr((np.log(work) - group.log_size) / group.deviation))


def _ended(work: Floats, group: Group) -> Floats:
    """Return P(S <= work) of the group, the shape of `work` (J, X)."""
    return np.stack([_share_done(w[:, None], group).mean(axis=1) for w in work.T], axis=1)


def _expected_minimum(work: Floats, group: Group) -> Floats:
    """Return E min(S, work) of the group, the shape of `work` (J, X)."""
    from scipy.special import ndtr

    e = group.deviation
    mean = np.exp(group.log_size + 0.5 * e**2)
    columns = []
    for w in work.T:
        with np.errstate(divide="ignore"):
            z = (np.log(w[:, None]) - group.log_size) / e
        columns.append((mean * ndtr(z - e) + w[:, None] * (1.0 - ndtr(z))).mean(axis=1))
    return np.stack(columns, axis=1)
