"""Clusters that one job could be trained on: the checked content of clusters.csv."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Bools, Floats, Ints
from allocator.domain.schema.cells import parse_hazard
from allocator.domain.schema.spot_columns import OF_CLUSTER
from formulations.transient.revocations import Hazard

SPOT = 1  # index of "spot" in the choices of `market`
MOST_STATES = 1_000_000  # combinations of working servers that are enumerated


@dataclass(frozen=True)
class TransientCluster:
    """One cluster of G kinds of servers, arrays (G,).

    price is in dollars per hour of one server, servers_price that of parameter servers. measured,
    every_s and quality are nan if not given; cap and sharpness inf mean none, and a sharp corner.
    """

    name: str
    gpu_types: tuple[str, ...]
    spot: Bools
    workers: Ints
    work_per_s: Floats
    price: Floats
    hazards: tuple[Hazard, ...]
    startup_s: Floats
    replace_s: Floats
    servers_price: float
    cap: float
    sharpness: float
    measured: float
    checkpoint_s: float
    every_s: float
    synchronous: bool
    quality: float

    @property
    def dollars_per_hour(self) -> float:
        """Price of all servers."""
        return float(self.workers @ self.price) + self.servers_price

    @property
    def own_speed(self) -> float:
        """Work per second of the workers without any limit; in step, the slowest sets the pace."""
        if self.synchronous:
            return float(self.workers.sum() * self.work_per_s.min())
        return float(self.workers @ self.work_per_s)


def clusters(table: ParsedTable) -> tuple[TransientCluster, ...]:
    """Return the clusters in order of their first rows; faults are added to the table.

    The result has no meaning if there are faults.
    """
    _check_markets(table)
    hazards = [_hazard(table, i) for i in range(len(table))]
    names, number = table.columns["cluster"].factors
    rows = [np.flatnonzero(number == k) for k in range(len(names))]
    for same in rows:
        _check_consistency(table, same.tolist())
    if table.findings.faults:
        return ()
    return tuple(
        _cluster(table, name, same, hazards) for name, same in zip(names, rows, strict=True)
    )


def _check_markets(table: ParsedTable) -> None:
    """Check prices of one type by market, and that only revocable servers are revoked."""
    ok = table.ok("market", "price_per_hour", "gpu_type")
    spot = table["market"] == SPOT
    price = table["price_per_hour"]
    types = np.array(table["gpu_type"], dtype=object)
    for i in np.flatnonzero(ok & spot).tolist():
        dear = ok & ~spot & (types == types[i]) & (price < price[i])
        for k in np.flatnonzero(dear)[:1].tolist():
            table.fault(
                i,
                f"price_per_hour {price[i]:g} of a spot server is above {price[k]:g}, the on-demand"
                f" price of {quote(types[i])} in line {table.lines[k]}",
            )
    taken = (
        (table["revocations_per_hour"] > 0)
        | table.given("hazard_by_age")
        | table.given("lifetime_s")
    )
    table.faults(
        ok & ~spot & taken,
        "an on-demand server is not taken back; write spot as its market, or leave"
        " revocations_per_hour, hazard_by_age and lifetime_s empty",
    )
    table.faults(
        table.given("hazard_by_age") & table.given("revocations_per_hour"),
        "both revocations_per_hour and hazard_by_age are given; leave one empty",
    )


def _hazard(table: ParsedTable, i: int) -> Hazard:
    life = float(table["lifetime_s"][i]) / 3600.0 if table.given("lifetime_s")[i] else math.inf
    text = table["hazard_by_age"][i]
    if not text:
        return Hazard.constant(float(table["revocations_per_hour"][i]), life)
    try:
        return replace(parse_hazard(text), lifetime_h=life)
    except ValueError as why:
        table.fault(i, f"hazard_by_age {quote(text)} {why}")
        return Hazard.constant(0.0)


def _check_consistency(table: ParsedTable, same: list[int]) -> None:
    """Check that rows of one cluster do not contradict each other, and are not too many."""
    for column in OF_CLUSTER:
        given = [i for i in same if table.given(column)[i]]
        for i in given[1:]:
            if table[column][i] != table[column][given[0]]:
                table.fault(
                    i,
                    f"{column} {table.text(column, i)} differs from that in line "
                    f"{table.lines[given[0]]} of the same cluster {quote(table['cluster'][i])}",
                )
    states = math.prod(int(table["workers"][i]) + 1 for i in same if table.ok("workers")[i])
    if len(same) > 1 and states > MOST_STATES:
        table.fault(
            same[0],
            f"cluster {quote(table['cluster'][same[0]])} has {states} combinations of servers "
            f"of different sorts; at most {MOST_STATES} are looked at",
        )


def _cluster(table: ParsedTable, name: str, same: Ints, hazards: list[Hazard]) -> TransientCluster:
    def of_cluster(column: str, none: float) -> float:
        given = [i for i in same.tolist() if table.given(column)[i]]
        return float(table[column][given[0]]) if given else none

    startup = table["startup_s"][same]
    return TransientCluster(
        name=name,
        gpu_types=tuple(table["gpu_type"][i] for i in same.tolist()),
        spot=table["market"][same] == SPOT,
        workers=table["workers"][same],
        work_per_s=table["work_per_s"][same],
        price=table["price_per_hour"][same],
        hazards=tuple(hazards[i] for i in same.tolist()),
        startup_s=startup,
        replace_s=np.where(table.given("replace_s")[same], table["replace_s"][same], startup),
        servers_price=of_cluster("servers_per_hour", 0.0),
        cap=of_cluster("cap_per_s", math.inf),
        sharpness=of_cluster("cap_sharpness", math.inf),
        measured=of_cluster("measured_per_s", math.nan),
        checkpoint_s=of_cluster("checkpoint_s", 0.0),
        every_s=of_cluster("checkpoint_every_s", math.nan),
        synchronous=bool(of_cluster("synchronous", 1.0)),
        quality=of_cluster("quality", math.nan),
    )
