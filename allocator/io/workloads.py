"""Workload folders on disk: reading with all faults at once, and writing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allocator.domain.cluster import merge_changes
from allocator.domain.rules.workload_rules import validate_workload
from allocator.domain.schema.workload_columns import (
    CAPACITY,
    CELLS,
    NODE_EVENTS,
    RECORDED,
    WORKLOAD,
    WORKLOAD_TABLES,
)
from allocator.domain.snapshot import Snapshot, tables_of_frames
from allocator.domain.workload import Workload
from allocator.io.folders import FolderKind, parse_folder, read_folder, write_folder
from allocator.io.problem_tables import add_rows, build_table, cluster_tables, config, jobs
from allocator.objects import Record

if TYPE_CHECKING:
    import pandas as pd

FOLDER = FolderKind(
    "a workload",
    WORKLOAD.file,
    WORKLOAD_TABLES,
    {
        "jobs.csv": (
            ", but a jobs.csv: this is a snapshot, not a workload; allocator solve decides it,"
            " allocator simulate and Problem.to_workload start its jobs anew"
        )
    },
    foreign=("jobs.csv", "placements.csv", "received.csv"),
)


def is_workload(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a workload.csv and no jobs.csv."""
    folder = Path(path)
    try:
        return (folder / WORKLOAD.file).exists() and not (folder / "jobs.csv").exists()
    except (OSError, ValueError):
        return False


def read_workload(path: str | os.PathLike[str]) -> Workload:
    """Read the workload in a folder.

    Parameters
    ----------
    path : str or path
        Folder with workload.csv, pools.csv, rates.csv or models.csv, and the optional files.

    Returns
    -------
    Workload
        Jobs by `submitted_s`. It starts at the earliest submission, or at now_s of config.toml if
        that is earlier. Later rows of capacity.csv and prices.csv are its changes; for the GPUs of
        a pool at one time capacity.csv wins. Warnings are in `problem.warnings`.

    Raises
    ------
    InvalidInput
        With every fault, by file and line; or if there is no such folder.

    Examples
    --------
    >>> import allocator
    >>> allocator.read_workload("data/workloads/demo").problem.now_s
    0.0
    """
    return validate_workload(read_folder(path, FOLDER))


def parse_workload(name: str, contents: Mapping[str, bytes]) -> Workload:
    """Return the workload of files that are given as bytes by name, as if they were in a folder.

    Raises InvalidInput.
    """
    return validate_workload(parse_folder(name, contents, FOLDER))


def write_workload(
    path: str | os.PathLike[str],
    content: Workload | Mapping[str, pd.DataFrame],
    *,
    config: Record | None = None,
) -> Path:
    """Write a workload into a folder; reading it again gives equal arrays.

    Parameters
    ----------
    path : str or path
        Folder, made if need be.
    content : Workload or mapping of str to pandas.DataFrame
        The workload, or frames named like the files: workload, pools, rates ... Frames are checked
        before anything is written.
    config : mapping of str to object, optional
        Settings of config.toml, with frames only.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InvalidInput
        For frames that break a rule.
    UsageError
        For an unknown table, or if the folder has a further file that would be read as part of
        the workload.
    AllocatorError
        If the folder cannot be written.

    Examples
    --------
    >>> import allocator, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = allocator.write_workload(folder, allocator.read_workload("data/workloads/demo"))
    ...     len(allocator.read_workload(path).problem.jobs)
    24
    """
    if isinstance(content, Workload):
        return write_folder(_raw(content), path, FOLDER)
    tables = tables_of_frames(content, WORKLOAD_TABLES, "write_workload")
    return write_tables(Snapshot("", dict(config or {}), tables), path)


def write_tables(raw: Snapshot, path: str | os.PathLike[str]) -> Path:
    """Check tables and write them as a workload, see `write_workload`."""
    validate_workload(raw)
    return write_folder(raw, path, FOLDER)


def _raw(workload: Workload) -> Snapshot:
    """Return the tables of a workload as text."""
    problem = workload.problem
    columns = jobs(problem)
    own = {c.name: columns[c.name] for c in WORKLOAD.columns if c not in (*CELLS, *RECORDED)}
    if len(recorded := workload.recorded):
        times = (recorded.start_s, recorded.end_s)
        own |= {c.name: values for c, values in zip(RECORDED, times, strict=True)}
    tables = {WORKLOAD.file: build_table(WORKLOAD, own), **cluster_tables(problem)}
    changes = merge_changes(workload.changes, np.ones(len(workload.changes), dtype=bool))
    priced = changes.select(~np.isnan(changes.price_per_gpu_hour))
    priced = replace(priced, gpus=np.full(len(priced), -1))
    for schema, rows in (
        (CAPACITY, changes.select(changes.gpus >= 0)),
        (WORKLOAD_TABLES["prices.csv"], priced),
        (NODE_EVENTS, workload.node_events),
    ):
        add_rows(tables, problem, schema, vars(rows))
    settings = config(problem) | ({"assumed": workload.assumed} if workload.assumed else {})
    if not np.isin(problem.jobs.model, [*problem.rates.model, *problem.curves.model]).all():
        settings["unknown_models"] = "assume"
    return Snapshot(problem.name, settings, tables)
