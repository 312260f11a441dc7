"""The tree of tenants of a queue, and their quotas: read them and change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from allocator.domain.changes import with_cell
from allocator.domain.findings import quote, suggest_setting
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import QUOTAS, TENANTS, TableSchema
from allocator.errors import UsageError
from allocator.queue import cluster_tables
from allocator.queue.snapshot import build_snapshot


def read_tenants(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of tenants.csv and quotas.csv, as `tenants` and `quotas`."""
    return {
        schema.file.removesuffix(".csv"): cluster_tables.read_stored_rows(connection, schema.file)
        for schema in (TENANTS, QUOTAS)
    }


def set_tenant(
    connection: Connection,
    now_s: float,
    tenant: str,
    values: Mapping[str, Any],
    quota: Mapping[str, Any],
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
    changes: list[tuple[TableSchema, dict[str, str], Mapping[str, Any]]] = [
        (TENANTS, key, key | dict(values))
    ]
    if quota:
        changes.append((QUOTAS, {**key, "gpu_type": gpu_type, "pool": pool}, quota))
    here = build_snapshot(connection, now_s)
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
