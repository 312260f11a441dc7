"""sia: a workload with the measured profiles of its applications.

The file has the columns `name,time,application,num_replicas,batch_size`. This is the format of the
workloads published with Pollux (OSDI 2021) and Sia (SOSP 2023). The pools are the cluster of Sia's
heterogeneous experiments: 24 T4 in nodes of 4, and 24 RTX 2080 Ti and 16 A100 in nodes of 8. Speeds
and work of an application come from sia_profiles.py. Speeds are divided by CALIBRATION, the
slowdown seen on a real cluster, unless `--calibrate no` is given. Restart delays are those of Sia's
simulated execution. Rounds last 60 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allocator.domain.findings import did_you_mean, quote
from allocator.errors import Fault, UsageError
from allocator.io.traces import assemble, sia_profiles
from allocator.io.traces.base import MeasuredSpeeds, Trace, TraceOptions, TracePool, trace_jobs
from allocator.io.traces.text import (
    CsvRows,
    csv_rows,
    input_error,
    integer,
    missing_columns,
    number,
    raise_if,
    text,
)

COLUMNS = (
    text("name"),
    number("time"),
    text("application"),
    integer("num_replicas"),
    integer("batch_size", required=False),
)
POOLS = (
    TracePool("t4", "T4", 24, 4),
    TracePool("rtx2080ti", "RTX2080Ti", 24, 8),
    TracePool("a100", "A100", 16, 8),
)
# tables to look for, best first
MACHINES = {"T4": ("aws",), "RTX2080Ti": ("rtx",), "A100": ("dgx-ext", "dgx")}
RESTART_S = {
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "bert": 120.0,
    "yolov3": 80.0,
    "imagenet": 250.0,
    "ncf": 15.0,
}
OTHER_RESTART_S = 30.0
CALIBRATION = {"cifar10": 1.8, "ncf": 1.5}
OTHER_CALIBRATION = 1.2
PIPELINE = {"gpt_pmp"}  # pipeline-parallel: its tables mean something else
INTERVAL_S = 60.0
KINDS = ("goodput", "batches", "tuned", "samples")


@dataclass(frozen=True)
class _Model:
    """An application with the batch size to which its speeds are bound (0: any batch size)."""

    application: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.application}-{self.batch}" if self.batch else self.application


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns of a workload, else what is missing."""
    return missing_columns(source, ("name", "time", "application", "num_replicas"))


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the jobs with speeds and work of their applications.

    Raises InvalidInput, and UsageError if there are no profiles.
    """
    kind = options.extra_value("speed", "goodput")
    if kind not in KINDS:
        raise UsageError(f"--speed {kind}: one of {', '.join(KINDS)}")
    if options.gpus_per_node is not None:
        raise UsageError(
            "--gpus-per-node: the profiles were measured on nodes of 4 (T4) and 8 GPUs"
        )
    profiles = _profiles(source, options)
    pools = assemble.scale_pools(POOLS, options.gpus)
    rows = csv_rows(source, COLUMNS)
    keep = np.array([a not in PIPELINE for a in rows["application"]]) & (rows["num_replicas"] >= 1)
    index = np.flatnonzero(keep).tolist()
    _check(source, rows, index, profiles, kind)
    models = [
        _Model(rows["application"][i], int(rows["batch_size"][i]) if kind == "tuned" else 0)
        for i in index
    ]
    speeds, work = _table(sorted(set(models), key=lambda m: m.name), profiles, kind, options)
    names = [m.name for m in models]
    total = np.array([work[m] for m in models], dtype=np.float64)
    gpus = rows["num_replicas"][index]
    duration = assemble.seconds_at_request(speeds, pools, names, gpus, total)
    restart = np.array(
        [RESTART_S.get(m.application, OTHER_RESTART_S) for m in models], dtype=np.float64
    )
    jobs = trace_jobs(
        [rows["name"][i] for i in index],
        rows["time"][index],
        duration,
        gpus,
        names,
        work=total,
        restart_s=restart,
    )
    notes = (f"speeds: {kind}, work in steps at the smallest batch size",)
    return Trace(
        jobs,
        pools,
        len(rows),
        {"are pipeline-parallel or ask for no GPU": int((~keep).sum())},
        notes,
        speeds,
        interval_s=INTERVAL_S,
        max_factor=np.inf,
    )


def _profiles(source: Path, options: TraceOptions) -> Path:
    given = options.extra_value("profiles")
    if given:
        if not Path(given).is_dir():
            raise input_error(Path(given), "is no folder of profiles")
        return Path(given)
    around = [source.parent, *source.absolute().parents[1:4]]
    found = next((p / "profiles" for p in around if (p / "profiles").is_dir()), None)
    if found is None:
        raise UsageError(
            f'there is no folder "profiles" next to or above "{source}"; name it by --profiles DIR'
        )
    return found


def _check(source: Path, rows: CsvRows, index: list[int], profiles: Path, kind: str) -> None:
    known = [p.name for p in sorted(profiles.iterdir()) if p.is_dir()]
    found = [
        Fault(
            str(source),
            rows.lines[i],
            f"application {quote(rows['application'][i])} has no folder in "
            f"{quote(str(profiles))}{did_you_mean(rows['application'][i], known)}",
        )
        for i in index
        if rows["application"][i] not in known
    ]
    if kind == "tuned":
        found += [
            Fault(str(source), rows.lines[i], "batch_size is empty; --speed tuned needs it")
            for i in index
            if rows["batch_size"][i] < 1
        ]
    raise_if(source, found)


def _table(
    models: list[_Model], profiles: Path, kind: str, options: TraceOptions
) -> tuple[MeasuredSpeeds, dict[_Model, float]]:
    """Return the speeds of each model by type and measured size, and the work of each model."""
    calibrate = options.extra_value("calibrate", "yes")
    if calibrate not in ("yes", "no"):
        raise UsageError(f"--calibrate {calibrate}: yes or no")
    per_node = {p.gpu_type: p.gpus_per_node for p in POOLS}
    rows: list[tuple[str, str, int, float, float, int, int]] = []
    work: dict[_Model, float] = {}
    for model in models:
        folder = profiles / model.application
        train = sia_profiles.read_training(folder)
        work[model] = train.progress
        slow = CALIBRATION.get(model.application, OTHER_CALIBRATION) if calibrate == "yes" else 1.0
        for gpu_type, machines in MACHINES.items():
            tables = (
                sia_profiles.steps(folder, machine, per_node[gpu_type]) for machine in machines
            )
            for k, measured in next((t for t in tables if t), {}).items():
                rows += [
                    (model.name, gpu_type, k, speed / slow, useful, batch, passes)
                    for speed, useful, batch, passes in _rows(train, measured, k, kind, model.batch)
                ]
    if not rows:
        raise input_error(
            profiles, f"has no step times for {', '.join(m.name for m in models) or 'any job'}"
        )
    return MeasuredSpeeds.of(rows), work


def _rows(
    train: sia_profiles.Training,
    measured: sia_profiles.MeasuredSteps,
    k: int,
    kind: str,
    batch: int,
) -> list[tuple[float, float, int, int]]:
    """Return (work_per_s, efficiency, batch, accumulation) of one size for a kind of speeds."""
    tried = {"tuned": [batch], "batches": train.batch.tolist()}.get(kind)
    best = sia_profiles.rank_batches(train, measured, k, tried)
    if best is None:
        return []
    every = list(
        zip(
            best.work_per_s.tolist(),
            best.efficiency.tolist(),
            best.batch.tolist(),
            best.accumulation.tolist(),
            strict=True,
        )
    )
    if kind == "samples":
        speed, _, size, passes = max(every)
        return [(speed, 1.0, size, passes)]
    return every if kind == "batches" else every[:1]
