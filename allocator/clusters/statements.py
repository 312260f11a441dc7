"""What a job of a cluster says of itself: columns of jobs.csv, and the source of its progress."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any, TypeVar

from allocator.domain.findings import did_you_mean
from allocator.domain.schema.cells import parse_value, text_of
from allocator.domain.schema.columns import JOBS, Column, ColumnKind
from allocator.errors import UsageError
from allocator.io.progress_sources import FIELDS, Progress, as_variables, read_source
from allocator.objects import Json, Record

KEY = "allocator"  # of the JSON object in which a job states its fields
JOB_FIELDS = (  # columns of jobs.csv that a job may state
    "model",
    "total_work",
    "remaining_work",
    "min_gpus",
    "max_gpus",
    "sizes",
    "weight",
    "deadline_s",
    "preemptible",
    "restart_s",
    "resizes_left",
    "memory_gb",
    "checkpoint_s",
    "checkpoint_every_s",
    "synchronous",
    "placement",
    "target_loss",
)
CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
Settings = TypeVar("Settings")
LEAST_SHARE = 1e-3  # of its work that a running job is taken to have left


def find_faults(fields: Record) -> list[str]:
    """Return what is wrong with what a job or a partition states.

    Parameters
    ----------
    fields : mapping of str to object
        Columns of jobs.csv, and the source of the job's progress.
    """
    faults = []
    for name, value in fields.items():
        if name not in JOB_FIELDS and name not in FIELDS:
            faults.append(f'no parameter "{name}"{did_you_mean(name, (*JOB_FIELDS, *FIELDS))}')
        elif not (isinstance(value, str) if name in FIELDS else _fits(JOBS.column(name), value)):
            faults.append(f"{name} cannot be {json.dumps(value)[:40]}")
    low = fields.get("min_gpus", 1)
    high = fields.get("max_gpus", math.inf)
    if not faults and low > high:
        faults.append(f"min_gpus {low} is above max_gpus {high}")
    if not faults:
        try:
            read_source(as_variables(fields))
        except UsageError as error:
            faults.append(str(error))
    return faults


def accept_fields(said: Any) -> tuple[Json, list[str]]:
    """Return what a job states, if it has no fault, and its faults."""
    if not isinstance(said, dict):
        return {}, ["it is no JSON object"]
    faults = find_faults(said)
    return ({} if faults else said), faults


def read_settings(
    kind: type[Settings], system: str, given: Record, choices: Mapping[str, Sequence[str]] = {}
) -> Settings:
    """Return the settings of a site, by the defaults of their dataclass.

    Parameters
    ----------
    kind : type
        Dataclass with texts, numbers above 0 and tables.
    system : str
        What messages call the cluster.
    given : mapping of str to object
        The settings.
    choices : mapping of str to sequence of str
        Texts that count, by name.

    Raises
    ------
    UsageError
        For settings that make no sense.
    """
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    place = f"settings of {system}:"
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f'{place} no setting "{name}"{did_you_mean(name, known)}'
                f" (known: {', '.join(known)})"
            )
        usual = known[name].default
        if name in choices:
            if value not in choices[name]:
                raise UsageError(f"{place} {name} is one of {', '.join(choices[name])}")
        elif usual is MISSING:
            if not isinstance(value, Mapping):
                raise UsageError(f"{place} [{name}] is a table")
        elif isinstance(usual, float):
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise UsageError(f"{place} {name} is a number above 0")
        elif not isinstance(value, str) or not value:
            raise UsageError(f"{place} {name} is a text")
    return kind(**given)


def clean(text: str, otherwise: str = "unnamed") -> str:
    """Return a text of a user without control characters, or `otherwise` if nothing is left."""
    return CONTROL.sub(" ", text).strip() or otherwise


def take_work(said: Json, unstated: float) -> Json:
    """Take the work of a job out of what it says; return it as columns."""
    total, left = said.pop("total_work", None), said.pop("remaining_work", None)
    if left is None:
        left = unstated if total is None else total
    return {"remaining_work": left, "total_work": None if total is None else max(total, left)}


def take_sizes(said: Json, asked: int) -> tuple[int, int, list[int]] | None:
    """Take the sizes of a job out of what it says: the least, the most, and those it lists.

    `asked` are the GPUs that it asks for. None: it states none.
    """
    low, high, sizes = (said.pop(name, None) for name in ("min_gpus", "max_gpus", "sizes"))
    if (low, high, sizes) == (None, None, None):
        return None
    low = low or (min(sizes) if sizes else min(asked, high or asked))
    return low, high or max([*(sizes or ()), asked, low]), sizes or []


def keep_size(gpus: int) -> Json:
    """Return the sizes of a job that has one size only."""
    return {"min_gpus": gpus, "max_gpus": gpus, "requested_gpus": gpus, "sizes": [gpus]}


def merge(defaults: Record, said: Record) -> Json:
    """Return what a job states, with the defaults of its partition for what it does not state.

    A source of progress that the job states replaces all of that of the partition.

    Examples
    --------
    >>> merge({"progress_log": "(?P<step>1)", "weight": 2}, {"progress_url": "http://a/"})
    {'weight': 2, 'progress_url': 'http://a/'}
    """
    has_source = not FIELDS.keys().isdisjoint(said)
    kept = {name: x for name, x in defaults.items() if not (has_source and name in FIELDS)}
    return {**kept, **said}


def split_progress(said: Record) -> tuple[Json, dict[str, str]]:
    """Return the columns of jobs.csv that a job states, and its source of progress as variables."""
    return {k: v for k, v in said.items() if k not in FIELDS}, as_variables(said)


def count_remaining(total_work: float, progress: Progress) -> float:
    """Return the work that is left of a running job, with what no checkpoint holds.

    Examples
    --------
    >>> count_remaining(100.0, (60.0, 50.0)), count_remaining(100.0, (100.0, 100.0))
    (50.0, 0.1)
    """
    return max(total_work - progress[1], LEAST_SHARE * total_work)


def sum_usable(nodes: Sequence[Record], pool: str) -> int:
    """Return the GPUs of a pool in the rows of nodes.csv: those of nodes that are up."""
    return sum(row["gpus"] for row in nodes if row["pool"] == pool and row["state"] == "up")


def _fits(column: Column, value: Any) -> bool:
    """Return whether a value of JSON is one of a column; numbers without a point are whole."""
    if column.kind is ColumnKind.INTEGERS:
        return isinstance(value, list) and parse_value(column, text_of(value))[1] is None
    is_whole = column.kind is not ColumnKind.INTEGER or isinstance(value, int)
    return is_whole and parse_value(column, value)[1] is None
