"""Rules between pools, prices, nodes, placements, reservations, tenants and quotas."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Bools, Ints, Market, State
from allocator.domain.rules import rate_rules
from allocator.domain.rules.job_rules import primary_of_jobs
from allocator.domain.rules.rate_rules import check_rated
from allocator.domain.rules.rule import Check, Round, Rule, lacks, reference
from allocator.domain.schema.texts import parse_hazard
from allocator.domain.settings import longrun_faults

HEADROOM = "headroom_gpus sessions_per_hour session_s"
"""Columns that say how much headroom a pool keeps: a number, or the sessions to come."""
PRICE = "price_per_gpu_hour"
MOST_RESERVED = 8  # of a pool at once: each doubles the rows of the pool


def _check_pools(x: Round) -> None:
    """Check revocations by age, and warn of a cluster without pools."""
    pools = x["pools.csv"]
    if pools.present and pools.whole and not len(pools):
        x.findings.warn("pools.csv", None, "has no pools; every job waits")
    for i in np.flatnonzero(pools.given("hazard_by_age")).tolist():
        if pools["revocations_per_gpu_hour"][i] > 0:
            words = "both revocations_per_gpu_hour and hazard_by_age are given; leave one empty"
            pools.fault(i, words)
        try:
            parse_hazard(pools["hazard_by_age"][i])
        except ValueError as why:
            pools.fault(i, f"hazard_by_age {pools.shown('hazard_by_age', i)} {why}")


def _check_longrun_budgets(x: Round) -> None:
    tenants = x["tenants.csv"]
    keys = ("average_per_hour", "amount", "until_s")
    given = np.array([tenants.given(name) for name in keys])
    for i in np.flatnonzero(given.any(axis=0)).tolist():
        for message in longrun_faults(
            {key for key, some in zip(keys, given[:, i], strict=True) if some}
        ):
            tenants.fault(i, message)


def _check_placements(x: Round) -> None:
    """Check that placements name running jobs, nodes of their pools, and all of their GPUs.

    A job with gpu_fraction names the GPU of which it has a share. Warn of nodes on which more GPUs
    are placed than they have.
    """
    placed, jobs, nodes = x["placements.csv"], x["jobs.csv"], x["nodes.csv"]
    if not len(placed):
        return
    if not nodes.present and nodes.whole:
        x.findings.fault("placements.csv", None, "names nodes, but there is no nodes.csv")
    x.refer("placements.csv", "job_id")
    if nodes.present:
        x.refer("placements.csv", "node")
    job, node = placed.codes("job_id", x.names.jobs), placed.codes("node", x.names.nodes)

    def of_jobs(column: Iterable[Any], none: Any = False) -> Any:
        """Return the entries of the jobs of the rows, (n,); `none` where there is no such job."""
        return np.array([*column, none])[job]

    at = of_jobs(jobs.lines)
    known = of_jobs(jobs.ok("state", "pool", "gpus"))
    runs = known & of_jobs(jobs["state"] == State.RUNNING)
    words = "job_id {job_id} is not running (jobs.csv:{at})"
    placed.faults(known & ~runs, words, at=at)
    pool = of_jobs(jobs["pool"], "")
    home = np.array([*nodes["pool"], ""])[node]
    placed.faults(
        runs & (node >= 0) & placed.ok("node") & (pool != "") & (home != "") & (pool != home),
        lambda i: (
            f"node {placed.shown('node', i)} is in pool {quote(str(home[i]))}, "
            f"job {placed.shown('job_id', i)} runs in pool {quote(str(pool[i]))}"
        ),
    )
    if not (placed.whole and placed.ok("job_id", "gpus").all()):
        return
    total = np.bincount(job[runs], placed["gpus"][runs], minlength=len(jobs) + 1)[job]
    held = of_jobs(jobs["gpus"])
    is_first = np.isin(
        np.arange(len(placed)), np.unique(np.where(runs, job, -1), return_index=True)[1]
    )
    placed.faults(
        runs & is_first & of_jobs(jobs.given("gpus")) & (total != held),
        "job {job_id} has {total:g} GPUs on nodes, but gpus {held} in jobs.csv:{at}",
        total=total,
        held=held,
        at=at,
    )
    shares = runs & of_jobs(jobs.given("gpu_fraction"))
    ok, given = placed.ok("gpu"), placed.given("gpu")
    words = "gpu is empty, but job {job_id} has gpu_fraction (jobs.csv:{at})"
    placed.faults(shares & ok & ~given, words, at=at)
    words = "gpu {gpu} is given, but job {job_id} has no gpu_fraction"
    placed.faults(runs & ~shares & ok & given, words)
    # the GPUs of two jobs of a colocation count once, and so does a GPU of which jobs have shares
    on = (node >= 0) & (of_jobs(primary_of_jobs(jobs, x.names), -1) < 0)
    whole = on & ~shares
    parts = np.stack([node, placed["gpu"]])[:, on & shares]
    used = np.bincount(node[whole], placed["gpus"][whole], minlength=len(nodes))
    used = used + np.bincount(np.unique(parts, axis=1)[0], minlength=len(nodes))
    nodes.warnings(
        (used > nodes["gpus"]) & nodes.ok("gpus") if len(nodes) else nodes.ok(),
        "gpus {gpus}, but {used:g} are placed there",
        "nodes with more GPUs placed than they have",
        used=used,
    )


def _has_many_reservations(t: ParsedTable) -> Bools:
    """Find the reservations at whose begin more than MOST_RESERVED of their pool are in force."""
    at_s, until_s = t["at_s"], np.where(t.given("until_s"), t["until_s"], np.inf)
    pool = np.array(t["pool"])
    begin = at_s[:, None]
    in_force = (at_s <= begin) & (begin < until_s) & (pool[:, None] == pool)
    return np.asarray(in_force.sum(axis=1) > MOST_RESERVED)


def _check_reservations(x: Round) -> None:
    """Warn of reservations of more GPUs than their pools have."""
    rows, pools = x["reservations.csv"], x["pools.csv"]
    size = dict(zip(pools["pool"], pools["gpus"].tolist(), strict=True))
    most = np.array([size.get(pool, np.inf) for pool in rows["pool"]])
    rows.warnings(
        rows.ok("gpus") & (rows["gpus"] > most),
        "gpus {gpus} are more than the {most:g} GPUs of pool {pool}",
        "reservations of more GPUs than pools have",
        most=most,
    )


def _check_prices(x: Round) -> None:
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


def _check_tree(x: Round) -> None:
    """Check that parents exist, and that no tenant is above itself.

    Warn of guarantees above the limit of a tenant further up.
    """
    tenants = x["tenants.csv"]
    x.refer("tenants.csv", "parent")
    parent = tenants.codes("parent", tenants.index)
    least, most = tenants["guaranteed_gpus"], tenants["max_gpus"]
    is_limit = tenants.given("max_gpus") & tenants.ok("max_gpus")
    for i in range(len(tenants)):
        above = _ancestors(parent, i)
        if above and above[-1] == i:
            names = " -> ".join(tenants.shown("tenant", k) for k in (i, *above))
            tenants.fault(i, f"parent makes a circle: {names}")
            continue
        for k in above:
            if is_limit[k] and least[i] > most[k] and tenants.ok("guaranteed_gpus")[i]:
                x.findings.warn(
                    tenants.schema.file,
                    tenants.lines[i],
                    f"guaranteed_gpus {tenants.text('guaranteed_gpus', i)} is above max_gpus"
                    f" {tenants.text('max_gpus', k)} of {tenants.shown('tenant', k)} above it",
                    "guaranteed_gpus above max_gpus of a tenant above",
                    tenants.subject(i),
                )


def _ancestors(parent: Ints, i: int) -> list[int]:
    """Return the tenants above tenant i, the nearest first; the last is i itself in a circle.

    A circle that does not contain i ends the list where it closes.
    """
    above: list[int] = []
    k = int(parent[i])
    while k >= 0 and k not in above:
        above.append(k)
        if k == i:
            break
        k = int(parent[k])
    return above


RULES: tuple[Check, ...] = (
    *rate_rules.RULES,
    _check_pools,
    check_rated("pools.csv", "gpu_type", "has no rate of any model", "GPU types without any rate"),
    *(
        reference(file, "pool")
        for file in ("prices.csv", "nodes.csv", "interactive.csv", "reservations.csv")
    ),
    reference("reservations.csv", "tenant"),
    Rule(
        "reservations.csv",
        "until_s {until_s} is not after at_s {at_s}",
        "at_s until_s",
        lambda t: t.given("until_s") & (t["until_s"] <= t["at_s"]),
    ),
    Rule(
        "reservations.csv",
        f"is one of more than {MOST_RESERVED} reservations of pool {{pool}} at {{at_s}}",
        "pool at_s until_s",
        _has_many_reservations,
    ),
    Rule(
        "reservations.csv",
        "is for job {job_id} and for tenant {tenant}; it can be for one of them",
        "job_id tenant",
        lambda t: t.given("job_id") & t.given("tenant"),
    ),
    _check_reservations,
    Rule(
        "nodes.csv",
        "returns_s {returns_s} needs leaves_s, which is empty",
        "leaves_s returns_s",
        lacks("returns_s", "leaves_s"),
    ),
    Rule(
        "nodes.csv",
        "returns_s {returns_s} is not after leaves_s {leaves_s}",
        "leaves_s returns_s",
        lambda t: t.given("leaves_s") & (t["returns_s"] <= t["leaves_s"]),
    ),
    _check_prices,
    *(
        Rule(
            file,
            "guaranteed_gpus {guaranteed_gpus} is above max_gpus {max_gpus}",
            "max_gpus guaranteed_gpus",
            lambda t: t.given("max_gpus") & (t["guaranteed_gpus"] > t["max_gpus"]),
            "guaranteed_gpus above max_gpus",
        )
        for file in ("tenants.csv", "quotas.csv")
    ),
    _check_tree,
    *(reference("quotas.csv", column) for column in ("tenant", "pool", "gpu_type")),
    Rule(
        "quotas.csv",
        "gpu_type and pool are both given; a quota is of one of them",
        "",
        lambda t: t.given("gpu_type") & t.given("pool"),
    ),
    Rule(
        "quotas.csv",
        "lend_gpus {lend_gpus} is above guaranteed_gpus {guaranteed_gpus}: all of them are lent",
        "lend_gpus guaranteed_gpus",
        lambda t: t.given("lend_gpus") & (t["lend_gpus"] > t["guaranteed_gpus"]),
        "lend_gpus above guaranteed_gpus",
    ),
    _check_longrun_budgets,
    _check_placements,
    *(reference("received.csv", column) for column in ("job_id", "gpu_type")),
    Rule(
        "interactive.csv",
        "headroom_gpus and sessions are both given; headroom is one of them",
        HEADROOM,
        lambda t: t.given("headroom_gpus") & (t.given("sessions_per_hour") | t.given("session_s")),
    ),
    Rule(
        "interactive.csv",
        "needs both sessions_per_hour and session_s, or none of them",
        HEADROOM,
        lambda t: ~t.given("headroom_gpus") & (t.given("sessions_per_hour") ^ t.given("session_s")),
    ),
    Rule(
        "interactive.csv",
        "keeps nothing: it says neither headroom_gpus nor which sessions come; a queue keeps what"
        " its own sessions needed",
        HEADROOM,
        lambda t: ~(t.given("headroom_gpus") | t.given("sessions_per_hour") | t.given("session_s")),
        "headroom left to a queue",
    ),
)
"""Rules in the order in which messages about one row are listed."""
