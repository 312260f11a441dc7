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

An Instance is a round as plain arrays: n options of J jobs, P pools, Q tenants. This module does
not depend on files, speed models or time.

Options that no best plan needs are removed, which never changes the optimum. An option b is dropped
in two cases.

  (a) It alone breaks a row: it needs more GPUs or dollars than the pool, the tenant or the
      budget has.
  (b) Another option a of the same job in the same pool uses no more of any `at most` row, neither
      GPUs nor dollars, and has at least the value of b. Any plan with b stays feasible and loses
      nothing with a in its place. Here a may also be "nothing".

Some options are exempt from (b), because they count for a row of the `at least` kind: options of a
tenant with a guarantee (more GPUs may be needed), `keep` options (they count for the limit on
changes), and options of a job that must run. An option that may get a secondary job is exempt as
well, because it may have more value with it.

On nodes, an option dominates only those that may be on as many nodes: a job of 9 GPUs on two nodes
fits holes of 5 and 4, one of 8 on one node does not. One that is kept dominates none there, because
others may need its nodes.

Three kinds of options dominate no other. The option of a secondary job disappears with its primary
job. An option with a conflicting option, or that is one, is not possible if the other is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from formulations.model import linear
from formulations.model.choices import ChoiceModel, integers
from formulations.model.linear import (
    LEAVING,
    Block,
    Bools,
    Floats,
    Ints,
    RowFamily,
    SparseRows,
    begins_run,
    starts,
)


def no_pairs() -> Ints:
    """Return no pairs of options, (2, 0)."""
    return np.zeros((2, 0), dtype=np.int64)


