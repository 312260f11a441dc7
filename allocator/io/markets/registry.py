"""The formats of spot markets by name.

To add a format, write its module (see the docstring of the package) and add one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from allocator.io.markets.base import MarketFormat


@dataclass(frozen=True)
class MarketFormatEntry:
    """A format. module: has recognise and read. source: what the user names. help: one line."""

    module: str
    source: str
    help: str


_HERE = "allocator.io.markets"
MARKETS: Mapping[str, MarketFormatEntry] = {
    "spot-counts": MarketFormatEntry(
        f"{_HERE}.counts",
        "JSON",
        "SkyPilot spot traces: machines that can be had, every so many seconds",
    ),
    "spot-events": MarketFormatEntry(
        f"{_HERE}.events", "CSV", "Bamboo spot traces: milliseconds, add or remove, node"
    ),
    "spot-held": MarketFormatEntry(
        f"{_HERE}.held", "TXT", "date, time and number of machines that run, in any order"
    ),
    "spot-prices": MarketFormatEntry(
        f"{_HERE}.prices", "JSON", "AWS spot price history: zone, instance type, price, time"
    ),
    "spot-log": MarketFormatEntry(
        f"{_HERE}.log",
        "OUT",
        "log of one persistent request per zone: created, running, not running, failed",
    ),
    "catalog": MarketFormatEntry(
        f"{_HERE}.catalog",
        "CSV",
        "SkyPilot catalogue: prices on demand and spot by accelerator and zone",
    ),
}


def load(name: str) -> MarketFormat:
    """The module of a format. Raises KeyError for a name that is not registered."""
    return cast("MarketFormat", import_module(MARKETS[name].module))
