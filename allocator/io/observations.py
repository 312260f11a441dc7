"""Read observed speeds for `allocator fit`: rows like those of rates.csv, and published profiles.

The formats are:

- rates: CSV with the columns of rates.csv, and optionally `compute_s`, the seconds of a step
  without synchronisation.
- sia: a folder of profiles (traces/sia_profiles.py) with a folder per application, which has
  placements-MACHINE.csv and validation-BATCH.csv. The model is the application, the GPU type is the
  machine, and work is in samples.
- gavel: throughputs as JSON, plain or gzip: {"v100": {"('job type', GPUs)": {"null": steps per
  second alone}}}. GPUs spread over nodes are a separate type, NAME_unconsolidated.
- mlperf: CSV with round, accelerator, accelerators, benchmark, ttt_min_olympic: the fastest time to
  train at each size. The model is benchmark and round, and work is in whole trainings.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocator.domain.problem import Floats
from allocator.domain.schema.columns import TABLES
from allocator.io.traces import gavel, sia_profiles
from allocator.io.traces.text import csv_rows, input_error, integer, number, text
from allocator.performance.fit.observations import Observations

USED = (
    "model",
    "gpu_type",
    "gpus",
    "work_per_s",
    "batch_size",
    "accumulation",
    "spread",
    "efficiency",
)
MLPERF = (
    text("round"),
    text("benchmark"),
    text("accelerator"),
    integer("accelerators", required=False),
    number("ttt_min_olympic", required=False),
)


def read_rates(path: Path) -> Observations:
    """Read rows like those of rates.csv. Raises InvalidInput with every fault by file and line."""
    columns = [replace(TABLES["rates.csv"].column(name), default=None) for name in USED]
    rows = csv_rows(path, (*columns, number("compute_s", required=False)))
    if not (rows["work_per_s"] > 0).any():
        words = "work_per_s is 0 in every row; a speed is needed"
        raise input_error(path, words, rows.lines[0])
    return Observations.of(
        rows["model"],
        rows["gpu_type"],
        rows["gpus"],
        rows["work_per_s"],
        efficiency=rows["efficiency"],
        batch=np.maximum(rows["batch_size"], 0),
        passes=np.maximum(rows["accumulation"], 1),
        nodes=np.maximum(rows["spread"], 0),
        compute_s=rows["compute_s"],
    )


def read_sia(path: Path) -> Observations:
    """Read every measured placement of every application and machine."""
    if not path.is_dir():
        raise input_error(path, "is no folder of profiles")
    tables = sorted([*path.glob("*/placements-*.csv"), *path.glob("*/placements-*.csv.gz")])
    if not tables:
        raise input_error(path, "has no APPLICATION/placements-MACHINE.csv")
    model: list[str] = []
    machine: list[str] = []
    parts: list[Floats] = []
    for table in tables:
        rows = sia_profiles.read_placements(table)
        gpus = np.array([sum(map(int, p)) for p in rows["placement"]], dtype=np.float64)
        nodes = np.array([len(p) for p in rows["placement"]], dtype=np.float64)
        good = (gpus > 0) & (rows["local_bsz"] > 0) & (rows["step_time"] > 0)
        batch = gpus * rows["local_bsz"]
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = batch / rows["step_time"]
        compute = np.where(rows["sync_time"] > 0, rows["step_time"] - rows["sync_time"], np.nan)
        useful = _efficiency(table.parent, batch)
        parts.append(np.stack([gpus, nodes, batch, rate, compute, useful])[:, good])
        model += [table.parent.name] * int(good.sum())
        machine += [table.name.removeprefix("placements-").partition(".")[0]] * int(good.sum())
    gpus, nodes, batch, rate, compute, useful = np.concatenate(parts, axis=1)
    return Observations.of(
        model, machine, gpus, rate, efficiency=useful, batch=batch, nodes=nodes, compute_s=compute
    )


def _efficiency(folder: Path, batch: Floats) -> Floats:
    """Return the useful share at each global batch, from the training curves.

    It is nan outside the curves, or if there are none.
    """
    if not any(folder.glob("validation-*.csv*")):
        return np.full(len(batch), np.nan)
    train = sia_profiles.read_training(folder)
    inside = (batch >= train.batch[0]) & (batch <= train.batch[-1])
    share = train.progress * train.batch[0] / (train.steps_at(batch) * batch)
    return np.where(inside, np.minimum(1.0, share), np.nan)


def read_gavel(path: Path) -> Observations:
    """Read steps per second of every job type that runs alone."""
    model, types, gpus, rate = map(list, zip(*gavel.read_speeds_alone(path), strict=True))
    return Observations.of(model, types, gpus, rate)


def read_mlperf(path: Path) -> Observations:
    """Read trainings per second of the fastest submission at each size."""
    rows = csv_rows(path, MLPERF)
    fastest: dict[tuple[str, str, int], float] = {}
    for i, minutes in enumerate(rows["ttt_min_olympic"].tolist()):
        key = (
            f"{rows['benchmark'][i]} {rows['round'][i]}",
            rows["accelerator"][i],
            int(rows["accelerators"][i]),
        )
        if minutes > 0 and key[2] > 0 and key[1]:
            fastest[key] = min(minutes, fastest.get(key, np.inf))
    if not fastest:
        raise input_error(path, "has no row with accelerators and a time above 0")
    model, types, gpus = map(list, zip(*fastest, strict=True))
    return Observations.of(model, types, gpus, [1.0 / (60.0 * m) for m in fastest.values()])


READERS: Mapping[str, Callable[[Path], Observations]] = {
    "rates": read_rates,
    "sia": read_sia,
    "gavel": read_gavel,
    "mlperf": read_mlperf,
}


def read_observations(path: str | Path, form: str) -> Observations:
    """Read observations in the format `form`, a key of READERS. Raises InvalidInput."""
    return READERS[form](Path(path))
