"""The single round: one option per job within the coupling rows.

This is a multiple-choice multi-dimensional knapsack.

    max  sum_o v_o x_o
    s.t. sum_{o of j} x_o <= 1 (= 1 if j must run)        for every job j
         capacity, budget, quota, tenant_budget, guarantee, churn, exposure, lending, colocation,
         takeover (formulations/model/rows.py), and what is kept of pools, or jobs at once
         x_o in {0, 1}

The model follows Hu et al. 2021, "Characterization and prediction of deep learning workloads in
large-scale GPU datacenters" (SC 2021), as far as the paper gives it, with the rules of
docs/reference/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from formulations.model.block import Block
from formulations.model.choices import ChoiceModel, integers
from formulations.model.instance import Instance
from formulations.model.linear import Bools, Floats, Ints, RowFamily
from formulations.model.rows import list_blocks
from formulations.model.sparse_rows import SparseRows


def build_model(instance: Instance) -> ChoiceModel:
    """Build the model of an instance; column o is option o of the instance."""
    n = len(instance.value)
    blocks = list_blocks(instance)
    first = np.concatenate([[0], np.cumsum([len(b.upper) for b in blocks])]).astype(np.int64)
    groups = len(instance.mandatory)
    layers = [
        layer
        for b, f in zip(blocks[1:], first[1:-1].tolist(), strict=True)
        for layer in _layers(b, f - groups)
    ]
    named = tuple(RowFamily(b.kind, int(f), b.labels) for b, f in zip(blocks, first, strict=False))
    return ChoiceModel.of(
        instance.value,
        np.concatenate([b.lower for b in blocks]),
        np.concatenate([b.upper for b in blocks]),
        named,
        instance.start,
        instance.job,
        _matrix(layers, n, int(first[-1]) - groups),
    )


def _matrix(layers: Sequence[tuple[Ints, Floats, Bools | None]], n: int, rows: int) -> SparseRows:
    """Return the entries of all layers by option, (n, rows)."""
    shared = sum(used is None for _, _, used in layers)
    if shared == len(layers):
        entries = n * shared
        indptr = np.arange(n + 1, dtype=integers(entries)) * shared
    else:
        width = np.full(n, shared)
        for _, _, used in layers:
            if used is not None:
                width += used
        entries = int(width.sum())
        indptr = np.zeros(n + 1, dtype=integers(entries))
        np.cumsum(width, out=indptr[1:])
    index = np.empty(entries, dtype=indptr.dtype)
    coef = np.empty(entries)
    at = indptr[:-1].copy()
    for k, (row, entry, used) in enumerate(layers):
        where: Any = at if used is None else at[used]
        if shared == len(layers):
            where = slice(k, None, shared)
        index[where], coef[where] = row, entry
        at += True if used is None else used
    return SparseRows(coef, index, indptr, (n, rows))


def _layers(b: Block, first: int) -> Iterator[tuple[Ints, Floats, Bools | None]]:
    """List the coupling rows and entries (k,) of a block, and the options that have them, (n,).

    None stands for all options. A block may have several entries of an option.
    """
    for row in b.layers:
        used = (row >= 0) & (b.coef != 0)
        if used.all():
            yield first + row, b.coef, None
        else:
            yield first + row[used], b.coef[used], used
