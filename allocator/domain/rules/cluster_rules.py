"""Rules between pools, speeds, prices, nodes, placements, reservations, tenants and quotas.

Some rows of rates.csv are shapes. A row with `spread` = k is the speed on k nodes. Where a pool of
its GPU type has nodes, the fewest nodes that hold so many GPUs are the packed shape, and every
larger k is a shape of its own. Where no such pool has nodes, nobody knows on how many nodes a job
is: there the row is an alternative to the other rows of its size.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from allocator.domain.findings import quote, suggest_names
from allocator.domain.grid import ParsedTable, number_names
from allocator.domain.problem import Bools, Ints, Isolation, Market, State
from allocator.domain.rules.job_rules import primary_of_jobs
from allocator.domain.rules.rule import Check, Round, Rule, lacks, reference
from allocator.domain.schema.cells import parse_hazard, parse_value
from allocator.domain.schema.columns import CURVE_PARAMETERS
from allocator.domain.settings import longrun_faults

ALTERNATIVES = ("batch_size", "accumulation", "memory_gb", "variant", "observed")
"""Columns in which rows of rates.csv differ that agree in model, GPU type, size and nodes."""


def _check_curves(x: Round) -> None:
    """Check the parameters of speed curves."""
    curves = x["models.csv"]
    for i in np.flatnonzero(curves.ok("kind", "parameters")).tolist():
        _, wrong, strange = curve_parameters(curves.shown("kind", i), curves["parameters"][i])
        for message in wrong:
            curves.fault(i, f"parameters: {message}")
        for message in strange:
            words = f"parameters: {message}"
            x.findings.warn(curves.schema.file, curves.lines[i], words, "unknown parameters")


# the curves of the next round have the same numbers
_read_number = lru_cache(maxsize=1 << 14, typed=True)(parse_value)


def curve_parameters(
    kind: str, given: Mapping[str, object]
) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the parameters of a curve with defaults, their faults, and their warnings."""
    columns = {c.name: c for c in CURVE_PARAMETERS[kind]}
    values: dict[str, float] = {}
    hint = suggest_names([name for name in given if name not in columns], columns)
    strange = [
        f"{quote(name)} is not a parameter of kind {kind}{words}" for name, words in hint.items()
    ]
    wrong = [
        f"{name} is missing; kind {kind} needs it"
        for name, c in columns.items()
        if c.required and name not in given
    ]
    for name, column in columns.items():
        if name in given:
            is_plain = isinstance(given[name], int | float)
            read = _read_number if is_plain else parse_value
            values[name], message = read(column, given[name])
            wrong += [message] if message is not None else []
        elif column.default is not None:
            values[name] = column.default
    if not wrong and values["max_gpus"] < values["min_gpus"]:
        wrong.append(f"max_gpus {values['max_gpus']:g} is below min_gpus {values['min_gpus']:g}")
    return values, wrong, strange


def _check_rates(x: Round) -> None:
    """Warn of rates that need more memory than any GPU of their type has, and of speeds of 0."""
    rates, pools = x["rates.csv"], x["pools.csv"]
    largest: dict[str, float] = {}
    # an unknown memory may have any size
    memory_gb = np.nan_to_num(pools["memory_gb"], nan=math.inf)
    for gpu_type, gb in zip(pools["gpu_type"], memory_gb.tolist(), strict=True):
        largest[gpu_type] = max(largest.get(gpu_type, 0.0), gb)
    most = np.array([largest.get(gpu_type, math.inf) for gpu_type in rates["gpu_type"]])
    with np.errstate(invalid="ignore"):
        over = rates["memory_gb"] > most
    rates.warnings(
        over & rates.ok("memory_gb", "gpu_type"),
        "memory_gb {memory_gb} is more than any {gpu_type} GPU of pools.csv has, {most:g}",
        "memory_gb above that of every pool",
        most=most,
    )
    rates.warnings(
        rates.ok("work_per_s", "model") & (rates["work_per_s"] == 0),
        "work_per_s 0: model {model} is taken as not able to run at {gpus} x {kind}",
        "speeds of 0",
        kind=rates["gpu_type"],
    )


def find_largest_nodes(
    pools: Iterable[tuple[str, str, int]], with_nodes: Container[str]
) -> dict[str, int]:
    """Return the most GPUs of a node by GPU type, for the types of pools that have nodes.

    `pools` has the name, the GPU type and gpus_per_node of each pool.
    """
    largest: dict[str, int] = {}
    for name, gpu_type, gpus in pools:
        if name in with_nodes:
            largest[gpu_type] = max(gpus, largest.get(gpu_type, 0))
    return largest


