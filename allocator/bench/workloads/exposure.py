"""exposure: the jobs of deadlines.py, with limits on what tenants hold in one spot zone.

Two tenants have guaranteed GPUs and a limit, as a share of these, on what they hold on the spot
machines of any one zone. The third tenant has neither. A fifth of the jobs never runs on spot GPUs,
and another fifth on at most 4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.bench.workloads.deadlines import deadlines
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

TENANTS = {"steady": (8, 0.5, 0.4), "careful": (10, 0.3, 0.3), "free": (0, None, 0.3)}
#         guaranteed_gpus, max_spot_share, share of the jobs
SPOT_JOBS = ((0, 0.2), (4, 0.2), (None, 0.6))  # max_spot_gpus, share of the jobs


def exposure(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `exposure`; load and gpus are those of `deadlines`."""
    made = deadlines(seed=seed, load=load, jobs=jobs, gpus=gpus)
    rng = np.random.default_rng([seed, 1])
    tenant = rng.choice(len(TENANTS), jobs, p=[share for _, _, share in TENANTS.values()])
    limit = rng.choice(len(SPOT_JOBS), jobs, p=[share for _, share in SPOT_JOBS])
    owned: Columns = {
        **made.tables["workload.csv"],
        "tenant": [list(TENANTS)[i] for i in tenant.tolist()],
        "max_spot_gpus": [SPOT_JOBS[i][0] for i in limit.tolist()],
    }
    tenants: Columns = {
        "tenant": list(TENANTS),
        "guaranteed_gpus": [g for g, _, _ in TENANTS.values()],
        "max_spot_share": [s for _, s, _ in TENANTS.values()],
    }
    return replace(
        made, name="exposure", tables={**made.tables, "workload.csv": owned, "tenants.csv": tenants}
    )
