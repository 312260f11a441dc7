"""Check a plan against every hard rule and value it.

The rules are read independently of allocator/options, so that a mistake there does not hide itself
here. What jobs could hold instead, on which guarantees and some objectives depend, is an argument.
Speeds, pauses, prices and values come from their one definition. The tests hold a second account of
all of them (tests/support/values).

Rules over all jobs are capacity, money, quotas, guarantees, changes, and justified repairs. The
rules of each job, and of each pair of jobs that share GPUs, ask whether what the plan gives it is
one of its options. A job can run on a GPU type at a size in one or several ways, each with a speed
and a memory: these are the rows of rates.csv, or the usual speed with the job's memory_gb where no
row exists. Two jobs that share GPUs may use any two ways that fit into the memory together. Each
then has the speed of its way divided by its slowdown of sharing.csv. The plan names the rows of the
ways that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from allocator.audit import kept, quotas
from allocator.audit.context import AuditContext, exceeds
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Bools, Floats, Isolation, Market, Problem, State, first_primary
from allocator.domain.schema.columns import MOST_GPUS
from allocator.performance.colocated_speed import can_pair
from allocator.performance.lost_time import restart_s
from allocator.valuation import Offer, bound_rounding, build_context, option_values
from allocator.valuation.values import gpus_to_explore, reward_exploring, way_memory_gb


def faults_of_each_job(s: AuditContext) -> Iterator[str]:
    """Yield every rule that a single job breaks, rule by rule, and those that pairs break."""
    for broken, describe in _rules(s):
        for j in broken.nonzero()[0].tolist():
            yield f"{s.name(j)} gets {describe(j)}"
    yield from _find_pair_faults(s)


def _rules(s: AuditContext) -> Iterator[tuple[Bools, Callable[[int], str]]]:
    """Yield which jobs break each rule, (J,), and what is said of such a job."""
    jobs = s.problem.jobs
    pools = s.problem.pools
    a = s.allocation
    yield (
        ~s.has_gpus & ~((a.pool == -1) & (a.gpus == 0)),
        lambda j: f"pool {a.pool[j]} with {a.gpus[j]} GPUs is neither an option nor nothing",
    )
    if not len(pools):
        return
    # what a job already holds may lie outside its range, sizes and types
    fresh = s.has_gpus & ~s.is_kept
    out = fresh & ((s.gpus < jobs.min_gpus) | (s.gpus > jobs.max_gpus))
    yield (
        out,
        lambda j: f"{s.planned(j)}, outside its range {jobs.min_gpus[j]} to {jobs.max_gpus[j]}",
    )
    yield fresh & ~out & ~_size_allowed(s), lambda j: f"{s.planned(j)}, not one of its sizes"
    kind = pools.gpu_type[s.pool]
    yield (
        fresh & ~s.types[np.arange(len(jobs)), kind],
        lambda j: (
            f'{s.planned(j)} of type "{s.problem.gpu_types[kind[j]]}", which its gpu_types exclude'
        ),
    )
    yield (
        s.has_gpus & (s.gpus > pools.gpus[s.pool]),
        lambda j: f"{s.planned(j)}, which has only {pools.gpus[s.pool[j]]}",
    )
    yield (
        fresh & s.table.is_assumed(jobs.model, kind, s.gpus) & (s.gpus != jobs.requested_gpus),
        lambda j: (
            f"{s.planned(j)} at an assumed speed, which it may have at its "
            f"requested {jobs.requested_gpus[j]} only"
        ),
    )
    yield (
        fresh & (pools.market[s.pool] == Market.SPOT) & (s.gpus > jobs.max_spot_gpus),
        lambda j: f"{s.planned(j)}, a spot pool, where it may hold {jobs.max_spot_gpus[j]:g}",
    )
    alone = s.has_gpus & ~s.is_colocated  # _find_pair_faults checks rows and speeds of pairs
    yield alone & ~(s.rate > 0), lambda j: f"{s.planned(j)}: no rate is known there"
    yield (
        alone & (s.rate > 0) & ~_row_true(s),
        lambda j: f"{s.planned(j)} with row {a.row[j]} of rates.csv, which does not give its rate",
    )
    memory_gb = np.append(s.problem.rates.memory_gb, np.nan)  # the last for no such row
    row = np.where((a.row >= 0) & (a.row < len(memory_gb)), a.row, -1)
    yield (
        fresh & (memory_gb[row] > pools.memory_gb[s.pool]),
        lambda j: (
            f"{s.planned(j)} with row {a.row[j]} of rates.csv, which needs"
            f" {memory_gb[row[j]]:g} GB of each GPU; it has {pools.memory_gb[s.pool[j]]:g}"
        ),
    )
    yield (
        s.has_gpus & s.is_barred,
        lambda j: (
            f"{s.planned(j)}, although "
            + ("it is held" if jobs.state[j] == State.HELD else "a job it comes after is not done")
        ),
    )
    moved = s.frozen & s.has_gpus & ~s.is_kept
    yield (
        moved & jobs.preemptible,
        lambda j: f"{s.planned(j)}, although resizes_left is 0 and it holds {s.holds(j)}",
    )
    # a non-preemptible job stays if it can; otherwise, or if released, it may only be paused
    left = s.running & ~s.has_gpus & s.can_be_kept & ~s.repairs.released
    yield (
        (moved | left) & ~jobs.preemptible,
        lambda j: f"{s.planned(j)}, although it is not preemptible and holds {s.holds(j)}",
    )


def _size_allowed(s: AuditContext) -> Bools:
    """Find jobs whose size is listed in `sizes`, or follows the rule if they have no list.

    The rule has powers of two in a node, and whole nodes; of pods it has all whole ones.
    """
    jobs = s.problem.jobs
    allowed: Bools = np.zeros(len(jobs), dtype=bool)
    listed = jobs.sizes >= 0
    if s.has_gpus.any():
        node = s.problem.pools.gpus_per_node[s.pool]
        node = np.where(jobs.gpus_per_pod > 1, jobs.gpus_per_pod, node)
        allowed = ((s.gpus & (s.gpus - 1)) == 0) & (s.gpus <= node) | (s.gpus % node == 0)
    if listed.any():
        span = MOST_GPUS + 1
        listed_sizes = np.concatenate(
            [code * span + sizes for code, sizes in enumerate(s.problem.size_lists)]
        )
        allowed = np.where(listed, np.isin(jobs.sizes * span + s.gpus, listed_sizes), allowed)
    whole: Bools = s.gpus % jobs.gpus_per_pod == 0
    return allowed & whole


def _row_true(s: AuditContext) -> Bools:
    """Find jobs whose row of rates.csv is of their model, type and size, and gives the rate.

    -1 is right only where no row applies.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    rates = s.problem.rates
    row = s.allocation.row
    true: Bools = (row == -1) & (s.row == -1)
    j = np.flatnonzero(s.has_gpus & (row >= 0) & (row < len(rates.rate)))
    r = row[j]
    true[j] = (
        (rates.model[r] == jobs.model[j])
        & (rates.gpu_type[r] == pools.gpu_type[s.pool[j]])
        & (rates.gpus[r] == s.gpus[j])
        & (rates.over(r, pools.link_gb_s[s.pool[j]]) * s.pace[j] == s.rate[j])
    )
    return true


