"""What is wrong with the pairs of a plan: who rides on whose GPUs, and whether the two can."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Isolation


def faults(s: Scene) -> Iterator[str]:
    """Everything that is wrong with the pairs of the plan."""
    a, jobs, pools = s.allocation, s.problem.jobs, s.problem.pools
    count = np.bincount(a.host[s.guest], minlength=len(jobs))
    strange = np.flatnonzero((a.host >= len(jobs)) | (a.host < -1) | ((a.host >= 0) & ~s.on))
    for j in strange.tolist():
        yield f"{s.name(j)} gets {s.planned(j)} on the GPUs of job number {a.host[j]}"
    for g in np.flatnonzero(s.guest).tolist():
        h, p, k = int(a.host[g]), int(s.pool[g]), int(s.gpus[g])
        told = f"{s.name(g)} gets {s.planned(g)} beside {s.name(h)}"
        if h == g or not s.on[h] or s.guest[h] or (s.pool[h], s.gpus[h]) != (p, k):
            yield f"{told}, which gets {s.planned(h)}" + (" beside another" if s.guest[h] else "")
            continue
        if count[h] > 1:
            yield f"{told}, which {count[h] - 1} others run beside"
        if not s.judge.lets(h, g, p):
            yield f'{told}, where sharing is "{Isolation(int(pools.sharing[p])).name.lower()}"'
        if np.isnan(s.judge.slowdowns(h, g, p, k)).any():
            yield f"{told}: how much they slow each other down is not known"
        need = [
            next((w[2] for w in s.judge.ways(j, p, k) if w[0] == a.row[j]), None) for j in (h, g)
        ]
        if need[0] is None or need[1] is None:
            yield f"{told}: what they need of the GPU's memory is not known"
        elif not need[0] + need[1] <= float(pools.memory_gb[p]) * (1 + 1e-9):
            yield (
                f"{told}: they need {need[0] + need[1]:g} GB of each GPU, it has"
                f" {pools.memory_gb[p]:g}"
            )
