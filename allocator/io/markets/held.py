"""spot-held: lines `YYYY-MM-DD, HH:MM:SS, running machines`, in any order, some of them twice.

Source of the format: the Google Cloud logs published with Bamboo (NSDI 2023). If one second has
several numbers, the smallest counts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, PoolSeries, step_function
from allocator.io.traces.text import content, input_error, raise_if, read_first_lines


def recognise(source: Path) -> str:
    """Return "" if the first line is a date, a time and a number; else the reason."""
    return (
        ""
        if _parse_line(next(iter(read_first_lines(source)), ""))
        else "its first line is no `date, time, number`"
    )


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool, named after the file. Raises InvalidInput."""
    faults = []
    rows = []
    for line, text in enumerate(
        content(source).decode("utf-8-sig", "replace").splitlines(), start=1
    ):
        if not text.strip():
            continue
        row = _parse_line(text)
        if row is None:
            faults.append(
                Fault(
                    str(source), line, f'"{text.strip()[:60]}" is no `YYYY-MM-DD, HH:MM:SS, number`'
                )
            )
        else:
            rows.append(row)
    raise_if(source, faults)
    if not rows:
        raise input_error(source, "has no line `date, time, number`")
    at, count = np.array(rows).T
    # the smallest number of a second comes last, because the last one counts
    order = np.lexsort((-count, at))
    out_of_order = int((np.diff(at) < 0).sum())
    twice = len(at) - len(np.unique(at))
    begin = at.min()
    times, held = step_function(at[order] - begin, count[order])
    machines = options.gpus or 1
    longest = float(np.diff(np.unique(at)).max(initial=0.0))
    hours = (at.max() - begin) / 3600
    notes = [
        f"{source.name}: at most {int(count.max())} machines of {machines} GPUs over {hours:.1f} h;"
        f" {out_of_order} lines out of order, {twice} seconds more than once (the smallest number"
        " counts)"
    ]
    if longest > 3600:
        notes.append(
            f"{source.name}: a gap of {longest / 3600:.1f} h, bridged by the number before it"
        )
    return MarketHistory(
        (
            PoolSeries(
                source.stem,
                "GPU",
                times,
                held.astype(np.int64) * machines,
                end=float(at.max() - begin),
            ),
        ),
        tuple(notes),
    )


def _parse_line(line: str) -> tuple[float, float] | None:
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != 3 or not cells[2].isdigit() or len(cells[2]) > 6:
        return None
    try:
        when = datetime.strptime(f"{cells[0]} {cells[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp(), float(cells[2])
