"""Typed records of the public API: a frozen dataclass for each row of an input table.

The fields are the columns of allocator/domain/schema/columns.toml, with their names, units,
defaults and words. None is an empty cell: the default of the column, which may depend on other
columns. Type checkers and editors read records.pyi, which
scripts/generators/generate_record_docs.py writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from textwrap import fill
from typing import Any

from allocator.domain.schema.columns import RULE, TABLES, ColumnKind

USER = "ALLOCATOR_USER"  # variable of a job: who submitted it
TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.INTEGER: "int",
    ColumnKind.NUMBER: "float",
    ColumnKind.BOOLEAN: "bool",
    ColumnKind.INTEGERS: "Sequence[int]",
    ColumnKind.TEXTS: "Sequence[str]",
    ColumnKind.JSON: "Mapping[str, float]",
}
INDENT = {"initial_indent": "    ", "subsequent_indent": "    "}
RECORDS: dict[str, type[Record]] = {}
"""Record of each table, by the name of the table."""


class Record:
    """A row of a table: its columns are the fields of the class."""

    def __init_subclass__(cls, table: str, by_place: Sequence[str] = ()) -> None:
        """Add the columns; those `by_place` come first, by default those that a row needs.

        A default or a field of the class itself takes precedence.
        """
        columns, more = TABLES[f"{table}.csv"].by_name, cls.__annotations__
        first = by_place or [name for name, column in columns.items() if column.required]
        kinds, words = dict[str, str](), []
        for name in dict.fromkeys((*first, *columns)):
            column = columns[name]
            default = None if column.default == RULE else column.default
            if name not in first:
                setattr(cls, name, dataclasses.field(default=default, kw_only=True))
            elif not column.required:
                setattr(cls, name, default)
            kind = TYPES.get(column.kind, "str")
            is_optional = default is None and not column.required
            kinds[name] = f"{kind} | None" if is_optional else kind
            doc = f"{column.doc[0].upper()}{column.doc[1:]}."
            words += [f"{name} : {kind}{', optional' * is_optional}", fill(doc, 96, **INDENT)]
        head, heading, end = cleandoc(cls.__doc__ or "").partition("Examples\n")
        parameters = "\n".join(("Parameters\n----------", *words))
        cls.__doc__, cls.__annotations__ = f"{head}{parameters}\n\n{heading}{end}", kinds | more
        RECORDS[table] = dataclasses.dataclass(frozen=True, repr=False)(cls)

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their default, by name."""
        return {
            field.name: value
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, field.name)) != field.default
        }

    def __repr__(self) -> str:
        """Write the call that makes the record, without fields that have their default."""
        fields, parts = self.__dataclass_fields__, []  # type: ignore[attr-defined]
        for name, value in self.given().items():
            is_named = fields[name].kw_only or name in ("remaining_work", "max_gpus")
            parts.append(f"{name}={value!r}" if is_named else repr(value))
        return f"{type(self).__name__}({', '.join(parts)})"


class Job(
    Record,
    table="jobs",
    by_place=("job_id", "model", "remaining_work", "max_gpus", "submitted_s"),
):
    """Describe one training job that is queued, running, paused or held.

    Examples
    --------
    >>> Job("bert-1", "bert", remaining_work=90_000, max_gpus=8)
    Job('bert-1', 'bert', remaining_work=90000, max_gpus=8)
    """

    submitted_s: float = 0.0


class Pool(Record, table="pools"):
    """Describe identical GPUs that are bought and placed alike.

    Examples
    --------
    >>> Pool("a100", "A100", 16, price_per_gpu_hour=2.0)
    Pool('a100', 'A100', 16, price_per_gpu_hour=2.0)
    """


class Rate(Record, table="rates"):
    """State a measured speed of a model.

    Examples
    --------
    >>> Rate("bert", "A100", 8, 21.5)
    Rate('bert', 'A100', 8, 21.5)
    """


class SpeedModel(Record, table="models"):
    """State the speed of a model by a formula; at its size a `Rate` takes precedence.

    Examples
    --------
    >>> SpeedModel("bert", "A100", "amdahl", {"rate_1": 3.0, "parallel": 0.95})
    SpeedModel('bert', 'A100', 'amdahl', {'rate_1': 3.0, 'parallel': 0.95})
    """


class Tenant(Record, table="tenants"):
    """Describe a team or project that shares the cluster, with quota, guarantee and budget.

    Examples
    --------
    >>> Tenant("research", max_gpus=16, guaranteed_gpus=8)
    Tenant('research', max_gpus=16, guaranteed_gpus=8)
    """


class Quota(Record, table="quotas"):
    """State a limit or a guarantee of a tenant by GPU type or pool, and what of it is lent.

    It counts the jobs of the tenant and of all tenants below it.

    Examples
    --------
    >>> Quota("research", gpu_type="A100", guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    Quota('research', gpu_type='A100', guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    """


class PoolChange(Record, table="prices"):
    """State a change of a pool over time: its price, its GPUs, or both.

    Examples
    --------
    >>> PoolChange(3600, "spot", price_per_gpu_hour=0.7)
    PoolChange(3600, 'spot', price_per_gpu_hour=0.7)
    """


class Node(Record, table="nodes"):
    """Describe one machine of a pool.

    `labels` say where it stands by further levels of the topology, such as {"block": "b1"}.

    Examples
    --------
    >>> Node("n1", "a100", 8)
    Node('n1', 'a100', 8)
    """

    labels: Mapping[str, str] | None = dataclasses.field(default=None, kw_only=True)


class Placement(Record, table="placements"):
    """State on which machine a running job holds GPUs.

    Examples
    --------
    >>> Placement("bert-1", "n1", 4)
    Placement('bert-1', 'n1', 4)
    """


class Received(Record, table="received"):
    """State how long a job has held GPUs of a type.

    Examples
    --------
    >>> Received("bert-1", "A100", 1800)
    Received('bert-1', 'A100', 1800)
    """


class Colocation(Record, table="sharing"):
    """State how much two jobs on the same GPUs slow each other down.

    Examples
    --------
    >>> Colocation("bert", "gnmt", "A100", 2, 1.2, 1.6)
    Colocation('bert', 'gnmt', 'A100', 2, 1.2, 1.6)
    """


class Pause(
    Record,
    table="pauses",
    by_place=("model", "from_gpus", "to_gpus", "pause_s", "gpu_type"),
):
    """State what a running job loses when its size changes, in place of `restart_s`.

    Examples
    --------
    >>> Pause("bert", 4, 8, 45.0)
    Pause('bert', 4, 8, 45.0)
    """


class FinishedJob(Record, table="finished"):
    """State the size of a job that is done, from which the sizes of others are learned.

    It counts where the setting `sizes` is "unknown".

    Examples
    --------
    >>> FinishedJob("bert", 90_000)
    FinishedJob('bert', 90000)
    """


class InteractiveReserve(Record, table="interactive"):
    """State how many GPUs of a pool are kept free for interactive jobs.

    Examples
    --------
    >>> InteractiveReserve("v100", headroom_gpus=4)
    InteractiveReserve('v100', headroom_gpus=4)
    """


class Reservation(Record, table="reservations"):
    """Keep GPUs of a pool from a time on, for a job, for a tenant, or for nobody.

    Examples
    --------
    >>> Reservation("weekend", "a100", 8, 7200.0, tenant="vision")
    Reservation('weekend', 'a100', 8, 7200.0, tenant='vision')
    """
