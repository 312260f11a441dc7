"""The single round: one option per job within the coupling rows.

This is a multiple-choice multi-dimensional knapsack.

    max  sum_o v_o x_o
    s.t. sum_{o of j} x_o <= 1 (= 1 if j must run)        for every job j
         capacity, budget, quota, tenant_budget, guarantee, churn, exposure, lending, colocation,
         takeover, and what is kept of pools, or jobs at once
         x_o in {0, 1}

A hard rule is a family of rows: it takes an Instance and returns one block of rows. A block lists
for every option the rows that the option uses, `row` (n,) or (L, n), -1 = none, and the
coefficient, `coef` (n,). Letters as in formulations/README.md: x_o = 1 if option o is chosen, k_o
GPUs, c_o dollars per hour.

The model follows Hu et al. 2021, "Characterization and prediction of deep learning workloads in
large-scale GPU datacenters" (SC 2021), as far as the paper gives it, with the rules of
docs/reference/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from formulations.model import linear
from formulations.model.choices import ChoiceModel, integers
from formulations.model.instance import Instance
from formulations.model.linear import Block, Bools, Floats, Ints, RowFamily
from formulations.model.sparse_rows import SparseRows


def at_most_one(i: Instance) -> Block:
    """Build sum_{o of j} x_o <= 1 for every job j, = 1 where the job must run."""
    upper = np.ones(len(i.mandatory))
    return Block(
        linear.AT_MOST_ONE,
        i.jobs,
        i.job,
        np.ones(len(i.job)),
        np.where(i.mandatory, 1.0, -np.inf),
        upper,
    )


def capacity(i: Instance) -> Block:
    """Build sum_{o in p} k_o x_o <= capacity_p for every pool p; k_o may be a share of a GPU."""
    return Block.at_most(linear.CAPACITY, i.pools, i.pool, i.load, i.capacity.astype(float))


def budget(i: Instance) -> Block:
    """Build sum_o c_o x_o <= budget; no row without a budget."""
    row = np.where(i.cost > 0, 0, -1)
    return Block.at_most(linear.BUDGET, ("",), row, i.cost, np.array([i.budget]))


def quota(i: Instance) -> Block:
    """Build sum_{o of q} k_o x_o <= max_gpus_q for every quota q of a tenant that has one."""
    return _quota_block(linear.QUOTA, i, is_common=False)


def lending(i: Instance) -> Block:
    """Build sum_{o in g} k_o x_o <= GPUs of g that are lent, for pools g of which some are not."""
    return _quota_block(linear.LENDING, i, is_common=True)


def _quota_block(kind: str, i: Instance, is_common: bool) -> Block:
    common = np.zeros(len(i.quota), dtype=bool) if i.common is None else i.common
    most = np.where(common == is_common, i.quota, np.inf)
    return Block.at_most(kind, i.quota_names, i.account, i.held, most)


def tenant_budget(i: Instance) -> Block:
    """Build sum_{o of q} c_o x_o <= budget_per_hour_q for every quota q that has one."""
    row = np.where(i.cost > 0, i.account, -1)
    return Block.at_most(linear.TENANT_BUDGET, i.quota_names, row, i.cost, i.tenant_budget)


def guarantee(i: Instance) -> Block:
    """Build sum_{o of q} k_o x_o >= u_q for every quota q with a guarantee.

    u_q is the usable part of the guarantee (formulations/model/guarantee.py).
    """
    block = Block(
        linear.GUARANTEE,
        i.quota_names,
        i.account,
        i.held.astype(float),
        i.guarantee.astype(float),
        np.full(len(i.quota), np.inf),
    )
    return block.keep(i.guarantee > 0)


def churn(i: Instance) -> Block:
    """Build sum_{o keeps} x_o >= running jobs - max_changes; no row where every job may change."""
    if i.least_kept <= 0:
        return Block.empty(linear.CHURN)
    return Block(
        linear.CHURN,
        ("",),
        np.where(i.keep, 0, -1),
        np.ones(len(i.keep)),
        np.array([float(i.least_kept)]),
        np.array([np.inf]),
    )


def exposure(i: Instance) -> Block:
    """Build sum_{o of q in z} k_o x_o <= exposure_q for tenants q with a limit and zones z."""
    zones = len(i.zones)
    limit = np.repeat(i.exposure, zones)
    labels = [exposure_label(name, zone) for name in i.tenants for zone in i.zones]
    return Block.at_most(linear.EXPOSURE, labels, i.exposed, i.held, limit)


def exposure_label(tenant: str, zone: str) -> str:
    """Return the label of the row of a tenant and a zone."""
    return f'{tenant}" in region "{zone}'


def colocation(i: Instance) -> Block:
    """Build sum_{secondary options g of h} x_g - x_h <= 0 for every option h that may have one.

    An option has at most one secondary job, which runs only where the option is chosen.
    """
    secondary, primary = i.colocations
    if not len(secondary):
        return Block.empty(linear.COLOCATION)
    primaries, number = np.unique(primary, return_inverse=True)
    use = np.full(len(i.job), -1.0)
    use[secondary] = 1.0
    row, limit = _rows_of_pairs(i, i.colocations, number), np.zeros(len(primaries))
    return Block.at_most(linear.COLOCATION, _name_options(i, primaries), row, use, limit)


def takeover(i: Instance) -> Block:
    """Build sum_o x_o + x_r <= 1 for every option r, over the options o with which it conflicts.

    A secondary job takes over the GPUs only where its primary job leaves them. The options o are of
    one secondary job.
    """
    option, other = i.takeovers
    if not len(option):
        return Block.empty(linear.TAKEOVER)
    _, first, number = np.unique(other, return_index=True, return_inverse=True)
    own = option[np.sort(first)]
    # one row for each option that excludes options of other jobs; rows are in the order in which
    # the first of the excluded options stand
    number = np.argsort(np.argsort(first, kind="stable"), kind="stable")[number]
    row = _rows_of_pairs(i, i.takeovers, number)
    use, limit = np.ones(len(i.job)), np.ones(len(own))
    return Block.at_most(linear.TAKEOVER, _name_options(i, own), row, use, limit)


def _rows_of_pairs(i: Instance, pairs: Ints, number: Ints) -> Ints:
    """Return the rows that options use, (L, n), if both of pair k (2, k) use row number[k]."""
    option, other = pairs
    layer = np.arange(len(option)) - np.searchsorted(option, option)
    row = np.full((int(layer.max(initial=0)) + 1, len(i.job)), -1)
    row[layer, option] = number
    row[0, other] = number
    return row


def _name_options(i: Instance, options: Ints) -> list[str]:
    parts = (part[options].tolist() for part in (i.job, i.gpus, i.pool))
    return [colocation_label(i.jobs[j], k, i.pools[p]) for j, k, p in zip(*parts, strict=True)]


def colocation_label(job: str, gpus: int, pool: str) -> str:
    """Return the label of the row of an option of a primary job, or of one that takes over GPUs."""
    return f'{job}" on {gpus} GPUs of "{pool}'


FAMILIES = (
    at_most_one,
    capacity,
    budget,
    quota,
    tenant_budget,
    guarantee,
    churn,
    exposure,
    lending,
    colocation,
    takeover,
)


def list_blocks(i: Instance) -> list[Block]:
    """Return the rows of all families, those of jobs first and those of pools after them."""
    first, second, *others = (family(i) for family in FAMILIES)
    return [first, second, *i.rules, *others]


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
