"""The tenants of a queue, their quotas, and reservations: read them and change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from allocator.domain.changes import with_cell
from allocator.domain.findings import did_you_mean, quote, suggest_setting
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import JOBS, QUOTAS, RESERVATIONS, TENANTS, TableSchema
from allocator.domain.snapshot import Snapshot
from allocator.domain.times import parse_time
from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.queue import cluster_tables
from allocator.queue.database.rows import execute
from allocator.queue.jobs.verbs import is_storable
from allocator.queue.snapshot import build_snapshot

Change = tuple[TableSchema, dict[str, str], Record]
"""A table, the row by its key, and its new cells by column; None is an empty cell."""


def read_tenants(connection: Connection) -> dict[str, list[Json]]:
    """Return the rows of tenants.csv and quotas.csv, as `tenants` and `quotas`."""
    return {
        schema.file.removesuffix(".csv"): cluster_tables.read_stored_rows(connection, schema.file)
        for schema in (TENANTS, QUOTAS)
    }


def set_tenant(
    connection: Connection,
    now_s: float,
    tenant: str,
    values: Record,
    quota: Record,
    gpu_type: str = "",
    pool: str = "",
) -> tuple[str, ...]:
    """Change a tenant and one of its quotas, or add them, and return warnings.

    Parameters
    ----------
    now_s : float
        The present time, at which the changed cluster is checked with the jobs of the queue.
    values : mapping of str to object
        Columns of tenants.csv; None is the default.
    quota : mapping of str to object
        Columns of quotas.csv; none: no quota is changed.
    gpu_type, pool : str
        GPUs of the quota, both empty for all.

    Raises
    ------
    UsageError
        For a column that does not exist.
    InvalidInput
        If the cluster would break a rule.
    """
    if not tenant:
        raise UsageError("a tenant needs a name")
    key = {"tenant": tenant}
    changes: list[Change] = [(TENANTS, key, key | dict(values))]
    if quota:
        changes.append((QUOTAS, {**key, "gpu_type": gpu_type, "pool": pool}, quota))
    return _change_rows(connection, build_snapshot(connection, now_s), changes)


def reserve(connection: Connection, now_s: float, name: str, values: Record) -> tuple[str, ...]:
    """Add a reservation, or change it, and return warnings; those that are over are forgotten.

    `values` are columns of reservations.csv; times may be texts such as 6h. A new reservation
    begins now if they do not say when, and so does one whose `at_s` is None.

    Raises
    ------
    UsageError
        For a name that cannot be stored, a text that is no time, or a job that the queue does not
        have or has ended.
    InvalidInput
        If the cluster would break a rule.
    """
    execute(connection, "DELETE FROM reservations WHERE until_s <= ?", now_s)
    here = build_snapshot(connection, now_s)
    job, known = values.get("job_id"), here.tables[JOBS.file].columns["job_id"]
    if job and job not in known:
        hint = did_you_mean(job, known)
        raise UsageError(f"the queue has no job {quote(job)} that is not done{hint}")
    if not is_storable(name):
        raise UsageError(f"reservation {quote(name)} cannot be stored")
    key, new = {"reservation": name}, name not in _list_reservations(connection)
    cells = {"at_s": None, **values} if new else dict(values)
    if cells.get("at_s", now_s) is None:
        cells["at_s"] = now_s
    for column in ("at_s", "until_s"):
        if cells.get(column) is not None:
            try:
                cells[column] = parse_time(str(cells[column]), now_s)
            except ValueError as error:
                raise UsageError(f"{column}: {error}") from None
    warnings = _change_rows(connection, here, [(RESERVATIONS, key, key | cells)])
    cluster_tables.note_node_change(connection, ())
    return warnings


def cancel_reservation(connection: Connection, name: str) -> None:
    """Forget a reservation. Raises UsageError if there is none of that name."""
    known = _list_reservations(connection)
    if name not in known:
        raise UsageError(f"the queue has no reservation {quote(name)}{did_you_mean(name, known)}")
    execute(connection, "DELETE FROM reservations WHERE reservation = ?", name)
    cluster_tables.note_node_change(connection, ())


def _list_reservations(connection: Connection) -> list[str]:
    return cluster_tables.read_stored_columns(connection, RESERVATIONS.file)["reservation"]


def _change_rows(
    connection: Connection, here: Snapshot, changes: Sequence[Change]
) -> tuple[str, ...]:
    """Change cells of the cluster of a snapshot of the queue, store them, and return warnings."""
    tables = dict(here.tables)
    for schema, row, cells in changes:
        known = [c.name for c in schema.columns]
        for column, value in cells.items():
            if column not in known:
                raise UsageError(
                    f"{schema.file} has no column {quote(column)}{suggest_setting(column, known)}"
                )
            tables[schema.file], _ = with_cell(tables.get(schema.file), schema, row, column, value)
    problem = validate(replace(here, tables=tables))
    for schema, _, _ in changes:
        cluster_tables.store_table(connection, schema.file, tables[schema.file])
    files = tuple(schema.file for schema, _, _ in changes)
    return tuple(text for text in problem.warnings if text.startswith(files))