def count_fewest_nodes(
    gpu_types: Sequence[str], gpus: Ints | Sequence[int], largest: Mapping[str, int]
) -> Ints:
    """Return the fewest nodes that hold so many GPUs of a type, (n,), 0 where none are known."""
    if not largest:
        return np.zeros(len(gpu_types), dtype=np.int64)
    of_node = np.fromiter((largest.get(t, 0) for t in gpu_types), np.int64, len(gpu_types))
    return np.where(of_node > 0, -(-np.asarray(gpus) // np.maximum(of_node, 1)), 0)


def find_shapes(tables: Mapping[str, ParsedTable]) -> Ints:
    """Return the number of nodes of each row of rates.csv that is a spread shape, else 0, (R,)."""
    fewest, spread = _count_fewest(tables), tables["rates.csv"]["spread"]
    return np.where((fewest > 0) & (spread > fewest), spread, 0)


def _check_spread(x: Round) -> None:
    """Check the column `spread` where pools of the GPU type have nodes."""
    rates = x["rates.csv"]
    if not len(x["nodes.csv"]) or not len(rates):
        return
    given = rates.given("spread") & rates.ok("spread", "gpus", "gpu_type")
    fewest, kind = _count_fewest(x.tables), rates["gpu_type"]
    known = given & (fewest > 0)
    over = known & (rates["spread"] > rates["gpus"])
    words = "spread {spread} is above gpus {gpus}: each node has at least one GPU of a job"
    rates.faults(over, words)
    rates.warnings(
        known & ~over & (rates["spread"] < fewest),
        "spread {spread} is below the {fewest} nodes that {gpus} x {kind} need by gpus_per_node of"
        " pools.csv: the row counts as the packed shape",
        "spread below what sizes need",
        fewest=fewest,
        kind=kind,
    )
    first = _find_duplicates(rates, known)
    words = "model {model} has this spread at {gpus} x {kind} already in line {line}"
    line = np.asarray(rates.lines)[first]
    rates.faults(first >= 0, words, kind=kind, line=line)
    rates.warnings(
        given & (fewest == 0) & np.isin(kind, x["pools.csv"]["gpu_type"]),
        "spread {spread} is no shape of its own: no pool of {gpu_type} has nodes in nodes.csv, so"
        " the row counts as packed",
        "spread of GPU types without nodes",
    )


def _count_fewest(tables: Mapping[str, ParsedTable]) -> Ints:
    pools, rates = tables["pools.csv"], tables["rates.csv"]
    rows = zip(pools["pool"], pools["gpu_type"], pools["gpus_per_node"].tolist(), strict=True)
    largest = find_largest_nodes(rows, set(tables["nodes.csv"]["pool"]))
    return count_fewest_nodes(rates["gpu_type"], rates["gpus"], largest)


def _find_duplicates(rates: ParsedTable, which: Bools) -> Ints:
    """Return the earlier row of the same model, type, size and shape, (R,), -1 = none."""
    out = np.full(len(rates), -1)
    seen: dict[tuple[object, ...], int] = {}
    names = ("model", "gpu_type", "gpus", "spread", *ALTERNATIVES)
    for i in np.flatnonzero(which).tolist():
        first = seen.setdefault(tuple(str(rates[name][i]) for name in names), i)
        out[i] = first if first < i else -1
    return out


def _check_sharing(x: Round) -> None:
    """Warn of slowdowns of colocation that no pool uses."""
    sharing, pools = x["sharing.csv"], x["pools.csv"]
    is_alone = pools["sharing"] == Isolation.NONE
    if len(sharing) and len(pools) and (pools.ok("sharing") & is_alone).all():
        words = "is checked, but no pool of pools.csv lets jobs share GPUs (column sharing)"
        x.findings.warn(sharing.schema.file, None, words)


def _check_finished(x: Round) -> None:
    """Warn of finished jobs whose model has no rate and is that of no job; they teach nothing."""
    finished, jobs = x["finished.csv"], x["jobs.csv"]
    if len(finished) and x.names.complete and jobs.complete:
        known = number_names(x.names.rated_models, jobs["model"])
        sort = "models without a rate and a job"
        finished.refer("model", known, "has no rate and no job", sort)


def check_rated(
    file: str, column: str, why: str = "has no rate", sort: str = "names without a rate"
) -> Check:
    """Return the rule that warns of models, or GPU types, without any rate."""

    def check(x: Round) -> None:
        known = x.names.rated_types if column == "gpu_type" else x.names.rated_models
        if x.names.complete and (known or file != "pools.csv"):
            x[file].refer(column, known, why, sort)

    return check


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
    _check_curves,
    _check_rates,
    *(
        Rule(
            "rates.csv",
            f"{name} needs compute_s, the time that a step computes",
            name,
            lambda t, name=name, usual=usual: (  # type: ignore[misc]
                t.given(name) & (t[name] != usual) & ~t.given("compute_s")
            ),
        )
        for name, usual in (("codec_s", 0.0), ("volume_gb", 0.0), ("ratio", 1.0))
    ),
    _check_spread,
    *(check_rated("pauses.csv", column) for column in ("model", "gpu_type")),
    _check_finished,
    _check_sharing,
    *(check_rated("sharing.csv", column) for column in ("model_a", "model_b", "gpu_type")),
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
