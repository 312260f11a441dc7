"""A round as plain arrays: n options of J jobs, P pools, Q tenants. Knows neither files nor
models nor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from formulations.model.headroom import Headroom
from formulations.model.linear import Bools, Floats, Ints


@dataclass(frozen=True)
class Instance:
    """What the row families and the bound need; options lie job by job, options of job j are
    start[j] .. start[j+1].

    value (n,) worth of an option; job (n,); pool (n,); gpus (n,); cost (n,) dollars per hour; keep
    (n,) True where the option is what the running job holds now; host (n,): the option of another
    job on whose GPUs the job runs as a second one (a guest: it takes no GPUs itself and needs that
    option), -1 = it takes its own; rival (n,): an option of another job that may not be chosen with
    it, -1 = none. must (J,): the job may not be left without an option. tenant (J,). capacity (P,)
    GPUs; budget dollars per hour, inf = none; quota (Q,) GPUs, inf = none; tenant_budget (Q,);
    guarantee (Q,) least GPUs, 0 = none; zone (P,): number of the region where GPUs may be revoked
    together, -1 = they are not revoked; exposure (Q,) most GPUs in any one zone, inf = no limit;
    least_kept: at least so many `keep` options are chosen, 0 = no limit on change. jobs, pools,
    tenants, zones: names for row labels. headroom: GPUs kept for interactive jobs, None = none.
    """

    value: Floats
    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    cost: Floats
    keep: Bools
    primary: Ints
    conflicting_option: Ints
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
    headroom: Headroom | None = None

    @cached_property
    def exposed(self) -> Ints:
        """(n,) q Z + z of the tenant and the zone of an option, -1 where nothing limits it."""
        q, z = self.tenant[self.job], self.zone[self.pool]
        limited = (z >= 0) & np.isfinite(self.exposure[q])
        return np.where(limited & (self.primary < 0), q * len(self.zones) + z, -1)

    @cached_property
    def held(self) -> Ints:
        """(n,) GPUs that an option takes: what two jobs run on counts once, for the host."""
        return np.where(self.primary < 0, self.gpus, 0)

    def take(self, option: Ints) -> Instance:
        """The instance with only the given options, which stay in order; those of a guest's host
        must be among them.
        """
        # the last place is that of -1
        job, place = self.job[option], np.full(len(self.job) + 1, -1)
        place[option] = np.arange(len(option))
        kept = None if self.headroom is None else self.headroom.take(option)
        return replace(
            self,
            headroom=kept,
            value=self.value[option],
            start=np.searchsorted(job, np.arange(len(self.start))),
            job=job,
            pool=self.pool[option],
            gpus=self.gpus[option],
            cost=self.cost[option],
            keep=self.keep[option],
            primary=place[self.primary[option]],
            conflicting_option=place[self.conflicting_option[option]],
        )
