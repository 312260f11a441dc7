"""catalog: list prices per machine, on demand and spot, as CSV (SkyPilot catalogue).

A row gives the prices of one accelerator, number and zone. Its columns are InstanceType,
AcceleratorName, AcceleratorCount, Price, SpotPrice, Region and, optionally, AvailabilityZone. On
Google Cloud a machine and its GPUs are separate rows. They are added where the row of the machine
is known (HOSTS). A price of 700 is a placeholder and is dropped. An empty spot price means that the
machine is not offered as spot. A warning names spot prices that are not below the price on demand:
some of these rows are wrong matches of products.
"""

from pathlib import Path

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, PoolSeries, Steps, parse_dollars
from allocator.io.traces.text import csv_rows, input_error, missing_columns, raise_if, text

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price", "SpotPrice")
MACHINE_TYPES = {
    "A100": "a2-highgpu-{}g",
    "A100-80GB": "a2-ultragpu-{}g",
    "H100": "a3-highgpu-{}g",
    "H200": "a3-ultragpu-{}g",
    "B200": "a4-highgpu-{}g",
}
PLACEHOLDER = 700.0


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns, else the reason."""
    return missing_columns(source, COLUMNS)


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read a pool for each accelerator, number and zone with a spot price. Raises InvalidInput."""
    rows = csv_rows(source, [text(c, required=False) for c in (*COLUMNS, "AvailabilityZone")])
    faults: list[Fault] = []
    price: dict[str, list[float]] = {"Price": [], "SpotPrice": []}
    for column, values in price.items():
        for cell, line in zip(rows[column], rows.lines, strict=True):
            try:
                values.append(parse_dollars(cell) if cell.strip() else np.nan)
            except ValueError as error:
                faults.append(Fault(str(source), line, f"{column} {error}"))
    raise_if(source, faults)
    zone = [z or r for z, r in zip(rows["AvailabilityZone"], rows["Region"], strict=True)]
    machine_price = {
        (rows["InstanceType"][i], zone[i]): i
        for i in range(len(rows))
        if not rows["AcceleratorName"][i]
    }
    series: dict[str, PoolSeries] = {}
    alone = 0
    dropped = 0
    for i, kind in enumerate(rows["AcceleratorName"]):
        gpus = _whole(rows["AcceleratorCount"][i])
        own, spot = price["Price"][i], price["SpotPrice"][i]
        if not kind or kind.lower().startswith("tpu") or own == PLACEHOLDER or gpus < 1:
            dropped += bool(kind)
            continue
        if not rows["InstanceType"][i]:
            base = machine_price.get((MACHINE_TYPES.get(kind, "").format(gpus), zone[i]))
            alone += base is None
            if base is not None:
                own += price["Price"][base]
                spot += price["SpotPrice"][base]
        if spot > 0:
            name = f"{zone[i]}-{kind.lower()}x{gpus}"
            paid = Steps(np.zeros(1), np.array([spot / gpus]))
            series[name] = PoolSeries(name, kind, price=paid, on_demand=own / gpus, end=0.0)
    if not series:
        raise input_error(source, recognise(source) or "has no accelerator with a spot price")
    notes = [f"{source.name}: {len(series)} offers with a spot price"]
    if alone:
        notes.append(
            f"{source.name}: {alone} rows of GPUs have no row of their machine; their prices are"
            " without it"
        )
    if dropped:
        notes.append(
            f"{source.name}: {dropped} rows dropped: TPUs, placeholders, no number of accelerators"
        )
    return MarketHistory(tuple(series.values()), tuple(notes))


def _whole(cell: str) -> int:
    try:
        value = float(cell)
    except ValueError:
        return 0
    return int(value) if 0 < value < 10_000 and value == int(value) else 0
