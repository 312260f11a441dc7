"""The formats of spot markets by name.

To add a format, write its module (see the docstring of the package) and add one line here.
"""

from collections.abc import Mapping

from allocator.io.formats import FormatEntry

_HERE = "allocator.io.markets"
MARKETS: Mapping[str, FormatEntry] = {
    "spot-counts": FormatEntry(
        f"{_HERE}.counts",
        "JSON",
        "SkyPilot spot traces: machines that can be had, every so many seconds",
    ),
    "spot-events": FormatEntry(
        f"{_HERE}.events", "CSV", "Bamboo spot traces: milliseconds, add or remove, node"
    ),
    "spot-held": FormatEntry(
        f"{_HERE}.held", "TXT", "date, time and number of machines that run, in any order"
    ),
    "spot-prices": FormatEntry(
        f"{_HERE}.prices", "JSON", "AWS spot price history: zone, instance type, price, time"
    ),
    "spot-log": FormatEntry(
        f"{_HERE}.log",
        "OUT",
        "log of one persistent request per zone: created, running, not running, failed",
    ),
    "catalog": FormatEntry(
        f"{_HERE}.catalog",
        "CSV",
        "SkyPilot catalogue: prices on demand and spot by accelerator and zone",
    ),
}