@dataclass(frozen=True)
class Instance:
    """The arrays that the row families and the bounds need.

    Options lie job by job; the options of job j are start[j] .. start[j+1].

    Attributes
    ----------
    value : (n,)
        Value of each option in the objective.
    job, pool, gpus : (n,)
        Job, pool and number of GPUs of each option.
    cost : (n,)
        US dollars per hour.
    keep : (n,)
        True where the option is what the running job holds now.
    mandatory : (J,)
        True where the job may not be left without an option.
    tenant : (J,)
        Tenant of each job.
    capacity : (P,)
        GPUs of each pool.
    budget : float
        US dollars per hour, inf = no limit.
    quota, tenant_budget : (K,)
        GPUs and US dollars per hour of each quota at most, inf = no limit.
    guarantee : (K,)
        GPUs of each quota at least, 0 = none.
    zone : (P,)
        Number of the region where GPUs may be revoked together, -1 = they are not revoked.
    exposure : (Q,)
        GPUs of each tenant in any one zone at most, inf = no limit.
    least_kept : int
        Least number of `keep` options that are chosen, 0 = no limit on changes.
    jobs, pools, tenants, zones : sequences of str
        Names for row labels.
    rules : tuple of Block
        Rows of other rules, one entry for each kind: what is kept of pools, jobs at once.
    share : (n,) or None
        Share of each of its GPUs that the option takes, None = whole GPUs.
    accounts : (L, Q, P) or None
        Quotas that an option of each tenant in each pool counts for, all different, -1 = none.
        None: quota q is that of tenant q in all pools.
    quotas : sequence of str
        Names of the quotas, where they are not those of tenants.
    common : (K,) or None
        True for quotas of all tenants together, None = there are none.
    colocations : (2, k)
        Options of secondary jobs, ascending, and the option of a primary job that each needs; it
        runs on the GPUs of all that it needs, and takes the GPUs that they lack.
    takeovers : (2, k)
        Options, ascending, and an option of another job that excludes each.
    """

    value: Floats
    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    cost: Floats
    keep: Bools
    mandatory: Bools
    tenant: Ints
    capacity: Ints
    budget: float
    quota: Floats
    tenant_budget: Floats
    guarantee: Ints
    zone: Ints
    exposure: Floats
    least_kept: int
    jobs: Sequence[str]
    pools: Sequence[str]
    tenants: Sequence[str]
    zones: Sequence[str]
    rules: tuple[Block, ...] = ()
    share: Floats | None = None
    accounts: Ints | None = None
    quotas: Sequence[str] = ()
    common: Bools | None = None
    colocations: Ints = field(default_factory=no_pairs)
    takeovers: Ints = field(default_factory=no_pairs)

    @cached_property
    def primary(self) -> Ints:
        """The option of the first primary job that each option of a secondary job needs, (n,).

        It is -1 for all other options.
        """
        out = np.full(len(self.job), -1)
        secondary, primary = self.colocations[:, ::-1]  # so that the first one is written last
        out[secondary] = primary
        return out

    @property
    def quota_names(self) -> Sequence[str]:
        """Names of the K quotas."""
        return self.tenants if self.accounts is None else self.quotas

    @cached_property
    def account(self) -> Ints:
        """Quotas that each option counts for, (L, n), -1 = none."""
        return self.account_of(self.tenant[self.job], self.pool)

    def account_of(self, tenant: Ints, pool: Ints) -> Ints:
        """Return the quotas that GPUs of pools count for, (L, n), -1 = none.

        tenant and pool have the shape (n,).
        """
        return tenant[None] if self.accounts is None else self.accounts[:, tenant, pool]

    def quotas_of(self, tenant: int) -> Ints:
        """Return the quotas that options of a tenant may count for, its own ones first."""
        if self.accounts is None:
            return np.array([tenant], dtype=np.int64)
        listed = dict.fromkeys(self.accounts[:, tenant].ravel().tolist())
        return np.array([k for k in listed if k >= 0], dtype=np.int64)

    @cached_property
    def is_guaranteed(self) -> Bools:
        """True for options that count for a guarantee, (n,)."""
        if not (self.guarantee > 0).any():
            return np.zeros(len(self.job), dtype=bool)
        return np.asarray(np.append(self.guarantee > 0, False)[self.account].any(axis=0))

    def usage(self, option: Ints, amount: Ints | Floats) -> Floats:
        """Return the sum of the amounts (k,) of some options (k,) in each quota, (K,)."""
        used = np.zeros(len(self.quota))
        for row in self.account[:, option]:
            on = row >= 0
            used += np.bincount(row[on], amount[on], len(used))
        return used

    @cached_property
    def exposed(self) -> Ints:
        """Number q Z + z of the tenant and the zone of each option, (n,), -1 = no limit applies."""
        if not np.isfinite(self.exposure).any():
            return np.full(len(self.job), -1)
        q = self.tenant[self.job]
        z = self.zone[self.pool]
        limited = (z >= 0) & np.isfinite(self.exposure[q])
        return np.where(limited & (self.primary < 0), q * len(self.zones) + z, -1)

    @cached_property
    def held(self) -> Ints:
        """GPUs that each option takes, (n,).

        GPUs of two colocated jobs count once, for the primary job.
        """
        secondary, primary = self.colocations
        shared = np.bincount(secondary, self.gpus[primary], len(self.gpus))
        return self.gpus - shared.astype(np.int64)

    @cached_property
    def load(self) -> Ints | Floats:
        """GPUs of its pool that each option takes, (n,); a share of a GPU counts as a share."""
        return self.held if self.share is None else self.held * self.share

    def take(self, option: Ints) -> Instance:
        """Return the instance with only the given options, in the same order.

        The options of primary jobs that given options of secondary jobs need must be among them.
        Conflicting options that are not given are forgotten.
        """
        job = self.job[option]

        place = np.full(len(self.job), -1)
        place[option] = np.arange(len(option))

        def take_pairs(pairs: Ints) -> Ints:
            new = place[pairs]
            return new[:, (new >= 0).all(axis=0)]

        return replace(
            self,
            rules=tuple(rows.take(option) for rows in self.rules),
            share=None if self.share is None else self.share[option],
            value=self.value[option],
            start=starts(job, len(self.start) - 1),
            job=job,
            pool=self.pool[option],
            gpus=self.gpus[option],
            cost=self.cost[option],
            keep=self.keep[option],
            colocations=take_pairs(self.colocations),
            takeovers=take_pairs(self.takeovers),
        )


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


