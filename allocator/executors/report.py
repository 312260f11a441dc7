"""For jobs: say how far you are. One line in the file that $ALLOCATOR_PROGRESS names:

    <work done in all> <of that safe in the last checkpoint>

Work is in the job's own unit (steps, samples), counted from its very first start on. The file is
replaced each time.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from allocator.io.tables.limited_reader import read_start


def progress(done: float, safe: float) -> None:
    """Report. done: work done in all; safe: what the last checkpoint holds. Outside an
    allocation nothing happens.
    """
    if name := os.environ.get("ALLOCATOR_PROGRESS"):
        temporary = f"{name}.{os.getpid()}"
        Path(temporary).write_text(f"{done!r} {safe!r}\n", encoding="ascii")
        os.replace(temporary, name)


def read(path: Path) -> tuple[float, float] | None:
    """(done, safe) of the line in the file; None where there is none that makes sense."""
    try:
        words = read_start(path, 200).split()
        done, safe = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return (
        (max(done, safe), safe)
        if math.isfinite(done) and math.isfinite(safe) and safe >= 0
        else None
    )
