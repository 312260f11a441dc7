"""spot-held: lines `YYYY-MM-DD, HH:MM:SS, running machines`, in any order, some of them twice.

Source of the format: the Google Cloud logs published with Bamboo (NSDI 2023). If one second has
several numbers, the smallest counts.
"""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import first_line, input_error, raise_if, read_lines


def recognise(source: Path) -> str:
    """Return "" if the first line is a date, a time and a number; else the reason."""
    return "" if _parse_line(first_line(source)) else "its first line is no `date, time, number`"


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool, named after the file. Raises InvalidInput."""
    lines = read_lines(source)
    parsed = [_parse_line(text) for _, text in lines]
    faults = [
        Fault(str(source), line, f'"{text[:60]}" is no `YYYY-MM-DD, HH:MM:SS, number`')
        for (line, text), row in zip(lines, parsed, strict=True)
        if row is None
    ]
    raise_if(source, faults)
    if not lines:
        raise input_error(source, "has no line `date, time, number`")
    at, count = np.array(parsed, dtype=np.float64).T
    # the smallest number of a second comes last, because the last one counts
    order = np.lexsort((-count, at))
    times = np.unique(at)
    since = at - times[0]
    machines = options.gpus or 1
    notes = [
        f"{source.name}: at most {int(count.max())} machines of {machines} GPUs over"
        f" {since.max() / 3600:.1f} h; {(np.diff(at) < 0).sum()} lines out of order,"
        f" {len(at) - len(times)} seconds more than once (the smallest number counts)"
    ]
    longest = np.diff(times).max(initial=0.0)
    if longest > 3600:
        notes.append(
            f"{source.name}: a gap of {longest / 3600:.1f} h, bridged by the number before it"
        )
    gpus = count[order] * machines
    series = gpu_series(source.stem, "GPU", since[order], gpus, float(since.max()))
    return MarketHistory((series,), tuple(notes))


def _parse_line(line: str) -> tuple[float, float] | None:
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != 3 or not cells[2].isdigit() or len(cells[2]) > 6:
        return None
    try:
        when = datetime.strptime(f"{cells[0]} {cells[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp(), float(cells[2])
