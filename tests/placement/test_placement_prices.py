"""The bound of the cluster's linear programme holds, and its values are those of a knapsack."""

from __future__ import annotations

import itertools

import numpy as np

from formulations.placement.prices import GRID, price_cluster, share_values
from formulations.placement.state import Demand, NodeState


def most_allocated(nodes: NodeState, tasks: Demand) -> float:
    """Return the most GPUs that any placement allocates, by trying all of them."""
    best = 0.0

    def search(i: int, got: float) -> None:
        nonlocal best
        best = max(best, got)
        if i == len(tasks):
            return
        search(i + 1, got)
        for n in range(len(nodes)):
            if not tasks.allowed[i, nodes.kind[n]] or nodes.cpus[n] < tasks.cpus[i]:
                continue
            able = np.flatnonzero(nodes.gpus[n] >= tasks.share[i] - 1e-9)
            for own in itertools.combinations(able.tolist(), int(tasks.gpus[i])):
                nodes.gpus[n, list(own)] -= tasks.share[i]
                nodes.cpus[n] -= tasks.cpus[i]
                search(i + 1, got + tasks.total_gpus[i])
                nodes.gpus[n, list(own)] += tasks.share[i]
                nodes.cpus[n] += tasks.cpus[i]

    search(0, 0.0)
    return best


def test_no_placement_exceeds_the_bound():
    """30 clusters of 2 nodes and 4 tasks, with shares, CPUs and kinds; often the bound is met."""
    met = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        nodes = NodeState.of_sizes(
            rng.integers(1, 3, 2), cpus=rng.choice([3.0, 8.0, np.inf], 2), kind=np.array([0, 1])
        )
        gpus = rng.choice([1, 1, 1, 2], 4)
        share = np.where(gpus == 1, rng.choice([0.3, 0.5, 0.6, 0.81, 1.0], 4), 1.0)
        allowed = np.column_stack([np.ones(4, dtype=bool), rng.random(4) < 0.5])
        tasks = Demand.of_gpus(gpus, share, rng.choice([1.0, 2.0], 4), allowed=allowed)
        bound, most = price_cluster(nodes, tasks, np.ones(4)).bound, most_allocated(nodes, tasks)
        assert bound >= most - 1e-6
        met += bound <= most + 1e-6
    assert met >= 10


def test_a_share_is_priced_by_what_fills_the_rest():
    """Tasks of .6 and .4 in equal number, more than fit: a GPU is filled by one of each, so that
    .5 of a GPU has the value of a task of .4, and .3 has none."""
    nodes = NodeState.of_sizes(np.array([4]))
    tasks = Demand.of_gpus(np.array([1, 1]), np.array([0.6, 0.4]))
    prices = price_cluster(nodes, tasks, np.array([9.0, 9.0]))
    value = prices.value[0]
    assert prices.bound == 4.0
    assert value[GRID] == 1.0
    assert value[GRID // 2] == value[40]
    assert value[30] == 0.0


def test_a_kind_that_others_need_costs_more():
    nodes = NodeState.of_sizes(np.array([2, 2]), kind=np.array([0, 1]))
    tasks = Demand.of_gpus(np.array([1, 1]), allowed=np.array([[True, True], [False, True]]))
    value = share_values(nodes, tasks, np.ones(2))
    assert value[1, GRID] > value[0, GRID]


def test_no_demand_has_no_value():
    nodes = NodeState.of_sizes(np.array([2]))
    assert not share_values(nodes, Demand.of_gpus(np.array([0])), np.ones(1)).any()


def test_tasks_that_fit_nowhere_have_no_value():
    nodes = NodeState.of_sizes(np.array([2, 2]), kind=np.array([0, 1]))
    large = Demand.of_gpus(np.array([3]), allowed=np.array([[True, True]]))
    barred = Demand.of_gpus(np.array([1]), np.array([0.5]), allowed=np.array([[False, False]]))
    for tasks in (large, barred):
        assert price_cluster(nodes, tasks, np.array([5.0])).bound == 0.0
        assert not share_values(nodes, tasks, np.ones(1)).any()
