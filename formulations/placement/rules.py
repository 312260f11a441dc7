"""Placement rules: each scores the nodes on which a task fits, and the lowest score wins.

A rule is a value. `kernels.score_node` has the formula of each rule by its number; this file says
what the rules are for and builds them. Rules of one number differ in their parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Floats
from formulations.placement import kernels
from formulations.placement.prices import share_values
from formulations.placement.state import Demand, NodeState


@dataclass(frozen=True)
class PlacementRule:
    """A rule that scores nodes for a task.

    Attributes
    ----------
    name : str
        Its name in tables.
    number : int
        Its formula in `kernels`.
    scale : (3,) floats
        1 over the GPUs, CPUs and memory of the largest node; 0 where there is no limit.
    levels : int
        Scores are rounded to so many levels, as schedulers with integer scores do; 0: not.
    typical, weight : Demand, (M,) floats
        The classes of tasks that are expected, and how often each of them comes.
    value : (N, M + 1) floats
        The value of a GPU of each node that is free to 0, 1/M, ..., 1, in GPUs.
    """

    name: str
    number: int
    scale: Floats
    levels: int
    typical: Demand
    weight: Floats
    value: Floats


def best_fit(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take the node that has least left: GPUs and CPUs, as shares of the largest node."""
    return _rule("best_fit", kernels.BEST_FIT, nodes)


def random(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take any node on which the task fits, and any of its GPUs that have enough."""
    return _rule("random", kernels.RANDOM, nodes)


def packing(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take GPUs in use first, then nodes in use, then small nodes."""
    return _rule("packing", kernels.PACKING, nodes)


def dot_product(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take the node for which the product of what is free and what is needed is least.

    References
    ----------
    Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014.
    """
    return _rule("dot_product", kernels.DOT_PRODUCT, nodes)


def fgd(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take the node whose fragmentation grows least (fragmentation gradient descent).

    The fragmentation of a node is the expected share of its free GPUs that a task of the workload
    cannot use: all of them if the task does not fit there, else those with less than its share.

    References
    ----------
    Weng et al., "Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
    gradient descent", USENIX ATC 2023.
    """
    return _rule("fgd", kernels.FGD, nodes, expected, weight)


def value(nodes: NodeState, expected: Demand, weight: Floats) -> PlacementRule:
    """Take the node that loses least value for the tasks that are expected.

    The value of a free share is what it can still hold at the prices of the linear programme of
    the whole cluster (`prices`). The value of a node is that of its free shares, times the chance
    that one of the next tasks can use them with the CPUs and the memory that are left.
    """
    with_gpus = np.flatnonzero((expected.gpus > 0) & (weight > 0))
    if not len(with_gpus):
        return best_fit(nodes, expected, weight)
    typical = expected.take(with_gpus)
    often = weight[with_gpus]
    return _rule("value", kernels.VALUE, nodes, typical, often, share_values(nodes, typical, often))


RULES: dict[str, Callable[[NodeState, Demand, Floats], PlacementRule]] = {
    make.__name__: make for make in (random, dot_product, packing, best_fit, fgd, value)
}


def _rule(
    name: str,
    number: int,
    nodes: NodeState,
    typical: Demand | None = None,
    weight: Floats | None = None,
    values: Floats | None = None,
) -> PlacementRule:
    """Return a rule; nodes are those of the cluster when they are empty."""
    largest = [nodes.gpus.sum(axis=1), nodes.cpus, nodes.memory_gb]
    most = np.array([max(x, default=0.0) for x in largest], dtype=np.float64)
    limited = np.isfinite(most) & (most > 0)
    if typical is None or weight is None:
        typical = Demand.of_gpus(np.zeros(0, dtype=np.int64))
        weight = np.zeros(0)
    scale = np.where(limited, 1.0 / np.where(limited, most, 1.0), 0.0)
    share = weight / max(weight.sum(), kernels.EPS)
    if values is None:
        values = np.zeros((len(nodes), 2))
    return PlacementRule(name, number, scale, 0, typical, share, values)
