"""Read prices as plain numbers of US dollars, and check that they are plausible."""

import re

from allocator.io.markets.base import PoolSeries

PLAIN = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+")


def parse_dollars(text: object) -> float:
    """Return the number of a price.

    Raises
    ------
    ValueError
        If it is none. The reason shows how to write the number without its currency sign or
        thousands separator.
    """
    shown = str(text)[:40].strip()
    if not PLAIN.fullmatch(shown):
        bare = re.sub(r"[$€£¥,\s]|USD|EUR", "", shown, flags=re.IGNORECASE)
        hint = f"; write {bare}" if bare != shown and PLAIN.fullmatch(bare) else ""
        raise ValueError(f'"{shown}" is not a plain number of US dollars{hint}')
    value = float(shown)
    if not 0 < value < 1e6:
        raise ValueError(f"{value:g} is no price; it must be above 0")
    return value


def check_prices(series: PoolSeries) -> list[str]:
    """Warn if spot prices of a pool are not below its price on demand."""
    price = series.price.value
    dear = int((price >= series.on_demand).sum()) if series.on_demand > 0 else 0
    if not dear:
        return []
    return [
        f"{series.pool}: {dear} of {len(price)} spot prices are not below the price on demand,"
        f" {series.on_demand:g} per GPU-hour (highest {price.max():g})"
    ]
