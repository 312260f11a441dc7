"""How the jobs of a Ray cluster are taken: the settings of a site."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.domain.findings import did_you_mean
from allocator.errors import UsageError

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
    config: Mapping[str, Any] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_settings(given: Mapping[str, Any]) -> RaySettings:
    """Check the settings of a site. Raises UsageError."""
    known = RaySettings.__dataclass_fields__
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f'settings of Ray: no setting "{name}"{did_you_mean(name, known)}'
                f" (known: {', '.join(known)})"
            )
        if name in ("address", "tenant"):
            if not isinstance(value, str) or not value:
                raise UsageError(f"settings of Ray: {name} is a text")
        elif name == "assumed_s":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value <= 0:
                raise UsageError("settings of Ray: assumed_s is a number above 0")
        elif not isinstance(value, Mapping):
            raise UsageError(f"settings of Ray: [{name}] is a table")
    return RaySettings(**given)