def _find_pair_faults(s: AuditContext) -> Iterator[str]:
    """Yield a sentence for each rule that two jobs on the same GPUs break."""
    a = s.allocation
    jobs = s.problem.jobs
    pools = s.problem.pools
    count = np.bincount(s.pairs[0], minlength=len(jobs))
    strange = np.flatnonzero(
        (a.primary >= len(jobs)) | (a.primary < -1) | ((a.primary >= 0) & ~s.has_gpus)
    )
    for j in strange.tolist():
        yield f"{s.name(j)} gets {s.planned(j)} on the GPUs of job number {a.primary[j]}"
    if a.shared_by is not None and (first_primary(a.shared_by) != a.primary).any():
        yield "primary and secondary jobs of the plan contradict each other"
    for g in s.primaries_of:
        yield from _several_faults(s, g)
    if not len(s.pairs[0]):
        return
    is_slowdown_known = ~np.any(np.isnan(s.pair_slowdowns), axis=0)
    needs_gb = s.pair_ways[1].reshape(2, -1).sum(axis=0)
    for n, (h, g) in enumerate(zip(*(x.tolist() for x in s.pairs), strict=True)):
        p = int(s.pool[g])
        k = int(s.gpus[h])
        same = s.pool[h] == p and (k == s.gpus[g] or s.has_several(g))
        subject = f"{s.name(g)} gets {s.planned(g)} on the same GPUs as {s.name(h)}"
        if h == g or not s.has_gpus[h] or s.is_secondary[h] or not same:
            yield f"{subject}, which gets {s.planned(h)}" + (
                " on the GPUs of another job" if s.is_secondary[h] else ""
            )
            continue
        if count[h] > 1:
            yield f"{subject}, with which {count[h] - 1} others run"
        if not can_pair(s.problem, np.array([h, g]), np.array([p, p])).all():
            yield (
                f"{subject}: jobs with modes or with a share of a GPU, and pools with stragglers,"
                " are not shared"
            )
        elif not _may_share(s, h, g, p):
            yield f'{subject}, where sharing is "{Isolation(int(pools.sharing[p])).name.lower()}"'
        if not is_slowdown_known[n]:
            yield f"{subject}: how much they slow each other down is not known"
        if np.isnan(needs_gb[n]):
            yield f"{subject}: what they need of the GPU's memory is not known"
        elif not needs_gb[n] <= float(pools.memory_gb[p]) * (1 + 1e-9):
            yield (
                f"{subject}: they need {needs_gb[n]:g} GB of each GPU, it has"
                f" {pools.memory_gb[p]:g}"
            )