def find_needed_options(
    instance: Instance, can_be_primary: Bools | None = None, most_nodes: Ints | None = None
) -> Bools:
    """Find the options that may be part of a best plan.

    Parameters
    ----------
    instance : Instance
        Its options are sorted by job, pool and GPUs; those of secondary jobs come last in their
        job.
    can_be_primary : (n,), optional
        True for options that may get a secondary job later.
    most_nodes : (n,), optional
        On how many nodes each option may be, where plans are on nodes; 0 = any number.

    Returns
    -------
    needed : (n,)
        True for options that may be part of a best plan.
    """
    i = instance
    fits = find_feasible_options(instance)
    fixed = i.mandatory[i.job] | i.keep
    open_ = ~fixed & ~i.is_guaranteed
    secondary = i.primary >= 0
    vain = np.where(secondary, ~fixed, open_) & (i.value <= 0)
    primaries = (
        np.zeros(len(i.job), dtype=bool) if can_be_primary is None else can_be_primary.copy()
    )
    needs, needed = i.colocations
    primaries[needed[~vain[needs]]] = True
    stays = np.where(
        i.mandatory[i.job],
        True,
        fits & ~((vain | (open_ & _find_dominated(i, fits, most_nodes))) & ~primaries),
    )
    stays[needs[~stays[needed]]] = False
    return stays


def find_feasible_options(instance: Instance) -> Bools:
    """Find the options that break no `at most` row in an otherwise empty plan, (n,)."""
    i = instance
    tenant = i.tenant[i.job]
    fits = (i.held <= i.capacity[i.pool]) & (i.cost <= i.budget * (1 + 1e-9) + 1e-9)
    if np.isfinite(i.quota).any() or np.isfinite(i.tenant_budget).any():
        for row in i.account:
            fits &= i.held <= np.append(i.quota, np.inf)[row]
            fits &= i.cost <= np.append(i.tenant_budget * (1 + 1e-9) + 1e-9, np.inf)[row]
    if i.zones:
        fits &= (i.exposed < 0) | (i.held <= i.exposure[tenant])
    for rows in (r for r in i.rules if r.kind != LEAVING):  # such an option may wait for nodes
        for row in rows.layers:
            fits &= (rows.coef == 0) | (rows.coef <= np.append(rows.upper, np.inf)[row])
    return fits


def _find_dominated(i: Instance, fits: Bools, most_nodes: Ints | None) -> Bools:
    """Find the options that a smaller option of the same job and pool dominates, (n,).

    The smaller one is feasible and has at least the same value.
    """
    n = len(i.job)
    beaten = np.zeros(n, dtype=bool)
    if n == 0:
        return beaten
    new = begins_run(i.job, i.pool) | (i.primary >= 0)
    new[1:] |= i.cost[1:] < i.cost[:-1]  # more GPUs may need less memory, and cost less
    for rows in i.rules:  # more GPUs may end before a reservation begins
        for row in rows.layers:
            amount = np.where(row >= 0, rows.coef, 0.0)
            new[1:] |= amount[1:] < amount[:-1]
    counts = fits
    if most_nodes is not None:
        new[1:] |= most_nodes[1:] != most_nodes[:-1]
        counts = fits & ~i.keep
    first = np.flatnonzero(new)
    position = np.arange(n) - np.repeat(first, np.diff(first, append=n))
    # an option with a conflicting option, or that is one, may not be available
    option, other = i.takeovers
    if len(option):
        counts = counts.copy()
        counts[option] = counts[other] = False
    # the running maximum inside each (job, pool), of twice as many options in each step
    best = np.where(counts, i.value, -np.inf)
    step, last = 1, int(position.max())
    while step <= last:
        before = np.where(position[step:] >= step, best[:-step], -np.inf)
        np.maximum(best[step:], before, out=best[step:])
        step *= 2
    beaten[1:] = (position[1:] > 0) & (best[:-1] >= i.value[1:])
    return beaten
