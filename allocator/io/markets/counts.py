"""spot-counts: the number of available machines at each tick, as JSON.

    {"metadata": {"gap_seconds": 300}, "data": [0, 4, 3 ...]}

Source of the format: the spot traces published with Wu et al., "Can't Be Late: Optimizing Spot
Instance Savings under Deadlines", NSDI 2024. A value is the number of available machines, so 1 is
up and 0 is down; the authors' early simulator negates its files. Files are named
ZONE_TYPE_GPUS.json. If the folder also has the file of the same zone with one GPU per machine, the
small machine should be available more often. If it is not, a warning says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.problem import Ints
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import content, input_error, read_first_lines

NAME = re.compile(r"(?P<zone>.+)_(?P<type>[A-Za-z0-9-]+)_(?P<gpus>\d+)\.json")


def recognise(source: Path) -> str:
    """Return "" if the file begins as an object with gap_seconds, else the reason."""
    begin = "".join(read_first_lines(source))[:200]
    return (
        ""
        if begin.lstrip().startswith("{") and '"gap_seconds"' in begin
        else 'is no JSON with "gap_seconds"'
    )


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool, named after zone, type and GPUs of a machine. Raises InvalidInput."""
    gap, data = _data(source)
    told = NAME.fullmatch(source.name)
    per_machine = options.gpus or (int(told["gpus"]) if told else 1)
    kind = told["type"].upper() if told else "GPU"
    at = np.arange(len(data), dtype=np.float64) * gap
    there = float((data > 0).mean())
    notes = (
        (
            f"{source.name}: 1 = up; machines can be had {there:.0%} of"
            f" {len(data) * gap / 86400:.1f} days, at most {int(data.max())} of {per_machine} GPUs"
        ),
    )
    name = f"{told['zone']}-{kind.lower()}x{told['gpus']}" if told else source.stem
    return MarketHistory(
        (gpu_series(name, kind, at, data * per_machine, len(data) * gap),),
        notes,
        _compare_with_smaller(source, told, there),
    )


def _data(source: Path) -> tuple[float, Ints]:
    try:
        document: Any = json.loads(content(source))
        gap = float(document["metadata"]["gap_seconds"])
        raw = document["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise input_error(
            source,
            f'is no {{"metadata": {{"gap_seconds": S}}, "data": [...]}}: {error}',
            getattr(error, "lineno", None),
        ) from None
    if not 0 < gap < 1e7:
        raise input_error(source, f"gap_seconds is {gap:g}; it must be above 0")
    if not isinstance(raw, list) or not raw:
        raise input_error(source, "data is no list with values")
    odd = [
        i
        for i, v in enumerate(raw)
        if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < 1_000_000
    ]
    if odd:
        raise input_error(
            source,
            f"data[{odd[0]}] is {raw[odd[0]]!r}, not a number of machines (1 = up)"
            + (f"; {len(odd)} values are wrong" if len(odd) > 1 else ""),
        )
    return gap, np.array(raw, dtype=np.int64)


def _compare_with_smaller(
    source: Path, told: re.Match[str] | None, there: float
) -> tuple[str, ...]:
    if told is None or int(told["gpus"]) == 1:
        return ()
    small = source.with_name(f"{told['zone']}_{told['type']}_1.json")
    if not small.is_file():
        return ()
    other = float((_data(small)[1] > 0).mean())
    if other >= there:
        return ()
    return (
        (
            f"{source.name}: {told['gpus']} GPUs can be had {there:.0%} of the time, one GPU"
            f" ({small.name}) only {other:.0%}: is 1 = up?"
        ),
    )