def _may_share(s: AuditContext, h: int, g: int, pool: int) -> bool:
    """Return whether the pool lets job g run on the GPUs of job h."""
    rule, tenant = s.problem.pools.sharing[pool], s.problem.jobs.tenant
    if rule == Isolation.BEST_EFFORT:
        return bool(s.problem.jobs.best_effort[g])
    return bool(rule == Isolation.ANY or (rule == Isolation.TENANT and tenant[h] == tenant[g]))


def _several_faults(s: AuditContext, g: int) -> Iterator[str]:
    """Yield the rules that a secondary job breaks by several primary jobs, or GPUs besides theirs.

    Such jobs may be moved, and run in pools without nodes that are not spot pools.
    """
    if not s.has_several(g):
        return
    primaries, p, most = s.primaries_of[g], int(s.pool[g]), s.problem.max_primaries
    names = ", ".join(s.name(h) for h in primaries)
    subject = f"{s.name(g)} gets {s.planned(g)} on the GPUs of {names}"
    total = int(s.gpus[primaries].sum())
    if most < 2 or len(primaries) > most:
        yield f"{subject}: max_primaries is {most}"
    if total > s.gpus[g]:
        yield f"{subject}, which have {total}"
    if s.problem.has_nodes[p] or s.problem.pools.market[p] == Market.SPOT:
        yield f"{subject}: pools with nodes and spot pools have pairs of jobs of one size only"
    for j in (g, *primaries):
        if not s.problem.jobs.preemptible[j]:
            yield f"{subject}: {s.name(j)} may not be moved, so it shares with a job of its size"


def faults_of_all_jobs(s: AuditContext, cost: Floats) -> Iterator[str]:
    """Yield every rule that the jobs break together.

    cost (J,) is the US dollars per hour of what the plan gives each job.
    """
    yield from _capacity(s)
    yield from _money(s, cost)
    yield from quotas.faults(s, cost)
    yield from _releases(s)
    yield from _changes(s)


def _capacity(s: AuditContext) -> Iterator[str]:
    pools = s.problem.pools
    # a job larger than its pool is a separate fault
    fits = s.gpus <= pools.gpus[s.pool] if len(pools) else s.has_gpus
    taken = s.held * s.problem.gpu_share(np.arange(len(s.pool)), s.pool)
    used = np.bincount(s.pool, taken * fits, len(pools))[: len(pools)]
    for p in np.flatnonzero(used > pools.gpus + 1e-6):
        yield f'pool "{pools.pool[p]}": {used[p]:g} GPUs are given, it has {pools.gpus[p]}'


