"""Snapshots from pandas frames: the same Problem as from files."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from everything import EVERYTHING, TEXTS, content

from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput, UsageError
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot

TABLES = {name[:-4]: text for name, text in TEXTS.items() if name.endswith(".csv")}


def frames(**options: object) -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(io.StringIO(text), **options) for name, text in TABLES.items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": str}, {"dtype_backend": "numpy_nullable"}],
    ids=["inferred", "text", "nullable"],
)
def test_frames_equal_files(options: dict[str, object], tmp_path: Path) -> None:
    """However pandas stores the columns (integers with gaps become floats), every number and
    name is the same.
    """
    config = tomllib.loads(TEXTS["config.toml"])
    snap = Snapshot.from_frames(config=config, **frames(**options))
    files = validate(parse_snapshot("files", EVERYTHING))
    assert content(validate(snap)) == content(files)
    assert [w.split(":")[0] for w in validate(snap).warnings] == [
        w.split(":")[0] for w in files.warnings
    ]
    assert read_snapshot(write_snapshot(snap, tmp_path)).digest == snap.digest


def small(**more: object) -> dict[str, pd.DataFrame]:
    """One job, one pool, two rates; `more` are further columns of the job."""
    job = {
        "job_id": ["a"],
        "model": ["m"],
        "submitted_s": [0],
        "remaining_work": [9.5],
        "max_gpus": [4],
        **more,
    }
    return {
        "jobs": pd.DataFrame(job),
        "pools": pd.DataFrame({"pool": ["p"], "gpu_type": ["A"], "gpus": [8]}),
        "rates": pd.DataFrame(
            {"model": "m", "gpu_type": "A", "gpus": [1, 4], "work_per_s": [1.0, 3.5]}
        ),
    }


def test_python_values_in_cells() -> None:
    """Booleans, lists, numpy numbers, None and NaN; a dict in models.csv is JSON."""
    cells = {
        "preemptible": [False],
        "sizes": [[1, 4]],
        "gpu_types": [("A",)],
        "deadline_s": [np.nan],
        "tenant": [None],
        "weight": pd.Series([np.float64(2.5)], dtype=object),
        "after": [["x", "y"]],
    }
    curve = {"model": "m", "gpu_type": "A", "kind": "power"}
    curves = pd.DataFrame([curve | {"parameters": {"rate_1": 2, "exponent": 0.5}}])
    p = validate(Snapshot.from_frames(**small(**cells), models=curves))
    j = p.jobs
    assert (j.preemptible[0], j.weight[0], j.after[0]) == (False, 2.5, ("x", "y"))
    assert np.isnan(j.deadline_s[0]) and j.sizes.tolist() == [0] and j.gpu_types.tolist() == [0]
    assert p.curves.parameters[0]["exponent"] == 0.5


def test_config_of_numpy_numbers() -> None:
    """numpy numbers are numbers; text is not."""
    config = {"budget_per_hour": np.float32(8), "max_changes": np.int64(2)}
    p = validate(Snapshot.from_frames(config=config, **small()))
    assert (p.budget_per_hour, p.max_changes) == (8, 2)
    with pytest.raises(InvalidInput, match="text, not a number"):
        validate(Snapshot.from_frames(config={"now_s": "3"}, **small()))


def test_what_is_wrong_in_a_frame() -> None:
    """Row 0 is line 2, below the header. Two columns of one name are a wrong call."""
    with pytest.raises(InvalidInput, match=r"^jobs\.csv:2: weight -1 must be above 0"):
        validate(Snapshot.from_frames(**small(weight=[-1])))
    doubled = pd.DataFrame([[1, 2]], columns=["gpus", "gpus "])
    with pytest.raises(UsageError, match="pools has two columns of one name: gpus, gpus"):
        Snapshot.from_frames(pools=doubled)
