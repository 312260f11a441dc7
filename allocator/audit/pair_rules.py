"""Rules of pairs: which job runs on whose GPUs, and whether the two can share.

A way to run a job at a model, GPU type and size is a row of rates.csv with memory_gb; where no row
exists, the usual speed with memory_gb of the job. A pair may use any two ways that fit the GPU
together. Its speeds are those of the ways divided by the slowdowns of sharing.csv. The plan names
the rows that say which ways it uses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Isolation, Market
from allocator.domain.schema.colocation import first_primary
from allocator.performance.colocated_speed import can_pair


def faults(s: AuditContext) -> Iterator[str]:
    """Yield every rule that the pairs of the plan break."""
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
