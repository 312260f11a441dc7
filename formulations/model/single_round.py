"""The single round: one option per job within the coupling rows.

This is a multiple-choice multi-dimensional knapsack.

    max  sum_o v_o x_o
    s.t. sum_{o of j} x_o <= 1 (= 1 if j must run)        for every job j
         capacity, idle_headroom, headroom, budget, quota, tenant_budget,
         guarantee, churn, exposure, lending, colocation, takeover (formulations/model/rows.py)
         x_o in {0, 1}

The model follows Hu et al. 2021, "Characterization and prediction of deep learning workloads in
large-scale GPU datacenters" (SC 2021), as far as the paper gives it, with the rules of
docs/reference/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formulations.model.instance import Instance
from formulations.model.linear import Bools, Ints, LinearModel, RowFamily
from formulations.model.rows import FAMILIES, Block


def build_model(instance: Instance) -> LinearModel:
    """Build the LinearModel of an instance; column o is option o of the instance."""
    n = len(instance.value)
    blocks = [family(instance) for family in FAMILIES]
    first = np.concatenate([[0], np.cumsum([len(b.upper) for b in blocks])]).astype(np.int64)
    layers = [
        (int(f) + row[used], b.coef[used], used)
        for b, f in zip(blocks, first, strict=False)
        for row, used in _layers(b)
    ]
    width = np.zeros(n, dtype=np.int64)
    for _, _, used in layers:
        width += used
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(width, out=start[1:])
    index, coef = np.empty(start[-1], dtype=np.int64), np.empty(start[-1])
    at = start[:-1].copy()
    for row, entry, used in layers:
        where = at[used]
        index[where], coef[where] = row, entry
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


def _layers(b: Block) -> Iterator[tuple[Ints, Bools]]:
    """List rows (n,) of a block with the options that have an entry there, (n,)."""
    if len(b.upper):
        for row in np.atleast_2d(b.row):
            yield row, (row >= 0) & (b.coef != 0)
