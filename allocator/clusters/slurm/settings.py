"""How the jobs of a Slurm are taken: the settings of a site, and what a job says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.clusters.statements import KEY, accept_fields, find_faults, read_settings
from allocator.domain.findings import did_you_mean
from allocator.domain.schema.columns import POOLS
from allocator.errors import UsageError

MARK = "allocator"  # beginning of the admin comment of jobs that are held for the allocator
WEEK_S = 7 * 24 * 3600.0
CHOICES = {
    "jobs": ("all", "marked"),
    "tenant": ("account", "user", "qos", "partition"),
    "weight": ("equal", "priority"),
}


@dataclass(frozen=True)
class SlurmSettings:
    """State how the jobs of a Slurm are taken.

    Parameters
    ----------
    jobs : str
        "all": every GPU job is decided about; "marked": only those that are held for the
        allocator, and all others count as occupied GPUs.
    tenant : str
        Who is a tenant: "account", "user", "qos" or "partition".
    weight : str
        "equal", or "priority": in proportion to Slurm's priority.
    unlimited_s : float
        Seconds that are left to a job without a time limit.
    config : mapping of str to object
        Settings for config.toml.
    partitions : mapping of str to mapping
        By partition, what jobs say that do not say it themselves.
    pools : mapping of str to mapping
        By pool, further columns of pools.csv, such as price_per_gpu_hour.
    """

    jobs: str = "all"
    tenant: str = "account"
    weight: str = "equal"
    unlimited_s: float = WEEK_S
    config: Mapping[str, Any] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_slurm_settings(given: Mapping[str, Any]) -> SlurmSettings:
    """Check the settings of a site. Raises UsageError."""
    settings = read_settings(SlurmSettings, "Slurm", given, CHOICES)
    columns = [column.name for column in POOLS.columns if not column.required]
    for table, entries in (("partitions", settings.partitions), ("pools", settings.pools)):
        for name, fields in entries.items():
            place = f"settings of Slurm: [{table}.{name}]"
            if not isinstance(fields, Mapping):
                raise UsageError(f"{place} is a table")
            faults = (
                find_faults(fields)
                if table == "partitions"
                else [
                    f'no column "{column}"{did_you_mean(column, columns)}'
                    for column in fields
                    if column not in columns
                ]
            )
            if faults:
                raise UsageError(f"{place}: {faults[0]}")
    return settings


def read_statement(*texts: str) -> tuple[dict[str, Any], list[str]]:
    """Return what a job says of itself, and the faults of that.

    Parameters
    ----------
    *texts : str
        Its comment and its extra field. The first JSON object with the key "allocator" counts;
        texts that are no JSON belong to somebody else.

    Returns
    -------
    tuple of dict and list of str
        Columns of jobs.csv. With any fault nothing of it counts.
    """
    for text in texts:
        if KEY not in text:
            continue
        try:
            said = json.loads(text)
        except ValueError:
            continue
        if isinstance(said, dict) and KEY in said:
            return accept_fields(said[KEY])
    return {}, []
