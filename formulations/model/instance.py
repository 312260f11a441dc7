"""A round as plain arrays: n options of J jobs, P pools, Q tenants.

This module does not depend on files, speed models or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from formulations.model.linear import Block, Bools, Floats, Ints
from formulations.model.sparse_rows import starts


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
