"""What was observed as a snapshot folder, and a plan of it for the adapter that observed it.

Besides the files of a snapshot the folder has cluster.json: the adapter, its notes, and the details
that it needs to write commands.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from allocator.clusters.adapter import ClusterView, PlannedJob
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.cells import Cells
from allocator.domain.schema.columns import TABLES, ColumnKind, TableSchema
from allocator.domain.settings import FILE as CONFIG_FILE
from allocator.domain.snapshot import Snapshot, Table, values_as_cells
from allocator.errors import AllocatorError, UsageError
from allocator.io.plans import PLAN_JSON, write_files
from allocator.io.snapshots import FILES, parse_snapshot, read_snapshot, write_snapshot
from allocator.objects import Json, Record

CLUSTER_JSON = "cluster.json"
SCHEMA_VERSION = 1


def build_snapshot(name: str, view: ClusterView) -> Snapshot:
    """Return what was observed as a snapshot, not yet checked.

    A table without rows is left out unless every snapshot has it.
    """
    tables = {
        file: Table.of(schema, _cells(schema, view.tables.get(file, ())))
        for file, schema in TABLES.items()
        if view.tables.get(file) or schema.required
    }
    return Snapshot(name, dict(view.config), tables)


def leave_jobs(snapshot: Snapshot, folder: str) -> Snapshot:
    """Return a snapshot for a queue: the jobs of an observed cluster stay with the cluster."""
    if not (Path(folder) / CLUSTER_JSON).exists():
        return snapshot
    of_jobs = ("jobs.csv", "placements.csv", "received.csv")
    tables = {file: table for file, table in snapshot.tables.items() if file not in of_jobs}
    tables["jobs.csv"] = Table.of(TABLES["jobs.csv"], _cells(TABLES["jobs.csv"], ()))
    return replace(snapshot, tables=tables)


def _cells(schema: TableSchema, rows: Sequence[Record]) -> dict[str, Cells]:
    """Return the cells of a table by column; columns that its schema has not are texts."""
    kinds = {column.name: column.kind for column in schema.columns}
    required = [column.name for column in schema.columns if column.required]
    names = dict.fromkeys([*required, *(name for row in rows for name in row)])
    return {
        name: values_as_cells(kinds.get(name, ColumnKind.TEXT), [row.get(name) for row in rows])
        for name in names
    }


def write_observation(
    view: ClusterView, cluster: str, folder: Path, added: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Write what was observed as a snapshot folder; return the warnings about the snapshot.

    The folder appears whole, by one rename. One that is there already is replaced if this function
    wrote all of its files, and refused otherwise. What is invalid is not written.

    Parameters
    ----------
    view : ClusterView
        What was observed.
    cluster : str
        Name of the adapter.
    folder : Path
        Folder to write.
    added : sequence of Path
        Files of a snapshot that the cluster does not know, such as rates.csv, to copy into it.

    Raises
    ------
    InvalidInput
        If the tables break a rule of snapshots.
    UsageError
        If the folder is there and holds other files, or a file to add is none of a snapshot.
    AllocatorError
        If it cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    _refuse_other_files(folder)
    observed = build_snapshot(folder.name, view)
    _check_added(added, observed)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        write_snapshot(observed, temporary)
        for path in added:
            shutil.copyfile(path, temporary / path.name)
        problem = validate(read_snapshot(temporary))
        document = {
            "schema_version": SCHEMA_VERSION,
            "cluster": cluster,
            "files": sorted(os.listdir(temporary)),
            "notes": view.notes,
            "details": view.details,
        }
        write_files(temporary, {CLUSTER_JSON: json.dumps(document) + "\n"})
        old = folder.with_name(f"{temporary.name}.old")
        with suppress(FileNotFoundError):
            os.rename(folder, old)
        os.rename(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise AllocatorError(f'cannot write "{folder}": {error.strerror or error}') from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return problem.warnings


def _refuse_other_files(folder: Path) -> None:
    """Raise UsageError if the folder holds anything but an observation and plans of it."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f'"{folder}" is not a folder')
    names = set(os.listdir(folder))
    ours: set[str] = set()
    if CLUSTER_JSON in names:
        ours = {CLUSTER_JSON, *_read_json(folder / CLUSTER_JSON, "").get("files", ())}
    plans = {name for name in names if (folder / name / PLAN_JSON).is_file()}
    others = sorted(names - ours - plans)
    if others:
        raise UsageError(f'"{folder}" also holds {", ".join(others)}; choose another folder')


def add_tables(observed: Snapshot, added: Sequence[Path]) -> Snapshot:
    """Return what was observed with the tables of files that the cluster does not know.

    Raises
    ------
    UsageError
        If one of them cannot be added.
    """
    _check_added(added, observed)
    more = parse_snapshot(observed.name, {path.name: path.read_bytes() for path in added})
    return replace(more, config=observed.config, tables={**observed.tables, **more.tables})


def _check_added(added: Sequence[Path], observed: Snapshot) -> None:
    """Raise UsageError for files that are not of a snapshot, or that the cluster itself gives."""
    for path in added:
        if path.name not in FILES:
            raise UsageError(f'"{path}" is no file of a snapshot; there are {", ".join(FILES)}')
        if path.name in observed.tables or path.name == CONFIG_FILE:
            raise UsageError(f'"{path}" cannot be added: the cluster itself gives {path.name}')
        if not path.is_file():
            raise UsageError(f'there is no file "{path}"')


def read_details(folder: Path, cluster: str) -> Json:
    """Return the details that the adapter left in the folder of an observation.

    Raises
    ------
    UsageError
        If the folder has none, or those of another adapter.
    """
    document = _read_json(
        folder / CLUSTER_JSON,
        f'"{folder}" was not observed from a cluster: it has no {CLUSTER_JSON};'
        f" allocator observe {cluster} --out DIR writes one",
    )
    if document.get("cluster") != cluster:
        raise UsageError(
            f'"{folder}" was observed from {document.get("cluster")}, not from {cluster}'
        )
    return dict(document["details"])


def read_planned_jobs(folder: Path, plan: Path) -> list[PlannedJob]:
    """Return what the plan in a folder gives every job of an observed snapshot.

    Raises
    ------
    UsageError
        If there is no plan, or it is the plan of another snapshot.
    """
    document = _read_json(
        plan / PLAN_JSON,
        f'there is no plan in "{plan}"; allocator solve {folder} --out {plan} writes one',
    )
    if document.get("digest") != read_snapshot(folder).digest:
        raise UsageError(f'the plan in "{plan}" is not of the snapshot "{folder}"')
    return plan_jobs(document["jobs"])


def plan_jobs(rows: Sequence[Record]) -> list[PlannedJob]:
    """Return what a plan gives every job, from `jobs` of plan.json."""
    names = [name for name in PlannedJob.__dataclass_fields__ if name != "nodes"]
    return [
        PlannedJob(
            **{name: job[name] for name in names},
            nodes={place["node"]: place["gpus"] for place in job["nodes"] or ()},
        )
        for job in rows
    ]


def _read_json(path: Path, absent: str) -> Json:
    """Return the object of a JSON file; `absent` is the message if there is no such file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(absent) from None
    except (OSError, ValueError) as error:
        raise UsageError(f'"{path}" cannot be read: {error}') from error
    if not isinstance(document, dict):
        raise UsageError(f'"{path}" is not a JSON object')
    return document
