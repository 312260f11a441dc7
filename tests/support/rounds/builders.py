"""Short ways to write snapshots in tests: only what matters for the test is spelt out, the rest is
the default.

    problem(jobs=[{"job_id": "a", "max_gpus": 4}], pools=[{"gpus": 8}], rates={1: 1.0, 2: 1.8, 4:
    3.0})

Defaults: jobs are called j0, j1 ..., model "m", submitted at 0, remaining_work 1000, max_gpus 8;
pools p0, p1 ... of type "A"; rates for model "m" on every GPU type of the pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.folders import Folder, csv_of_table

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot

Row = Mapping[str, Any]
# perfect scaling: the simplest rates to check by hand
LINEAR = {k: float(k) for k in (1, 2, 4, 8)}


def snapshot(
    jobs: Sequence[Row] = (),
    pools: Sequence[Row] = ({},),
    rates: Sequence[Row] | Mapping[int, float] = LINEAR,
    *,
    tenants: Sequence[Row] | None = None,
    config: Mapping[str, Any] | None = None,
    name: str = "test",
    **tables: Sequence[Row],
) -> Snapshot:
    """A Snapshot from rows given as dicts. `rates` as {gpus: work_per_s} holds for model "m" on
    every pool's type.

    Lists become "a|b", None an empty cell, booleans "true"/"false". Further tables by name: nodes=,
    prices= ...
    """
    pools = [{"pool": f"p{i}", "gpu_type": "A", "gpus": 8, **p} for i, p in enumerate(pools)]
    jobs = [
        {
            "job_id": f"j{i}",
            "model": "m",
            "submitted_s": 0,
            "remaining_work": 1000,
            "max_gpus": 8,
            **j,
        }
        for i, j in enumerate(jobs)
    ]
    if isinstance(rates, Mapping):
        types = dict.fromkeys(p["gpu_type"] for p in pools)
        rates = [
            {"gpu_type": t, "gpus": k, "work_per_s": r} for t in types for k, r in rates.items()
        ]
    rows = {"jobs": jobs, "pools": pools, "rates": [{"model": "m", **r} for r in rates], **tables}
    if tenants is not None:
        rows["tenants"] = list(tenants)
    return Folder(name, config or {}, {f"{key}.csv": r for key, r in rows.items()}).snapshot()


def problem(*args: Any, **kwargs: Any) -> Problem:
    """The validated Problem of `snapshot(...)`."""
    return validate(snapshot(*args, **kwargs))


def write_folder(snap: Snapshot, folder: Path) -> Path:
    """Write the snapshot as a folder of CSV files with config.toml; return the folder."""
    texts = {file: csv_of_table(made).encode() for file, made in snap.tables.items()}
    return Folder(folder.name, snap.config, raw=texts).write(folder.parent)
