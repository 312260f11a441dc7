"""spot-prices: the spot price history that the AWS command prints as JSON.

The source is one file or a folder of such files:

    {"SpotPriceHistory": [{"AvailabilityZone", "InstanceType", "ProductDescription",
        "SpotPrice": "0.918000", "Timestamp": "2020-02-27T13:48:57.000Z"} ...]}

Rows are newest first, and files may overlap. Prices are per machine. They are divided by the GPUs
of the instance type (GPUS). A price that repeats the one before is dropped. Archived logs:
Narayanan et al., "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML
Training", DISPA 2020.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import (
    MarketHistory,
    MarketOptions,
    PoolSeries,
    parse_dollars,
    step_function,
)
from allocator.io.traces.text import content, form_of, input_error, is_json_of, raise_if

GPUS = {
    "p2.xlarge": 1,
    "p2.8xlarge": 8,
    "p2.16xlarge": 16,
    "p3.2xlarge": 1,
    "p3.8xlarge": 4,
    "p3.16xlarge": 8,
    "g4dn.xlarge": 1,
    "g4dn.12xlarge": 4,
    "p4d.24xlarge": 8,
    "p5.48xlarge": 8,
}
TYPE = {"p2": "K80", "p3": "V100", "g4dn": "T4", "p4d": "A100", "p5": "H100"}
# dollars per GPU-hour in the US; --on-demand gives others
ON_DEMAND = {"p2": 0.90, "p3": 3.06}
# between two records of a pool: a longer gap is noted
LONG_H = 72.0
FIELDS = ("AvailabilityZone", "InstanceType", "SpotPrice", "Timestamp")


def recognise(source: Path) -> str:
    """Return "" for an object with SpotPriceHistory, or a folder with one, else why not."""
    if source.is_dir():
        files = sorted(source.glob("*.json"))[:20]
        return "has no file of spot prices" if all(map(recognise, files)) else ""
    return "" if is_json_of(source, "SpotPriceHistory") else 'has no "SpotPriceHistory"'


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool per zone and instance type. Raises InvalidInput."""
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    records: dict[tuple[str, str], list[tuple[float, float]]] = {}
    faults: list[Fault] = []
    for file in files:
        for n, row in enumerate(_rows(file)):
            try:
                key, at_price = _row(row)
                records.setdefault(key, []).append(at_price)
            except ValueError as error:
                faults.append(Fault(str(file), None, f"SpotPriceHistory[{n}]: {error}"))
    raise_if(source, faults)
    if not records:
        raise input_error(source, "has no spot price")
    series: list[PoolSeries] = []
    gaps = []
    gpus_of = {i: options.gpus or GPUS.get(i, 0) for _, i in records}
    unknown = ", ".join(sorted(i for i, gpus in gpus_of.items() if not gpus))
    for (zone, instance), rows in sorted(records.items()):
        gpus = gpus_of[instance]
        if not gpus:
            continue
        family = instance.split(".")[0]
        at, price = np.array(rows).T
        longest = float(np.diff(np.unique(at)).max(initial=0.0)) / 3600
        if longest > LONG_H:
            gaps.append(
                f"{zone}-{instance}: no record for {longest:.0f} h; the price before it holds until"
                " the next"
            )
        known = ON_DEMAND.get(family, np.nan) if options.on_demand is None else options.on_demand
        series.append(
            PoolSeries(
                f"{zone}-{instance}",
                TYPE.get(family, family),
                price=step_function(at, price / gpus),
                on_demand=known,
                end=float(at.max()),
            )
        )
    if not series:
        words = f"has no instance type whose GPUs are known ({unknown}); say --gpus N"
        raise input_error(source, words)
    left = f"; left out, GPUs unknown: {unknown}" if unknown else ""
    note = (
        f"{source.name}: {sum(map(len, records.values()))} records of {len(records)} pools, "
        f"{sum(len(s.price.at_s) for s in series)} changes{left}"
    )
    return MarketHistory(tuple(series), (note, *gaps))


def _rows(file: Path) -> list[Any]:
    with form_of(file, '{"SpotPriceHistory": [...]}'):
        rows = json.loads(content(file))["SpotPriceHistory"]
    if not isinstance(rows, list):
        raise input_error(file, "SpotPriceHistory is no list")
    return rows


def _row(row: Any) -> tuple[tuple[str, str], tuple[float, float]]:
    """Return zone and instance type of a record, its time and its price. Raises ValueError."""
    if not isinstance(row, dict) or any(not isinstance(row.get(f), str) for f in FIELDS):
        raise ValueError(f"must have the texts {', '.join(FIELDS)}")
    try:
        price = parse_dollars(row["SpotPrice"])
    except ValueError as error:
        raise ValueError(f"SpotPrice {error}") from None
    try:
        when = datetime.fromisoformat(row["Timestamp"].replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f'Timestamp "{row["Timestamp"][:40]}" is no date') from None
    at = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return (row["AvailabilityZone"], row["InstanceType"]), (at, price)
