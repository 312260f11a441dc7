"""For the code of jobs: report progress, and read the settings that hold now.

Progress is one line in the file that $ALLOCATOR_PROGRESS names:

    <work done in all> <of that safe in the last checkpoint>

Work is in the job's own unit (steps, samples), counted from its very first start on. The file is
replaced each time.

The settings are a JSON object in the file that $ALLOCATOR_SETTINGS names: those of the
variables ALLOCATOR_BATCH_SIZE, ALLOCATOR_ACCUMULATION, ALLOCATOR_VARIANT, ALLOCATOR_MODE and
ALLOCATOR_JOBS_PER_GPU that are set. The file is replaced when that changes.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from allocator.io.tables.limited_reader import read_json, read_start

SETTINGS_FILE = "settings.json"  # in the folder of an allocation


def progress(done: float, safe: float) -> None:
    """Report progress; outside of an allocation nothing happens.

    `done` is the work done in all, and `safe` the part that the last checkpoint holds.
    """
    if name := os.environ.get("ALLOCATOR_PROGRESS"):
        write(Path(name), done, safe)


def read_settings() -> dict[str, str]:
    """Return the settings that hold for the job now; {} outside of an allocation.

    A job may call this between two steps, at little cost.
    """
    name = os.environ.get("ALLOCATOR_SETTINGS")
    return dict(read_json(Path(name)) or {}) if name else {}


def write(path: Path, done: float, safe: float) -> None:
    """Replace the report in a file. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(f"{done!r} {safe!r}\n", encoding="ascii")
    os.replace(temporary, path)


def read(path: Path) -> tuple[float, float] | None:
    """Return (done, safe) of the line in the file, or None if there is no valid line."""
    try:
        words = read_start(path, 200).split()
        done = float(words[0])
        safe = float(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return (
        (max(done, safe), safe)
        if math.isfinite(done) and math.isfinite(safe) and safe >= 0
        else None
    )
