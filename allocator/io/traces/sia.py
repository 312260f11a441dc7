"""sia: a workload with the measured profiles of its applications.

The file has the columns `name,time,application,num_replicas,batch_size`. This is the format of the
workloads published with Pollux (OSDI 2021) and Sia (SOSP 2023). The pools are the cluster of Sia's
heterogeneous experiments: 24 T4 in nodes of 4, and 24 RTX 2080 Ti and 16 A100 in nodes of 8. Speeds
and work of an application come from sia_profiles.py. Speeds are divided by CALIBRATION, the
slowdown seen on a real cluster, unless `--calibrate no` is given. Restart delays are those of Sia's
simulated execution. Rounds last 60 s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns of a workload, else what is missing."""
    return missing_columns(source, ("name", "time", "application", "num_replicas"))


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the jobs with speeds and work of their applications.

    Raises InvalidInput, and UsageError if there are no profiles.
    """
    kind = options.choose("speed", KINDS, "goodput")
    if options.gpus_per_node is not None:
        raise UsageError(
            "--gpus-per-node: the profiles were measured on nodes of 4 (T4) and 8 GPUs"
        )
    profiles = _profiles(source, options)
    pools = assemble.scale_pools(POOLS, options.gpus)
    rows = csv_rows(source, COLUMNS)
    keep = np.array([a not in PIPELINE for a in rows["application"]]) & (rows["num_replicas"] >= 1)
    kept = rows.select(np.flatnonzero(keep))
    _check(kept, profiles, kind)
    batches = kept["batch_size"] * (kind == "tuned")
    models = list(zip(kept["application"], batches.tolist(), strict=True))
    names = [f"{application}-{batch}" if batch else application for application, batch in models]
    named = sorted(dict(zip(names, models, strict=True)).items())
    speeds, work = _table(dict(named), profiles, kind, options)
    total = np.array([work[name] for name in names], dtype=np.float64)
    gpus = kept["num_replicas"]
    duration = assemble.seconds_at_request(speeds, pools, names, gpus, total)
    restart = np.array([RESTART_S.get(a, OTHER_RESTART_S) for a, _ in models], dtype=np.float64)
    jobs = trace_jobs(
        kept["name"],
        kept["time"],
        duration,
        gpus,
        model=names,
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
    folder = next((p / "profiles" for p in around if (p / "profiles").is_dir()), None)
    if folder is None:
        raise UsageError(
            f'there is no folder "profiles" next to or above "{source}"; name it by --profiles DIR'
        )
    return folder


def _check(rows: CsvRows, profiles: Path, kind: str) -> None:
    known = [p.name for p in sorted(profiles.iterdir()) if p.is_dir()]
    faults = [
        Fault(
            rows.file,
            line,
            f"application {quote(name)} has no folder in {quote(str(profiles))}"
            f"{did_you_mean(name, known)}",
        )
        for line, name in zip(rows.lines, rows["application"], strict=True)
        if name not in known
    ]
    faults += [
        Fault(rows.file, line, "batch_size is empty; --speed tuned needs it")
        for line, batch in zip(rows.lines, rows["batch_size"], strict=True)
        if kind == "tuned" and batch < 1
    ]
    raise_if(Path(rows.file), faults)


def _table(
    models: Mapping[str, tuple[str, int]], profiles: Path, kind: str, options: TraceOptions
) -> tuple[MeasuredSpeeds, dict[str, float]]:
    """Return the speeds of each model by type and measured size, and the work of each model.

    A model is an application with the batch size to which its speeds are bound, 0 = any.
    """
    calibrate = options.choose("calibrate", ("yes", "no"), "yes")
    rows: list[tuple[Any, ...]] = []
    work: dict[str, float] = {}
    for name, (application, batch) in models.items():
        folder = profiles / application
        train = sia_profiles.read_training(folder)
        work[name] = train.progress
        slow = CALIBRATION.get(application, OTHER_CALIBRATION) if calibrate == "yes" else 1.0
        tried = {"tuned": [batch], "batches": train.batch.tolist()}.get(kind)
        for pool in POOLS:
            tables = (
                sia_profiles.steps(folder, machine, pool.gpus_per_node)
                for machine in MACHINES[pool.gpu_type]
            )
            for k, measured in next((t for t in tables if t), {}).items():
                every = sia_profiles.rank_batches(train, measured, k, tried)
                if kind == "samples" and every:
                    speed, _, *settings = max(every)
                    every = [(speed, 1.0, *settings)]
                rows += [
                    (name, pool.gpu_type, k, speed / slow, *more)
                    for speed, *more in (every if kind == "batches" else every[:1])
                ]
    if not rows:
        raise input_error(profiles, f"has no step times for {', '.join(models) or 'any job'}")
    return MeasuredSpeeds.of(rows), work
