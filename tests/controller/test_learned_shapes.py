"""A queue learns speeds of packed jobs, and keeps the given speeds of spread shapes apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_rigs import Rig

from allocator.domain.rules.snapshot_rules import validate

RATES = "model,gpu_type,gpus,work_per_s,spread\nm,A,4,4,\nm,A,4,3,2\n"


@pytest.mark.parametrize(
    ("nodes", "learned"), [({"n0": 4}, {4: 2.0, 5: 3.0}), ({"n0": 2, "n1": 2}, {4: 4.0, 5: 3.0})]
)
def test_shapes_are_not_mixed(
    nodes: dict[str, int], learned: dict[int, float], make: Callable[..., Rig]
) -> None:
    """A job of 4 GPUs runs at half its speed. On one node the packed rate is corrected to that; on
    two nodes nothing is learned. The rate of two nodes stays as it was given."""
    tables = {
        "pools.csv": "pool,gpu_type,gpus,gpus_per_node\na,A,4,4\n",
        "nodes.csv": "node,pool,gpus\n" + "".join(f"{n},a,{k}\n" for n, k in nodes.items()),
        "rates.csv": RATES,
    }
    rig = make(tables=tables, nodes=nodes, gpus={"a": 4}, policy="mip")
    rig.behave(rate=lambda order: 2.0 if len(order.nodes) == 1 else 1.5)
    rig.submit("j", work=1e6, gpus=4, sizes=[4], placement="spread")
    rig.steps(1200, 20.0)
    assert {row["node"] for row in rig.queue.nodes() if row["jobs"]} == set(nodes)
    rates = validate(rig.queue.snapshot()).rates
    found = {4 if n == 0 else 5: r for n, r in zip(rates.nodes, rates.rate, strict=True)}
    assert found == pytest.approx(learned, rel=0.1)
    assert bool(rig.learned()) == (len(nodes) == 1)
