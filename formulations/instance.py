"""A round as plain arrays: n options of J jobs, P pools, Q tenants. Knows neither files nor models nor time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.linear import Bools, Floats, Ints


@dataclass(frozen=True)
class Instance:
    """What the row families and the bound need; options lie job by job, options of job j are start[j] .. start[j+1].

    value (n,) worth of an option; job (n,); pool (n,); gpus (n,); cost (n,) dollars per hour; keep (n,) True where
    the option is what the running job holds now.
    must (J,): the job may not be left without an option. tenant (J,).
    capacity (P,) GPUs; budget dollars per hour, inf = none; quota (Q,) GPUs, inf = none; tenant_budget (Q,);
    guarantee (Q,) least GPUs, 0 = none; least_kept: at least so many `keep` options are chosen, 0 = no limit on change.
    jobs, pools, tenants: names for row labels.
    """

    value: Floats
    start: Ints
    job: Ints
    pool: Ints
    gpus: Ints
    cost: Floats
    keep: Bools
    must: Bools
    tenant: Ints
    capacity: Ints
    budget: float
    quota: Floats
    tenant_budget: Floats
    guarantee: Ints
    least_kept: int
    jobs: Sequence[str]
    pools: Sequence[str]
    tenants: Sequence[str]
