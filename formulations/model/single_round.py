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
from formulations.model.linear import Bools, Floats, Ints, LinearModel, RowFamily
from formulations.model.rows import FAMILIES, Block


def build_model(instance: Instance) -> LinearModel:
    """Build the LinearModel of an instance; column o is option o of the instance."""
    n = len(instance.value)
    blocks = [family(instance) for family in FAMILIES]
    first = np.concatenate([[0], np.cumsum([len(b.upper) for b in blocks])]).astype(np.int64)
    layers = [layer for b, f in zip(blocks, first, strict=False) for layer in _layers(b, int(f))]
    width = np.zeros(n, dtype=np.int64)
    for _, _, used in layers:
        width += True if used is None else used
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(width, out=start[1:])
    index = np.empty(start[-1], dtype=np.int64)
    coef = np.empty(start[-1])
    at = start[:-1].copy()
    for row, entry, used in layers:
        where = at if used is None else at[used]
        index[where], coef[where] = row, entry
        at += True if used is None else used
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


def _layers(b: Block, first: int) -> Iterator[tuple[Ints, Floats, Bools | None]]:
    """List the model rows and entries (k,) of a block, and the options that have them, (n,).

    None stands for all options. A block may have several entries of an option.
    """
    if not len(b.upper):
        return
    for row in np.atleast_2d(b.row):
        used = (row >= 0) & (b.coef != 0)
        if used.all():
            yield first + row, b.coef, None
        else:
            yield first + row[used], b.coef[used], used
