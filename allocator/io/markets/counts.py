"""spot-counts: the number of available machines at each tick, as JSON.

    {"metadata": {"gap_seconds": 300}, "data": [0, 4, 3 ...]}

Source of the format: the spot traces published with Wu et al., "Can't Be Late: Optimizing Spot
Instance Savings under Deadlines", NSDI 2024. A value is the number of available machines, so 1 is
up and 0 is down; the authors' early simulator negates its files. Files are named
ZONE_TYPE_GPUS.json. If the folder also has the file of the same zone with one GPU per machine, the
small machine should be available more often. If it is not, a warning says so.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.problem import Ints
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import content, form_of, input_error, is_json_of

NAME = re.compile(r"(?P<zone>.+)_(?P<type>[A-Za-z0-9-]+)_(?P<gpus>\d+)\.json")


def recognise(source: Path) -> str:
    """Return "" if the file begins as an object with gap_seconds, else the reason."""
    return "" if is_json_of(source, "gap_seconds") else 'is no JSON with "gap_seconds"'


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool, named after zone, type and GPUs of a machine. Raises InvalidInput."""
    gap, data = _data(source)
    name, kind, gpus, warnings = source.stem, "GPU", 1, []
    there = float((data > 0).mean())
    if match := NAME.fullmatch(source.name):
        kind, gpus = match["type"].upper(), int(match["gpus"])
        name = f"{match['zone']}-{kind.lower()}x{match['gpus']}"
        small = source.with_name(f"{match['zone']}_{match['type']}_1.json")
        other = float((_data(small)[1] > 0).mean()) if gpus != 1 and small.is_file() else 1.0
        if other < there:
            warnings.append(
                f"{source.name}: {match['gpus']} GPUs can be had {there:.0%} of the time, one GPU"
                f" ({small.name}) only {other:.0%}: is 1 = up?"
            )
    gpus = options.gpus or gpus
    note = (
        f"{source.name}: 1 = up; machines can be had {there:.0%} of"
        f" {len(data) * gap / 86400:.1f} days, at most {int(data.max())} of {gpus} GPUs"
    )
    at = np.arange(len(data), dtype=np.float64) * gap
    series = gpu_series(name, kind, at, data * gpus, len(data) * gap)
    return MarketHistory((series,), (note,), tuple(warnings))


def _data(source: Path) -> tuple[float, Ints]:
    with form_of(source, '{"metadata": {"gap_seconds": S}, "data": [...]}'):
        document: Any = json.loads(content(source))
        gap = float(document["metadata"]["gap_seconds"])
        raw = document["data"]
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
