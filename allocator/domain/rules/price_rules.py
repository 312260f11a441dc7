"""Warnings of prices that are probably wrong (pools.csv, prices.csv).

Prices that are text or negative are faults of their cell.
"""

import math

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.problem import Market
from allocator.domain.rules.rule import Round

PRICE = "price_per_gpu_hour"


def check(x: Round) -> None:
    """Warn of spot prices above on demand, pools without a price, and rows without an effect.

    A spot price is compared with the price on demand of the same GPU type.
    """
    pools, prices = x["pools.csv"], x["prices.csv"]
    sure = pools.ok("market", PRICE, "gpu_type", "pool")
    dollars, kind = pools[PRICE], pools["gpu_type"]
    priced = pools.given(PRICE) & sure
    on_demand = np.flatnonzero(priced & (pools["market"] == Market.ON_DEMAND) & (dollars > 0))
    dearest_first = on_demand[np.argsort(dollars[on_demand], kind="stable")][::-1]
    cheapest = {kind[i]: i for i in dearest_first.tolist()}  # pool on demand of each type
    other = np.array([cheapest.get(t, -1) for t in kind], dtype=np.int64)
    spot = sure & (pools["market"] == Market.SPOT)
    limit = np.append(dollars, math.inf)[other]

    def dear(place: str, price: str, i: int) -> str:
        most = int(other[i])
        return (
            f"{place}{PRICE} {price} is above that of pool {pools.shown('pool', most)},"
            f" {dollars[most]:g}, which has {quote(kind[i])} on demand"
            f" (pools.csv:{pools.lines[most]})"
        )

    sort = "spot prices above on demand"
    pools.warnings(
        spot & priced & (dollars > limit),
        lambda i: dear("spot ", pools.text(PRICE, i), i),
        sort,
    )
    at = prices.codes("pool", {name: i for i, name in enumerate(pools["pool"])})
    given = (at >= 0) & prices.ok("pool", PRICE) & prices.given(PRICE)
    over = np.append(spot, False)[at] & (prices[PRICE] > np.append(limit, math.inf)[at])
    prices.warnings(
        given & over,
        lambda i: dear(
            f"pool {prices.shown('pool', i)} is spot; its ", prices.text(PRICE, i), int(at[i])
        ),
        sort,
    )
    silent = prices.ok(PRICE, "gpus") & ~prices.given(PRICE) & ~prices.given("gpus")
    words = f"gives neither {PRICE} nor gpus; nothing changes"
    prices.warnings(silent, words, "rows that say nothing")
    dated = np.flatnonzero(given & prices.ok("at_s"))
    latest_first = dated[np.argsort(prices["at_s"][dated], kind="stable")][::-1]
    first = np.full(len(pools), -1)  # row of the first price of a pool
    first[at[latest_first]] = latest_first
    begins_s = np.append(prices["at_s"], -math.inf)[first]
    pools.warnings(
        sure & ~pools.given(PRICE) & (begins_s > x.now_s),
        lambda i: (
            f"pool {pools.shown('pool', i)} has no {PRICE}; it costs nothing until "
            f"prices.csv:{prices.lines[first[i]]} gives one at {prices.text('at_s', first[i])}"
        ),
        "pools without a price at first",
    )
