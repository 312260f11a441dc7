"""A queue learns speeds of packed jobs, and keeps the given speeds of spread shapes apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)

from allocator import Job, Node, Pool, Problem, Rate
from allocator.controller.controller import Controller, ControllerOptions
from allocator.domain.rules.snapshot_rules import validate
from allocator.queue import cluster_tables
from allocator.queue.queue import Queue

NOW = 1_000_000.0


@pytest.mark.parametrize(("nodes", "learned"), [(1, {4: 2.0, 5: 3.0}), (2, {4: 4.0, 5: 3.0})])
def test_shapes_are_not_mixed(tmp_path: Path, nodes: int, learned: dict[int, float]) -> None:
    """A job of 4 GPUs runs at half its speed. On one node the packed rate is corrected to that; on
    two nodes nothing is learned. The rate of two nodes stays as it was given."""
    clock = SimulatedClock(NOW)
    sizes = [4] if nodes == 1 else [2, 2]
    names = [f"n{i}" for i in range(nodes)]
    problem = Problem.build(
        jobs=[Job("j", "m", 1e6, 4, min_gpus=4, sizes=[4], placement="spread", submitted_s=NOW)],
        pools=[Pool("p", "A", 4, gpus_per_node=4)],
        rates=[Rate("m", "A", 4, 4.0), Rate("m", "A", 4, 3.0, spread=2)],
        nodes=[Node(name, "p", k) for name, k in zip(names, sizes, strict=True)],
        now_s=NOW,
    )
    queue = Queue.create(tmp_path / "q.db", problem.snapshot, clock=clock.now)
    machines = SimulatedMachines(
        {"p": 4},
        clock,
        MachineBehaviour(rate=lambda order: 2.0 if len(order.nodes) == 1 else 1.5),
        nodes=dict(zip(names, sizes, strict=True)),
    )
    executor = SimulatedExecutor(machines)
    options = ControllerOptions(every_s=60.0, poll_s=20.0, policy="mip")
    controller = Controller(queue.store, executor, clock, options)  # type: ignore[arg-type]
    for _ in range(60):
        controller.step()
        clock.sleep(20.0)
    assert {row["node"] for row in queue.nodes() if row["jobs"]} == set(names)
    rates = validate(queue.snapshot()).rates
    found = {4 if n == 0 else 5: r for n, r in zip(rates.nodes, rates.rate, strict=True)}
    assert found == pytest.approx(learned, rel=0.1)
    with queue.store.read() as connection:
        assert bool(cluster_tables.read_learned_rates(connection)) == (nodes == 1)
    queue.close()
