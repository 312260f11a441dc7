"""How the jobs of a Slurm are taken: the settings of a site, and what a job says of itself.

A job says its sizes, its model and its work as JSON, with which it can also be submitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from allocator.clusters.statements import KEY, accept_fields, find_faults, read_settings
from allocator.domain.findings import did_you_mean
from allocator.domain.schema.columns import POOLS
from allocator.errors import UsageError
from allocator.objects import Json, Record

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
    config: Record = field(default_factory=dict)
    partitions: Mapping[str, Record] = field(default_factory=dict)
    pools: Mapping[str, Record] = field(default_factory=dict)


def read_slurm_settings(given: Record) -> SlurmSettings:
    """Check the settings of a site. Raises UsageError."""
    settings = read_settings(SlurmSettings, "Slurm", given, CHOICES)
    columns = [column.name for column in POOLS.columns if not column.required]
    for table, entries in (("partitions", settings.partitions), ("pools", settings.pools)):
        for name, fields in entries.items():
            place = f"settings of Slurm: [{table}.{name}]"
            if not isinstance(fields, Mapping):
                raise UsageError(f"{place} is a table")
            strange = [column for column in fields if column not in columns]
            faults = [f'no column "{column}"{did_you_mean(column, columns)}' for column in strange]
            for fault in find_faults(fields) if table == "partitions" else faults:
                raise UsageError(f"{place}: {fault}")
    return settings


def read_statement(*texts: str) -> tuple[Json, list[str]]:
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
        try:
            document = json.loads(text) if KEY in text else None
        except ValueError:
            continue
        if isinstance(document, dict) and KEY in document:
            return accept_fields(document[KEY])
    return {}, []


COMMENT = "--comment"


def write_sbatch(fields: Record, options: Sequence[str]) -> list[str]:
    """Return the call of sbatch that submits a job, with these fields in its comment.

    Parameters
    ----------
    fields : mapping of str to object
        Columns of jobs.csv that the job states.
    options : sequence of str
        Options of sbatch and the script, unchanged.

    Raises
    ------
    UsageError
        If the fields make no sense, nothing asks for GPUs by node, or the comment is in use.

    Examples
    --------
    >>> write_sbatch({"max_gpus": 4}, ["--gres=gpu:2", "train.sh"])
    ['sbatch', '--comment={"allocator":{"max_gpus":4}}', '--gres=gpu:2', 'train.sh']
    """
    faults = find_faults(fields)
    if faults:
        raise UsageError(f"submit-slurm: {faults[0]}")
    if any(option.partition("=")[0] == COMMENT for option in options):
        raise UsageError(
            "submit-slurm: the comment says what the job can do; leave --comment to it"
        )
    statement = json.dumps({KEY: dict(fields)}, separators=(",", ":"))
    return ["sbatch", f"{COMMENT}={statement}", *options]


def read_plugin() -> str:
    """Return the text of the job_submit plugin, which says how it is installed."""
    return files(__package__).joinpath("job_submit.lua").read_text(encoding="utf-8")
