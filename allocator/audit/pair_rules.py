"""Rules of pairs: which job runs on whose GPUs, and whether the two can share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Isolation
from allocator.performance.modes import is_plain


def faults(s: AuditContext) -> Iterator[str]:
    """Yield every rule that the pairs of the plan break."""
    a = s.allocation
    jobs = s.problem.jobs
    pools = s.problem.pools
    count = np.bincount(a.primary[s.is_secondary], minlength=len(jobs))
    strange = np.flatnonzero(
        (a.primary >= len(jobs)) | (a.primary < -1) | ((a.primary >= 0) & ~s.has_gpus)
    )
    for j in strange.tolist():
        yield f"{s.name(j)} gets {s.planned(j)} on the GPUs of job number {a.primary[j]}"
    for g in np.flatnonzero(s.is_secondary).tolist():
        h = int(a.primary[g])
        p = int(s.pool[g])
        k = int(s.gpus[g])
        subject = f"{s.name(g)} gets {s.planned(g)} on the same GPUs as {s.name(h)}"
        if h == g or not s.has_gpus[h] or s.is_secondary[h] or (s.pool[h], s.gpus[h]) != (p, k):
            yield f"{subject}, which gets {s.planned(h)}" + (
                " on the GPUs of another job" if s.is_secondary[h] else ""
            )
            continue
        if count[h] > 1:
            yield f"{subject}, with which {count[h] - 1} others run"
        if not is_plain(s.problem, np.array([h, g]), np.array([p, p])).all():
            yield f"{subject}: jobs with modes, and pools with stragglers, are not shared"
        elif not s.pair_checker.allows_sharing(h, g, p):
            yield f'{subject}, where sharing is "{Isolation(int(pools.sharing[p])).name.lower()}"'
        if np.isnan(s.pair_checker.slowdowns(h, g, p, k)).any():
            yield f"{subject}: how much they slow each other down is not known"
        need = [
            next((w[2] for w in s.pair_checker.ways(j, p, k) if w[0] == a.row[j]), None)
            for j in (h, g)
        ]
        if need[0] is None or need[1] is None:
            yield f"{subject}: what they need of the GPU's memory is not known"
        elif not need[0] + need[1] <= float(pools.memory_gb[p]) * (1 + 1e-9):
            yield (
                f"{subject}: they need {need[0] + need[1]:g} GB of each GPU, it has"
                f" {pools.memory_gb[p]:g}"
            )
