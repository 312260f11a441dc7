"""Every placement rule keeps what a node has, and refuses only what fits nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.compilation import has_numba
from formulations.placement.engine import Placer
from formulations.placement.rules import RULES
from formulations.placement.state import Demand, NodeState

FORMS = (False, True) if has_numba() else (False,)


def random_cluster(rng: np.random.Generator, N: int = 12) -> NodeState:
    return NodeState.of_sizes(
        rng.choice([1, 2, 4, 8], N),
        cpus=rng.choice([16.0, 64.0, np.inf], N),
        memory_gb=rng.choice([64.0, 256.0, np.inf], N),
        kind=rng.integers(0, 3, N),
    )


def random_classes(rng: np.random.Generator, C: int = 15) -> Demand:
    gpus = rng.choice([0, 1, 1, 1, 2, 3, 4, 8], C)
    share = np.where((gpus == 1) & (rng.random(C) < 0.6), rng.choice([0.1, 0.25, 1 / 3, 0.7], C), 1)
    allowed = rng.random((C, 3)) < 0.7
    allowed[:, 0] = True
    return Demand.of_gpus(
        gpus, share, rng.choice([0.0, 1.0, 6.0], C), rng.choice([0.0, 8.0, 60.0], C), allowed
    )


class Ledger:
    """An account of the cluster in exact steps, which knows nothing of the engine."""

    def __init__(self, nodes: NodeState) -> None:
        self.free = nodes.copy()

    def could_hold(self, classes: Demand, t: int, n: int) -> bool:
        free = self.free
        enough = int((free.gpus[n] >= classes.share[t] - 1e-9).sum())
        return bool(
            enough >= classes.gpus[t]
            and free.cpus[n] >= classes.cpus[t] - 1e-9
            and free.memory_gb[n] >= classes.memory_gb[t] - 1e-9
            and classes.allowed[t, free.kind[n]]
        )

    def add(self, classes: Demand, t: int, n: int, gpus: int) -> None:
        own = [g for g in range(self.free.gpus.shape[1]) if gpus >> g & 1]
        assert len(own) == classes.gpus[t]
        assert self.could_hold(classes, t, n)
        self.free.gpus[n, own] -= classes.share[t]
        self.free.cpus[n] -= classes.cpus[t]
        self.free.memory_gb[n] -= classes.memory_gb[t]
        assert (self.free.gpus[n] >= -1e-9).all()


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_keeps_what_nodes_have_and_refuses_only_what_fits_nowhere(name, compiled):
    """100 tasks on 12 nodes, with CPUs, memory, kinds and fractions; 5 clusters a rule."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nodes, classes = random_cluster(rng), random_classes(rng)
        order = rng.integers(0, len(classes), 100)
        ledger = Ledger(nodes)
        rule = RULES[name](nodes, classes, np.bincount(order, minlength=len(classes)) / 100)
        placer = Placer(nodes, classes, rule, seed=seed, compiled=compiled)
        for t in order:
            node, gpus = (int(x[0]) for x in placer.place(np.array([t])))
            if node < 0:
                assert not any(ledger.could_hold(classes, t, n) for n in range(len(nodes)))
            else:
                ledger.add(classes, t, node, gpus)
        assert np.allclose(nodes.gpus, ledger.free.gpus)
        assert np.allclose(nodes.cpus, ledger.free.cpus)


@pytest.mark.parametrize("name", RULES)
def test_kept_scores_are_those_of_a_fresh_placer(name):
    """Only changed nodes are scored again; after 60 tasks and 10 releases nothing is stale."""
    rng = np.random.default_rng(7)
    nodes, classes = random_cluster(rng), random_classes(rng)
    rule = RULES[name](nodes, classes, np.ones(len(classes)))
    placer = Placer(nodes, classes, rule, seed=1)
    order = rng.integers(0, len(classes), 60)
    node, gpus = placer.place(order)
    placed = np.flatnonzero(node >= 0)[:10]
    for i in placed:
        placer.release(order[i], node[i], gpus[i])
    fresh = Placer(nodes.copy(), classes, rule)
    for t in range(len(classes)):
        assert np.allclose(placer.scores(t), fresh.scores(t))


@pytest.mark.parametrize("name", RULES)
def test_the_same_seed_places_alike(name):
    rng = np.random.default_rng(3)
    nodes, classes = random_cluster(rng), random_classes(rng)
    order = rng.integers(0, len(classes), 60)
    rule = RULES[name](nodes, classes, np.ones(len(classes)))
    runs = [Placer(nodes.copy(), classes, rule, seed=5).place(order) for _ in range(2)]
    assert (runs[0][0] == runs[1][0]).all()
    assert (runs[0][1] == runs[1][1]).all()


@pytest.mark.parametrize("name", RULES)
def test_both_forms_place_alike(name):
    rng = np.random.default_rng(4)
    nodes, classes = random_cluster(rng), random_classes(rng)
    order = rng.integers(0, len(classes), 60)
    rule = RULES[name](nodes, classes, np.ones(len(classes)))
    plain, swift = (
        Placer(nodes.copy(), classes, rule, seed=5, compiled=form).place(order)
        for form in (FORMS[0], FORMS[-1])
    )
    assert (plain[0] == swift[0]).all()
    assert (plain[1] == swift[1]).all()


def test_best_fit_keeps_the_large_hole():
    """A task of 2 GPUs goes to the node with 2 free, not to the one with 8."""
    nodes, classes = NodeState.of_sizes(np.array([8, 4, 2])), Demand.of_gpus(np.array([2, 8]))
    placer = Placer(nodes, classes, RULES["best_fit"](nodes, classes, np.ones(2)))
    assert placer.place(np.array([0, 0, 1]))[0].tolist() == [2, 1, 0]


def test_fgd_keeps_a_gpu_whole_where_whole_gpus_are_asked_for():
    """One node of 2 GPUs, tasks of .5: the second one joins the first, as most tasks need 1."""
    nodes = NodeState.of_sizes(np.array([2]))
    classes = Demand.of_gpus(np.array([1, 1]), np.array([0.5, 1.0]))
    placer = Placer(nodes, classes, RULES["fgd"](nodes, classes, np.array([1.0, 3.0])))
    assert placer.place(np.array([0, 0, 1]))[1].tolist() == [1, 1, 2]


def test_the_value_rule_keeps_a_cpu_for_every_gpu():
    """Node 0 has 2 GPUs and 2 CPUs, node 1 has 2 GPUs and 8. Tasks of 4 CPUs and of 1 CPU come
    equally often: the CPU-only task of 1 goes to node 1, where all that come still fit."""
    nodes = NodeState.of_sizes(np.array([2, 2]), cpus=np.array([2.0, 9.0]))
    classes = Demand.of_gpus(np.array([1, 1, 0]), cpus=np.array([1.0, 4.0, 1.0]))
    placer = Placer(nodes, classes, RULES["value"](nodes, classes, np.array([1.0, 1.0, 0.0])))
    assert placer.place(np.array([2]))[0].tolist() == [1]


def test_the_value_rule_keeps_the_kind_that_some_tasks_need():
    """Half of the tasks run on kind 1 only: the others go to kind 0 as long as they fit."""
    nodes = NodeState.of_sizes(np.array([2, 2, 4]), kind=np.array([1, 1, 0]))
    classes = Demand.of_gpus(np.array([1, 1]), allowed=np.array([[True, True], [False, True]]))
    placer = Placer(nodes, classes, RULES["value"](nodes, classes, np.ones(2)))
    assert placer.place(np.array([0, 1, 0, 1, 0, 0, 1, 1]))[0].tolist().count(-1) == 0
