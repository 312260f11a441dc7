"""Warnings of prices that are probably wrong (pools.csv, prices.csv).

Prices that are text or negative are faults of their cell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.domain.findings import Findings, quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Market


def check(grids: Mapping[str, ParsedTable], begin_s: float, found: Findings) -> None:
    """Warn of spot prices above on demand, pools without a price, and rows without an effect.

    A spot price is compared with the price on demand of the same GPU type.
    """
    pools = grids["pools.csv"]
    prices = grids["prices.csv"]
    sure = pools.ok("market", "price_per_gpu_hour", "gpu_type", "pool")
    dollars = pools["price_per_gpu_hour"]
    priced = pools.given("price_per_gpu_hour") & sure
    cheapest: dict[str, int] = {}  # cheapest pool on demand of each type
    for i in np.flatnonzero(
        priced & (pools["market"] == Market.ON_DEMAND) & (dollars > 0)
    ).tolist():
        best = cheapest.setdefault(pools["gpu_type"][i], i)
        cheapest[pools["gpu_type"][i]] = i if dollars[i] < dollars[best] else best
    other = np.fromiter((cheapest.get(t, -1) for t in pools["gpu_type"]), np.int64, len(pools))
    spot = sure & (pools["market"] == Market.SPOT) & (other >= 0)
    limit = np.where(other >= 0, dollars[other] if len(dollars) else 0.0, np.inf)

    def dear(place: str, price: str, i: int) -> str:
        on_demand = int(other[i])
        return (
            f"{place}price_per_gpu_hour {price} is above that of pool"
            f" {quote(pools['pool'][on_demand])}, {dollars[on_demand]:g}, which has"
            f" {quote(pools['gpu_type'][i])} on demand (pools.csv:{pools.lines[on_demand]})"
        )

    pools.warnings(
        found,
        spot & priced & (dollars > limit),
        lambda i: dear("spot ", pools.text("price_per_gpu_hour", i), i),
        "spot prices above on demand",
    )
    number = {name: i for i, name in enumerate(pools["pool"])}
    at = np.fromiter((number.get(name, -1) for name in prices["pool"]), np.int64, len(prices))
    known = (at >= 0) & prices.ok("pool", "price_per_gpu_hour")
    given = known & prices.given("price_per_gpu_hour")
    over = (
        given & spot[at] & (prices["price_per_gpu_hour"] > limit[at])
        if len(pools)
        else given & False
    )
    prices.warnings(
        found,
        over,
        lambda i: dear(
            f"pool {quote(prices['pool'][i])} is spot; its ",
            prices.text("price_per_gpu_hour", i),
            int(at[i]),
        ),
        "spot prices above on demand",
    )
    silent = (
        prices.ok("price_per_gpu_hour", "gpus")
        & ~prices.given("price_per_gpu_hour")
        & ~prices.given("gpus")
    )
    prices.warnings(
        found,
        silent,
        lambda i: "gives neither price_per_gpu_hour nor gpus; nothing changes",
        "rows that say nothing",
    )
    first: dict[int, int] = {}  # row of the first price of a pool
    for i in np.flatnonzero(given & prices.ok("at_s")).tolist():
        if prices["at_s"][i] < prices["at_s"][first.setdefault(int(at[i]), i)]:
            first[int(at[i])] = i
    gap = np.array(
        [i in first and prices["at_s"][first[i]] > begin_s for i in range(len(pools))], dtype=bool
    )
    pools.warnings(
        found,
        sure & ~pools.given("price_per_gpu_hour") & gap,
        lambda i: (
            f"pool {quote(pools['pool'][i])} has no price_per_gpu_hour; it costs nothing until "
            f"prices.csv:{prices.lines[first[i]]} gives one at {prices.text('at_s', first[i])}"
        ),
        "pools without a price at first",
    )
