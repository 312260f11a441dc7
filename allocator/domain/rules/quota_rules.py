"""Rules of the tree of tenants and of quotas by GPU type or pool (R63 to R66)."""

from allocator.domain.problem import Ints
from allocator.domain.rules.rule import Check, Round, Rule, reference


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
                x.found.warn(
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
)
"""Rules in the order in which messages about one row are listed."""
