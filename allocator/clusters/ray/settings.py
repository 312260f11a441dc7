"""How the jobs of a Ray cluster are taken: the settings of a site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.clusters.adapter import Record

HOUR_S = 3600.0


@dataclass(frozen=True)
class RaySettings:
    """State where a Ray cluster is, and how its jobs are taken.

    Parameters
    ----------
    address : str, optional
        Address of the dashboard; default: $RAY_API_SERVER_ADDRESS, or port 8265 of this machine.
    tenant : str
        Key of the metadata of a job that names its tenant.
    assumed_s : float
        Seconds that a job takes which does not state its work.
    config : mapping of str to object
        Settings for config.toml.
    pools : mapping of str to mapping
        By pool, further columns of pools.csv, such as price_per_gpu_hour.
    """

    address: str | None = None
    tenant: str = "tenant"
    assumed_s: float = HOUR_S
    config: Record = field(default_factory=dict)
    pools: Mapping[str, Record] = field(default_factory=dict)
