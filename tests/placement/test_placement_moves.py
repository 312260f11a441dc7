"""Rounds take the better of two orders, and move only what opens a place for a waiting task."""

from __future__ import annotations

import numpy as np
from test_placement_rules import Ledger, random_classes, random_cluster

from formulations.placement.engine import Placer
from formulations.placement.rounds import Placed, has_gain
from formulations.placement.rules import RULES
from formulations.placement.state import Demand, NodeState


def fragmented(tasks: Demand) -> tuple[Placer, Placed]:
    """Return two nodes of 2 GPUs with a task of 1 GPU on each, while one of 2 GPUs waits."""
    nodes = NodeState.of_sizes(np.array([2, 2]))
    placer = Placer(nodes, tasks, RULES["best_fit"](nodes, tasks, np.ones(2)))
    placer.take(0, 0, 1)
    placer.take(0, 1, 1)
    placed = Placed(np.array([0, 0]), np.array([0, 1]), np.array([1, 1]), np.array([1]))
    return placer, placed


def test_one_move_opens_a_node():
    placer, placed = fragmented(Demand.of_gpus(np.array([1, 2])))
    placed.move_for_waiting(placer, 1)
    assert placed.moved == 1
    assert placed.waiting.tolist() == []
    assert sorted(zip(placed.order.tolist(), placed.node.tolist(), strict=True)) == [
        (0, 1),
        (0, 1),
        (1, 0),
    ]
    assert not placer.nodes.gpus.any()


def test_no_move_is_made_beyond_the_limit_or_without_use():
    placer, placed = fragmented(Demand.of_gpus(np.array([1, 2])))
    placed.move_for_waiting(placer, 0)
    assert (placed.moved, placed.waiting.tolist()) == (0, [1])
    placer, placed = fragmented(Demand.of_gpus(np.array([1, 2]), cpus=np.array([0.0, 1.0])))
    placer.nodes.cpus[:] = 0
    placer = Placer(placer.nodes, placer.classes, placer.rule)
    placed.move_for_waiting(placer, 5)
    assert (placed.moved, placed.waiting.tolist()) == (0, [1])


def test_several_moves_clear_a_node():
    """Two nodes of 4 GPUs with 2 tasks of 1 GPU each: two moves give the task of 4 a node."""
    nodes = NodeState.of_sizes(np.array([4, 4]))
    classes = Demand.of_gpus(np.array([1, 4]))
    placer = Placer(nodes, classes, RULES["best_fit"](nodes, classes, np.ones(2)))
    for n in (0, 1):
        placer.take(0, n, 1)
        placer.take(0, n, 2)
    placed = Placed(
        np.zeros(4, np.int64), np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2]), np.array([1])
    )
    placed.move_for_waiting(placer, 1)
    assert (placed.moved, placed.waiting.tolist()) == (0, [1])
    assert placer.nodes.gpus.sum() == 4
    placed.move_for_waiting(placer, 2)
    assert (placed.moved, placed.waiting.tolist()) == (2, [])
    assert placed.order.tolist() == [0, 0, 0, 0, 1]
    assert not placer.nodes.gpus.any()


def test_rounds_with_moves_keep_what_nodes_have():
    """Six rounds of 25 tasks on 12 nodes, ten clusters; after each round all is counted again."""
    moves = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        nodes, classes = random_cluster(rng), random_classes(rng)
        empty = nodes.copy()
        rule = RULES["value"](empty, classes, np.ones(len(classes)))
        placer, placed = Placer(nodes, classes, rule), Placed()
        for _ in range(6):
            placed.add_round(placer, rng.integers(0, len(classes), 25))
            placed.move_for_waiting(placer, 10)
            ledger = Ledger(empty)
            for t, n, gpus in zip(placed.order, placed.node, placed.gpus, strict=True):
                ledger.add(classes, int(t), int(n), int(gpus))
            assert np.allclose(ledger.free.gpus, nodes.gpus)
            assert np.allclose(ledger.free.cpus, nodes.cpus)
        assert len(placed.order) + len(placed.waiting) == 150
        moves += placed.moved
    assert moves > 0


def test_a_round_takes_the_better_of_two_orders():
    """One node of 4 GPUs. 1, 1, 4: largest first places 4. 2, 2, 3: as they came places 4."""
    classes = Demand.of_gpus(np.array([1, 2, 3, 4]))
    for order, placed_classes, waiting in (
        ([0, 0, 3], [3], [0, 0]),
        ([1, 1, 2], [1, 1], [2]),
    ):
        nodes = NodeState.of_sizes(np.array([4]))
        placer = Placer(nodes, classes, RULES["best_fit"](nodes, classes, np.ones(4)))
        placed = Placed()
        placed.add_round(placer, np.array(order))
        assert placed.order.tolist() == placed_classes
        assert placed.waiting.tolist() == waiting
        assert not nodes.gpus.any()


def test_what_gains_nothing_waits_where_the_next_round_needs_the_gpus():
    """Shares of .8 waste .2: whole tasks bring more than their price, shares do not."""
    nodes = NodeState.of_sizes(np.array([2, 2]))
    classes = Demand.of_gpus(np.array([1, 1]), share=np.array([0.8, 1.0]))
    rule = RULES["value"](nodes, classes, np.array([2.0, 1.0]))
    placer, placed = Placer(nodes, classes, rule), Placed()
    assert has_gain(placer).tolist() == [False, True]
    placed.add_round(placer, np.array([0, 1]), next_gpus=1.0)
    assert placed.waiting.tolist() == []  # 4 GPUs are free, they and the next round need 2.8
    placed.add_round(placer, np.array([0, 1]), next_gpus=2.0)
    assert placed.waiting.tolist() == [0]
    placed.add_round(placer, np.array([], dtype=np.int64))
    assert placed.waiting.tolist() == []  # by default all that fits is placed