def _money(s: AuditContext, cost: Floats) -> Iterator[str]:
    spent = float(cost.sum())
    if exceeds(spent, s.problem.budget_per_hour):
        yield f"the plan costs {spent:g} $/h, budget_per_hour is {s.problem.budget_per_hour:g}"


def _releases(s: AuditContext) -> Iterator[str]:
    """Check that non-preemptible jobs are released only where their pool cannot hold them all.

    No more GPUs may be released than necessary.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    released = s.repairs.released
    bound = s.running & ~jobs.preemptible & s.can_be_kept
    for j in np.flatnonzero(released & ~bound).tolist():
        yield f"{s.name(j)} is released, although no rule binds it to GPUs it could keep"
    if not (released & bound).any():
        return
    staying = np.unique(s.unit[bound & ~released])
    stay = np.bincount(jobs.pool[staying], jobs.gpus[staying], len(pools))
    for j in np.flatnonzero(released & bound).tolist():
        p = jobs.pool[j]
        more = 0 if s.unit[j] in staying else jobs.gpus[j]
        if stay[p] + more <= pools.gpus[p]:
            yield (
                f'{s.name(j)} is released, although pool "{pools.pool[p]}" with {pools.gpus[p]}'
                f" GPUs can hold its {jobs.gpus[j]} and the {stay[p]:.0f} of the others that"
                " must stay"
            )


def _changes(s: AuditContext) -> Iterator[str]:
    limit = s.problem.max_changes
    lifted = s.repairs.max_changes
    if limit < 0:
        return
    if lifted != limit:
        forced = _forced(s)
        if lifted < 0 or lifted > max(limit, forced):
            yield (
                f"max_changes {limit} is lifted to {lifted if lifted >= 0 else 'no limit'}, lost"
                f" GPUs force {forced}"
            )
        limit = max(limit, min(lifted, forced))
    changed = int((s.running & ~s.is_kept).sum())
    if changed > limit:
        yield f"{changed} running jobs change, max_changes is {limit}"


def _forced(s: AuditContext) -> int:
    """Return the number of running jobs that must change because GPUs were lost.

    These are the jobs that cannot keep what they hold, and in each pool the jobs that must go so
    that the others fit, together with all that must stay. Jobs with most GPUs go first; pairs go
    together.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    lost = ~s.can_be_kept | (s.nodes.is_unknown & ~s.is_kept)
    forced = int((s.running & lost).sum())
    members = np.bincount(s.unit[s.can_be_kept], minlength=len(jobs))
    firm = np.zeros(len(jobs), dtype=bool)
    firm[s.unit[s.can_be_kept & ~jobs.preemptible]] = True
    let = np.zeros(len(jobs), dtype=bool)  # jobs that do not fit with those that must stay
    let[s.unit[s.can_be_kept & s.repairs.released]] = True
    for p in range(len(pools)):
        here = np.flatnonzero((members > 0) & (jobs.pool == p))
        excess = int(jobs.gpus[here].sum() - pools.gpus[p])
        if excess <= 0:
            continue
        forced += int(members[here[let[here]]].sum())
        excess -= int(jobs.gpus[here[let[here]]].sum())
        loose = here[~firm[here]]
        for h in loose[np.argsort(-jobs.gpus[loose] / members[loose], kind="stable")].tolist():
            if excess > 0:
                forced = forced + int(members[h])
                excess = excess - int(jobs.gpus[h])
    return forced


@dataclass(frozen=True, repr=False)
class Audit:
    """State what an independent check found out about a plan.

    Attributes
    ----------
    faults : tuple of str
        Sentences that name object, value and rule; empty: the plan is legal.
    value, rate, cost : ndarray of float, shape (jobs,)
        Value in the objective, work per second, US dollars per hour; 0 for jobs that get nothing.
    objective_value : float
        Sum of `value`.
    rounding : float
        What rounding may do to it.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.audit(problem, allocator.solve(problem))
    Audit(faults=0, objective_value=7.14)
    """

    faults: tuple[str, ...]
    value: Floats
    rate: Floats
    cost: Floats
    objective_value: float
    rounding: float = 0.0

    def __repr__(self) -> str:
        """Summarise the audit on one line."""
        return f"Audit(faults={len(self.faults)}, objective_value={self.objective_value:.6g})"


