"""How the jobs of a Slurm are taken: the settings of a site, and what a job says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.clusters.statements import KEY, find_faults, is_number
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


def read_settings(given: Mapping[str, Any]) -> SlurmSettings:
    """Check the settings of a site. Raises UsageError."""
    known = SlurmSettings.__dataclass_fields__
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f'settings of Slurm: no setting "{name}"{did_you_mean(name, known)}'
                f" (known: {', '.join(known)})"
            )
        _check_setting(name, value)
    return SlurmSettings(**given)


def _check_setting(name: str, value: Any) -> None:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise UsageError(f"settings of Slurm: {name} is one of {', '.join(CHOICES[name])}")
    elif name == "unlimited_s":
        if not is_number(value) or value <= 0:
            raise UsageError("settings of Slurm: unlimited_s is a number above 0")
    elif not isinstance(value, Mapping):
        raise UsageError(f"settings of Slurm: [{name}] is a table")
    elif name == "partitions":
        for partition, fields in value.items():
            _check_partition(partition, fields)
    elif name == "pools":
        for pool, columns in value.items():
            _check_pool(pool, columns)


def _check_partition(partition: str, fields: Any) -> None:
    place = f"settings of Slurm: [partitions.{partition}]"
    if not isinstance(fields, Mapping):
        raise UsageError(f"{place} is a table")
    faults = find_faults(fields)
    if faults:
        raise UsageError(f"{place}: {faults[0]}")


def _check_pool(pool: str, columns: Any) -> None:
    known = [column.name for column in POOLS.columns if not column.required]
    place = f"settings of Slurm: [pools.{pool}]"
    if not isinstance(columns, Mapping):
        raise UsageError(f"{place} is a table")
    for name in columns:
        if name not in known:
            raise UsageError(f'{place}: no column "{name}"{did_you_mean(name, known)}')


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
            fields = said[KEY]
            if not isinstance(fields, dict):
                return {}, [f'"{KEY}" is not a JSON object']
            faults = find_faults(fields)
            return ({} if faults else dict(fields)), faults
    return {}, []
