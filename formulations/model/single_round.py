"""The single round: one option per job within the coupling rows.

This is a multiple-choice multi-dimensional knapsack.

    max  sum_o v_o x_o
    s.t. sum_{o of j} x_o <= 1 (= 1 if j must run)        for every job j
         capacity, idle_headroom, headroom, budget, quota, tenant_budget,
         guarantee, churn, exposure, colocation, takeover (formulations/model/rows.py)
         x_o in {0, 1}

The model follows Hu et al. 2021, "Characterization and prediction of deep learning workloads in
large-scale GPU datacenters" (SC 2021), as far as the paper gives it, with the rules of
docs/reference/rules.md.
"""

from __future__ import annotations

import numpy as np

from formulations.model.instance import Instance
from formulations.model.linear import Bools, LinearModel, RowFamily
from formulations.model.rows import FAMILIES, Block


def build_model(instance: Instance) -> LinearModel:
    """Build the LinearModel of an instance; column o is option o of the instance."""
    n = len(instance.value)
    blocks = [family(instance) for family in FAMILIES]
    first = np.concatenate([[0], np.cumsum([len(b.upper) for b in blocks])]).astype(np.int64)
    uses = [_uses(b) for b in blocks]
    width = np.zeros(n, dtype=np.int64)
    for used in uses:
        width += used if used is not None else 0
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(width, out=start[1:])
    index, coef = np.empty(start[-1], dtype=np.int64), np.empty(start[-1])
    at = start[:-1].copy()
    for b, used, f in zip(blocks, uses, first, strict=False):
        if used is None:
            continue
        if used.all():
            index[at], coef[at] = f + b.row, b.coef
        else:
            where = at[used]
            index[where], coef[where] = f + b.row[used], b.coef[used]
        at += used
    named = tuple(RowFamily(b.kind, int(f), b.labels) for b, f in zip(blocks, first, strict=False))
    return LinearModel(
        value=instance.value,
        col_lower=np.zeros(n),
        col_upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        start=start,
        index=index,
        coef=coef,
        lower=np.concatenate([b.lower for b in blocks]),
        upper=np.concatenate([b.upper for b in blocks]),
        families=named,
    )


def _uses(b: Block) -> Bools | None:
    """Find the options with an entry in the block, (n,); None where it has no rows."""
    return (b.row >= 0) & (b.coef != 0) if len(b.upper) else None