def audit(problem: Problem, allocation: Allocation, repairs: Repairs, every: Offer) -> Audit:
    """Check every hard rule (docs/reference/rules.md), and compute values, rates and costs again.

    Parameters
    ----------
    every : Offer
        All ways of the jobs to hold GPUs alone, without values.
    """
    context = AuditContext(problem, allocation, repairs, every)
    shape = tuple(_shape_faults(problem, allocation, repairs))
    if shape:
        nothing = np.zeros(len(problem.jobs))
        return Audit(shape, nothing, nothing, nothing, 0.0)
    cost = _costs(context)
    rate = np.where(context.rate > 0, context.rate, 0.0)
    faults = (
        *faults_of_each_job(context),
        *faults_of_all_jobs(context, cost),
        *kept.faults(context),
        *context.nodes.faults(context.has_gpus, context.pool, context.gpus, context.is_secondary),
    )
    # a job without any option cannot be valued; a plan that gives it GPUs has a fault
    has_options = np.bincount(every.job, minlength=len(rate)) > 0
    known = np.where(has_options, rate, 0.0) if faults else rate
    value, rounding = plan_values(context, known)
    return Audit(faults, value, rate, cost, float(value.sum()), rounding)


def _costs(s: AuditContext) -> Floats:
    """Return the US dollars per hour of what the plan gives each job, (J,)."""
    pools = s.problem.pools
    cost = np.zeros(len(s.has_gpus))
    on = np.flatnonzero(s.has_gpus)
    held, pool = s.held[on], s.pool[on]
    memory_gb = way_memory_gb(s.problem, on, pool, s.gpus[on])
    cost[on] = held * pools.price_per_gpu_hour[pool]
    cost[on] += held * pools.price_per_gb_hour[pool] * memory_gb
    return cost


def plan_values(s: AuditContext, rate: Floats) -> tuple[Floats, float]:
    """Return the values (J,) of the plan, and how much rounding may change their sum.

    A job that gets nothing has the value 0.

    Parameters
    ----------
    s : AuditContext
        The plan and the problem, as the audit reads them.
    rate : (J,)
        Work per second of each job under the plan, 0 where it is not known.
    """
    value = np.zeros(len(s.problem.jobs))
    problem = s.problem
    j = np.flatnonzero(s.has_gpus & (rate > 0))
    if not len(j):
        return value, 0.0
    pool, gpus, kept = s.pool[j], s.gpus[j], s.is_kept[j]
    again_s = np.where(s.running[j], restart_s(problem, j, pool, gpus), 0.0)
    pause = np.where(kept, 0.0, problem.pools.startup_s[pool] + again_s)
    given = Offer(j, pool, gpus, rate[j], pause, kept)
    plan = build_context(problem, given, lambda: s.every, s.held[j] / gpus)
    value[j] = option_values(problem, plan)
    if gpus_to_explore(problem) > 0:
        alone = option_values(problem, plan.everything.for_offer(s.every))
        # a job that shares GPUs gets no reward: its speed does not show how fast it is alone
        every = s.every
        same = (s.has_gpus & ~s.is_colocated)[every.job]
        same &= (s.pool[every.job] == every.pool) & (s.gpus[every.job] == every.gpus)
        value[every.job[same]] += reward_exploring(problem, every, alone)[same]
    return value, bound_rounding(problem, plan, j)


def _shape_faults(problem: Problem, a: Allocation, repairs: Repairs) -> Iterator[str]:
    jobs = len(problem.jobs)
    quotas = len(problem.tenants) + len(problem.quotas)
    for name, array, length in (
        ("allocation.pool", a.pool, jobs),
        ("allocation.gpus", a.gpus, jobs),
        ("allocation.row", a.row, jobs),
        ("allocation.primary", a.primary, jobs),
        ("repairs.released", repairs.released, jobs),
        ("repairs.usable", repairs.usable, quotas),
    ):
        if array.shape != (length,):
            yield f"{name} has shape {array.shape}, it should be ({length},)"
