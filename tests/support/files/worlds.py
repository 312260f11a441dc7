"""Small workloads in tests: jobs as rows, everything else by default.

    workload([{"total_work": 600}, {"submitted_s": 10}], gpus=1)

Defaults: one pool "p" of type "A"; jobs j0, j1 ... of model "m", submitted at 0, 600 units of work,
one GPU asked for and at most one; rate k on k GPUs; rounds of 300 s; a change while running costs
30 s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from builders import LINEAR, problem

from allocator.domain.workload import Changes, Workload

Row = Mapping[str, Any]


def workload(
    jobs: Sequence[Row],
    gpus: int = 1,
    *,
    rates: Mapping[int, float] | Sequence[Row] = LINEAR,
    changes: Sequence[tuple[float, int | None, float | None]] = (),
    pools: Sequence[Row] | None = None,
    config: Row | None = None,
    **tables: Sequence[Row],
) -> Workload:
    """changes: (at_s, gpus or None, price or None) of the first pool."""
    rows = []
    for j in jobs:
        work = j.get("total_work", 600)
        rows.append(
            {"submitted_s": 0, "max_gpus": 1, **j, "remaining_work": work, "total_work": work}
        )
    p = problem(
        rows,
        pools or [{"pool": "p", "gpus": gpus}],
        rates,
        config={"interval_s": 300, **(config or {})},
        **tables,
    )
    p = dataclasses.replace(p, now_s=float(p.jobs.submitted_s.min(initial=np.inf)))
    at, many, price = (np.array([c[i] for c in changes], dtype=object) for i in range(3))
    return Workload(
        p,
        Changes(
            at.astype(float),
            np.zeros(len(at), dtype=np.int64),
            np.array([-1 if g is None else g for g in many], dtype=np.int64),
            np.array([np.nan if x is None else x for x in price], dtype=float),
        ),
    )
