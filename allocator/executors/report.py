"""For the code of jobs: report progress, and read the settings that hold now.

Progress is one line in the file that $ALLOCATOR_PROGRESS names:

    <work done in all> <of that safe in the last checkpoint>

Work is in the job's own unit (steps, samples), counted from its very first start on. The file is
replaced each time. After the two numbers there may be fields `name=value`, those of REPORTED:

    noise_scale                               gradient noise scale, in samples
    small_batch, small_norm2, batch, norm2    what it follows from: formulations/training_step.py
    loss, loss_at                             loss of the training, and the work done in all at
                                              which it was seen; default: the work done

The settings are a JSON object in the file that $ALLOCATOR_SETTINGS names: those of the
variables ALLOCATOR_BATCH_SIZE, ALLOCATOR_ACCUMULATION, ALLOCATOR_VARIANT, ALLOCATOR_MODE and
ALLOCATOR_JOBS_PER_GPU that are set. The file is replaced when that changes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from allocator.io.tables.limited_reader import read_json, read_start
from allocator.loop.executor import REPORTED
from formulations.training_step import compute_efficiency

SETTINGS_FILE = "settings.json"  # in the folder of an allocation
MOST_BYTES = 400  # of a report that are read


def progress(done: float, safe: float, **reported: float) -> None:
    """Report progress; outside of an allocation nothing happens.

    `done` is the work done in all, and `safe` the part that the last checkpoint holds. `reported`
    are fields of REPORTED, such as `noise_scale` and `loss`.
    """
    if name := os.environ.get("ALLOCATOR_PROGRESS"):
        write(Path(name), done, safe, **reported)


def count_useful(samples: float, batch: float, first_batch: float, noise_scale: float) -> float:
    """Return the useful work of samples of a batch, in samples of the smallest batch.

    Examples
    --------
    >>> count_useful(1100, batch=1100, first_batch=100, noise_scale=900)
    550.0
    """
    return samples * float(compute_efficiency(noise_scale, first_batch, batch))


def read_settings() -> dict[str, str]:
    """Return the settings that hold for the job now; {} outside of an allocation.

    A job may call this between two steps, at little cost.
    """
    name = os.environ.get("ALLOCATOR_SETTINGS")
    return dict(read_json(Path(name)) or {}) if name else {}


def write(path: Path, done: float, safe: float, **reported: float) -> None:
    """Replace the report in a file. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    words = [repr(done), repr(safe), *(f"{name}={x!r}" for name, x in reported.items())]
    temporary.write_text(" ".join(words) + "\n", encoding="ascii")
    os.replace(temporary, path)


class Report(NamedTuple):
    """What a job reported: its work in all, the safe part of it, and fields of REPORTED."""

    done: float
    safe: float
    fields: Mapping[str, float] = {}


def read(path: Path) -> Report | None:
    """Return the report in the file, or None if there is no valid line."""
    try:
        return parse(read_start(path, MOST_BYTES).decode("ascii", "replace"))
    except OSError:
        return None


def parse(line: str) -> Report | None:
    """Return the report in a line of progress, or None if it is not valid.

    A loss was seen at the work done.

    Examples
    --------
    >>> parse("90 80 loss=2.5")
    Report(done=90.0, safe=80.0, fields={'loss_at': 90.0, 'loss': 2.5})
    """
    words = line.split()
    try:
        done, safe = map(float, words[:2])
    except ValueError:
        return None
    if not (math.isfinite(done) and math.isfinite(safe) and safe >= 0):
        return None
    fields = parse_reported(words)
    if "loss" in fields:
        fields = {"loss_at": done, **fields}
    return Report(max(done, safe), safe, fields)


def parse_reported(words: Iterable[str]) -> dict[str, float]:
    """Return the valid fields of REPORTED among words, and no others.

    Examples
    --------
    >>> parse_reported("90 80 noise_scale=1200 loss=nan colour=1".split())
    {'noise_scale': 1200.0}
    """
    reported = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = float(text)
        except ValueError:
            continue
        if name in REPORTED and math.isfinite(value):
            reported[name] = value
    return reported
