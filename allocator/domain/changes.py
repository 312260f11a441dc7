"""The same snapshot with some cells and settings changed, as `allocator whatif` decides it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.cells import text_of
from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES, QUOTAS, TABLES, TableSchema
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import UsageError
from allocator.objects import Json, Record

NAMED = {
    schema.file.removesuffix(".csv"): schema
    for schema in TABLES.values()
    if len(schema.key) == 1 or schema is QUOTAS
}
PLACES = f"a setting of config.toml, or FILE.NAME.COLUMN with FILE one of {', '.join(NAMED)}"


def changed(snapshot: Snapshot, values: Record) -> Snapshot:
    """Return the snapshot with other values; only the places are checked.

    Parameters
    ----------
    snapshot : Snapshot
        The snapshot, which is not changed.
    values : mapping of str to object
        New values by place: a setting ("budget_per_hour", "horizon.rounds"), or FILE.NAME.COLUMN
        ("pools.a100.gpus", "jobs.bert-3.weight"). A row of quotas.csv is named TENANT/TYPE,
        TENANT/POOL or TENANT ("quotas.research/A100.max_gpus"). A new name becomes a new row if all
        its required columns are given; a new tenant must have a job. None or "" is the default.

    Returns
    -------
    Snapshot
        The changed snapshot, not yet checked.

    Raises
    ------
    UsageError
        For a place that does not exist.

    Examples
    --------
    >>> import allocator
    >>> snapshot = allocator.read_snapshot("data/snapshots/demo")
    >>> more = allocator.changed(snapshot, {"pools.a100.gpus": 12})
    >>> allocator.validate(more).pools.gpus.tolist()
    [12, 8]
    """
    config = {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in snapshot.config.items()
    }
    tables = dict(snapshot.tables)
    new: dict[tuple[str, str], set[str]] = {}
    for place, value in values.items():
        name, _, rest = place.partition(".")
        if name in NAMED and "." in rest:
            schema = NAMED[name]
            row, _, column = rest.rpartition(".")
            tables[schema.file], added = with_cell(
                tables.get(schema.file), schema, _key_of(schema, row, tables), column, value
            )
            if added:
                new[schema.file, row] = set(schema.key)
            if (schema.file, row) in new:
                new[schema.file, row].add(column)
        else:
            _configure(config, place, value)
    for (file, row), given in new.items():
        _check_new(snapshot, TABLES[file], row, given)
    return dataclasses.replace(snapshot, config=config, tables=tables)


def _key_of(schema: TableSchema, row: str, tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the key cells of a row that is named in a place.

    The name of a quota ends with a GPU type or a pool, unless it counts all GPUs. A row that is
    there comes before a new one, and a type before a pool of the same name.
    """
    if schema is not QUOTAS:
        return {schema.key[0]: row}
    none = dict.fromkeys(schema.key, "")
    tenant, _, what = row.rpartition("/")
    pools = tables.get("pools.csv")
    there = tables.get(schema.file)
    keys = [
        none | {"tenant": tenant, column: what}
        for column in ("gpu_type", "pool")
        if tenant and pools is not None and what in pools.texts(column)
    ]
    if there is not None:
        for key in keys:
            if _find_row({name: list(there.texts(name)) for name in key}, key) >= 0:
                return key
    return keys[0] if keys else none | {"tenant": row}


def _find_row(columns: Mapping[str, Sequence[str]], key: Mapping[str, str]) -> int:
    """Return the row with these key cells, -1 without one."""
    cells = list(zip(*(columns[name] for name in key), strict=True))
    wanted = tuple(key.values())
    return cells.index(wanted) if wanted in cells else -1


def text_at(snapshot: Snapshot, name: str, row: str, column: str) -> str:
    """Return the text of a cell that a place names: that of FILE.NAME.COLUMN."""
    schema = NAMED[name]
    table = snapshot.tables[schema.file]
    key = _key_of(schema, row, snapshot.tables)
    at = _find_row({part: list(table.texts(part)) for part in key}, key)
    return str(table.texts(column)[at])


def with_cell(
    table: Table | None, schema: TableSchema, row: Mapping[str, str], column: str, value: Any
) -> tuple[Table, bool]:
    """Return the table with one other cell, and whether the row is new.

    row are the key cells of the row.
    """
    known = [c.name for c in schema.columns]
    if column not in known:
        raise UsageError(
            f"{schema.file} has no column {quote(column)}{did_you_mean(column, known)}"
        )
    columns = {} if table is None else {name: list(table.texts(name)) for name in table.columns}
    lines = [] if table is None else list(table.lines)
    for name in row:
        columns.setdefault(name, [""] * len(lines))
    at = _find_row(columns, row)
    added = at < 0
    if added:
        lines.append(max(lines, default=1) + 1)
        for name, cells in columns.items():
            cells.append(row.get(name, ""))
    columns.setdefault(column, [""] * len(lines))[at] = text_of(value)
    return Table(schema.file, columns, lines), added


def _configure(config: Json, place: str, value: Any) -> None:
    """Set one key of config.toml; None or "" removes the key, so that its default holds."""
    table, _, inner = place.rpartition(".")
    known = [c.name for c in (CONFIG_TABLES.get(table, ()) if table else CONFIG)]
    if inner not in known:
        settings = [c.name for c in CONFIG] + [
            f"{t}.{c.name}" for t, columns in CONFIG_TABLES.items() for c in columns
        ]
        raise UsageError(
            f"there is no {quote(place)} to set; write {PLACES}{did_you_mean(place, settings)}"
        )
    keys = config.setdefault(table, {}) if table else config
    keys.pop(inner, None)
    if value is not None and value != "":
        keys[inner] = _setting(value)


def _setting(value: Any) -> Any:
    """Return a text as TOML reads it: a number or a boolean if it is one."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _check_new(snapshot: Snapshot, schema: TableSchema, row: str, given: set[str]) -> None:
    lacking = [c.name for c in schema.columns if c.required and c.name not in given]
    table = snapshot.tables.get(schema.file)
    there = [] if table is None else list(table.texts(schema.key[0]))
    if schema.file == "tenants.csv":
        jobs = snapshot.tables.get("jobs.csv")
        there += {name or "default" for name in jobs.texts("tenant")} if jobs is not None else ()
        if row not in there:
            raise UsageError(f"no job is of a tenant {quote(row)}{did_you_mean(row, there)}")
    if lacking:
        raise UsageError(
            f"{schema.file} has no {schema.key[0]} {quote(row)}; a new one needs"
            f" {', '.join(lacking)}, too{did_you_mean(row, there)}"
        )
