"""Rules of the tree of tenants and of quotas by GPU type or pool (R63 to R66)."""

from __future__ import annotations

from collections.abc import Mapping

from allocator.domain.findings import Findings, quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Ints
from allocator.domain.schema.names import Names


def check(grids: Mapping[str, ParsedTable], names: Names, found: Findings) -> None:
    """Check parents, and the names and numbers of quotas.csv."""
    tenants = grids["tenants.csv"]
    quotas = grids["quotas.csv"]
    for table in (tenants, quotas):
        _warn_of_contradictions(table, found)
    _tree(tenants, found)
    quotas.refer(
        found,
        "tenant",
        names.listed_tenants,
        among="is not in tenants.csv",
        judge=tenants.complete,
    )
    quotas.refer(
        found,
        "pool",
        names.pools,
        among="is not in pools.csv",
        judge=grids["pools.csv"].complete,
    )
    quotas.refer(
        found,
        "gpu_type",
        names.gpu_types,
        among="is a type of no pool and has no rate",
        judge=grids["pools.csv"].whole and names.complete,
    )
    quotas.faults(
        found,
        quotas.given("gpu_type") & quotas.given("pool"),
        lambda i: "gpu_type and pool are both given; a quota is of one of them",
    )
    quotas.warnings(
        found,
        quotas.given("lend_gpus")
        & (quotas["lend_gpus"] > quotas["guaranteed_gpus"])
        & quotas.ok("lend_gpus", "guaranteed_gpus"),
        lambda i: (
            f"lend_gpus {quotas.text('lend_gpus', i)} is above guaranteed_gpus"
            f" {quotas.text('guaranteed_gpus', i)}: all of them are lent"
        ),
        "lend_gpus above guaranteed_gpus",
    )


def _warn_of_contradictions(table: ParsedTable, found: Findings) -> None:
    """Warn of guarantees above the limit of the same row."""
    over = table.given("max_gpus") & (table["guaranteed_gpus"] > table["max_gpus"])
    table.warnings(
        found,
        over & table.ok("max_gpus", "guaranteed_gpus"),
        lambda i: (
            "guaranteed_gpus "
            f"{table.text('guaranteed_gpus', i)} is above max_gpus {table.text('max_gpus', i)}"
        ),
        "guaranteed_gpus above max_gpus",
    )


def _tree(tenants: ParsedTable, found: Findings) -> None:
    """Check that parents exist, and that no tenant is above itself.

    Warn of guarantees above the limit of a tenant further up.
    """
    parent = tenants.refer(
        found, "parent", tenants.index, among="is not in tenants.csv", judge=tenants.complete
    )
    for i in range(len(tenants)):
        above = _ancestors(parent, i)
        if above and above[-1] == i:
            names = " -> ".join(quote(tenants["tenant"][k]) for k in (i, *above))
            tenants.fault(found, i, f"parent makes a circle: {names}")
            continue
        for k in above:
            if (
                tenants.given("max_gpus")[k]
                and tenants["guaranteed_gpus"][i] > tenants["max_gpus"][k]
                and tenants.ok("guaranteed_gpus")[i]
                and tenants.ok("max_gpus")[k]
            ):
                found.warn(
                    tenants.schema.file,
                    tenants.lines[i],
                    f"guaranteed_gpus {tenants.text('guaranteed_gpus', i)} is above max_gpus"
                    f" {tenants.text('max_gpus', k)} of {quote(tenants['tenant'][k])} above it",
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
