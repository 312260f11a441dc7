"""Rules of each job, and of each pair: is what the plan gives it one of its options?

A way to run a job at a model, GPU type and size is a row of rates.csv with memory_gb; where no row
exists, the usual speed with memory_gb of the job. A pair may use any two ways that fit the GPU
together. Its speeds are those of the ways divided by the slowdowns of sharing.csv. The plan names
the rows that say which ways it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Bools, Isolation, Market, State
from allocator.domain.schema.colocation import first_primary
from allocator.domain.schema.columns import MOST_GPUS
from allocator.performance.colocated_speed import can_pair


def faults(s: AuditContext) -> Iterator[str]:
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
