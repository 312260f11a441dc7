"""Speeds on more nodes than a size needs: options, places, audit, policies, and bad input."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from best_on_nodes import best_value
from examples import count, series
from node_rounds import node_round, node_snapshot, nodes_of, one_pool, sized_job
from second_nodes import node_faults
from text_tables import cases

import allocator
from allocator import Node, Pool, Problem, Rate
from allocator.audit import audit
from allocator.engine.decision import decide_round, override_settings
from allocator.policies.base import POLICIES
from formulations.objectives import BUILT_IN as OBJECTIVES

PACKED = [Rate("m", "A", k, float(k)) for k in (1, 2, 4, 8)]
SPREAD = [Rate("m", "A", 4, 3.0, spread=2), Rate("m", "A", 8, 5.0, spread=2)]
EXACT = allocator.SolveLimits(gap=0.0)


job = partial(sized_job, placement="spread")
problem = partial(one_pool, rates=PACKED + SPREAD)


# a job -> nodes -> where it runs -> its speed -> why
ONE_JOB = """
8 spread -> 4 4 -> {"n0": 4, "n1": 4} -> 5 -> no node holds it
8 packed -> 4 4 -> {} -> 0 -> one that has to be packed waits
4 spread -> 8 -> {"n0": 4} -> 4 -> packed where that is faster
4 spread -> 2 1 1 -> {} -> 0 -> a number of nodes without a row is not offered
2 spread -> 4 4 -> {"n0": 1, "n1": 1} -> 2 -> \
without any row on as many nodes as possible, at the one known speed
"""


@pytest.mark.parametrize("case", cases(ONE_JOB), ids=range(5))
def test_the_nodes_and_the_speed_of_one_job(case: tuple[str, ...]) -> None:
    """Its value is the work of 300 s of its 10,000."""
    asked, sizes, spot, known, _ = case
    gpus, placement = asked.split()
    speed = float(known)
    a = job("a", int(gpus), placement=placement)
    plan = allocator.solve(problem([a], [*map(int, sizes.split())]))
    assert nodes_of(plan).get("a", {}) == json.loads(spot)
    assert (plan.job("a").work_per_s, plan.status) == (speed, "optimal")
    assert (plan.job("a").value or 0.0) == pytest.approx(speed * 300 / 10_000)


def test_pools_of_one_type_with_nodes_of_two_sizes() -> None:
    """Two nodes are a shape of 4 GPUs in pool p, and all that pool q has for 4 packed GPUs."""
    nodes = [Node("p0", "p", 8), Node("p1", "p", 8), Node("q0", "q", 2), Node("q1", "q", 2)]
    pools = [Pool("p", "A", 16), Pool("q", "A", 4, gpus_per_node=2)]
    for taken, pool, speed in ((False, "p", 4.0), (True, "q", 3.0)):
        others = [job(f"x{i}", 8, placement="packed", weight=9) for i in range(2 * taken)]
        found = allocator.solve(
            Problem.build(
                jobs=[*others, job("a", 4, placement="packed")],
                pools=pools,
                rates=PACKED + SPREAD,
                nodes=nodes,
            )
        ).job("a")
        assert (found.pool, found.work_per_s) == (pool, speed)


@pytest.mark.parametrize(
    ("first", "made"), [(0, {"jobs": 10, "spread": True}), (400, {"pods": True})]
)
@pytest.mark.parametrize("policy", series([*POLICIES], 8))
def test_every_policy_is_placed(policy: str, first: int, made: dict[str, Any]) -> None:
    """A plan keeps every rule about nodes, and names the speed of its nodes: in rounds with spread
    shapes, and in rounds with gangs, some of which have a pod that is torn over two nodes."""
    for seed in range(first, first + count(1, 4)):
        snapshot = node_snapshot(seed, **made)
        try:
            plan = allocator.solve(Problem(snapshot), policy=policy)
        except allocator.Infeasible:
            continue
        assert list(node_faults(snapshot, json.loads(json.dumps(plan.to_dict())))) == []
        assert plan.objective_value <= plan.bound + 1e-9


def tiny(seed: int, jobs: int = 6) -> Any:
    """A round of few jobs on small nodes, where shapes often matter."""
    return node_round(seed, jobs=jobs, nodes=3, pools=1, spread=True, plain=True)


def every_place(gpus: int, free: list[int]) -> Iterator[tuple[int, ...]]:
    """Every way to take so many GPUs of nodes."""
    if not free:
        if gpus == 0:
            yield ()
        return
    for k in range(min(gpus, free[0]) + 1):
        yield from ((k, *rest) for rest in every_place(gpus - k, free[1:]))


def best_progress(problem_: Any) -> float:
    """The best value of `progress`, from all places of all jobs: no code of options is used."""
    jobs, rates, nodes = problem_.jobs, problem_.rates, problem_.nodes
    none, placed = (0,) * len(nodes), problem_.placements
    held = [list(none) for _ in jobs.model]
    for j, n, k in zip(placed.job, placed.node, placed.gpus, strict=True):
        held[j][n] += k
    per_node, labels = int(problem_.pools.gpus_per_node[0]), problem_.levels
    shapes = {
        (model, int(k), max(0, int(spread))): float(rate)
        for model, kind, k, spread, rate in zip(
            rates.model, rates.gpu_type, rates.gpus, rates.spread, rates.rate, strict=True
        )
        if kind == problem_.pools.gpu_type[0]
    }

    def ways(j: int) -> Iterator[tuple[tuple[int, ...], float]]:
        now, wish, model = tuple(held[j]), jobs.placement[j], jobs.model[j]
        is_firm = any(now) and not jobs.preemptible[j]
        is_tied = is_firm or (any(now) and jobs.resizes_left[j] == 0)
        sizes = [] if is_tied else problem_.size_lists[jobs.sizes[j]].tolist()
        packed = {k: r for (m, k, n), r in shapes.items() if (m, n) == (model, 0)}
        if not is_firm:
            yield none, 0.0
        fresh = [spot for k in sizes for spot in every_place(k, nodes.gpus.tolist())]
        for spot in {*fresh, now} - {none}:
            k, used, stays = sum(spot), sum(g > 0 for g in spot), spot == now
            known = any((model, k, n) in shapes for n in range(1, 17))
            rate = shapes.get((model, k, used))
            too_wide = used > -(-k // per_node) and not stays
            if too_wide and (wish == "packed" or (known and rate is None)):
                continue
            mine = [level.label for level in labels if wish == f"same_{level.name}"]
            if mine and len({mine[0][n] for n, g in enumerate(spot) if g}) > 1:
                continue
            if rate is None:
                rate = np.interp(k, sorted(packed), [packed[size] for size in sorted(packed)])
            pause = float(jobs.restart_s[j]) if any(now) and not stays else 0.0
            done = rate * max(0.0, problem_.interval_s - pause)
            yield spot, float(jobs.weight[j] * min(1.0, done / jobs.remaining_work[j]))

    reach = {none: 0.0}  # GPUs taken of each node -> best value
    for j in range(len(jobs)):
        offers, after = list(ways(j)), dict[tuple[int, ...], float]()
        for (taken, value), (spot, more) in itertools.product(reach.items(), offers):
            total = tuple(a + b for a, b in zip(taken, spot, strict=True))
            if (np.array(total) <= nodes.gpus).all():
                after[total] = max(after.get(total, 0.0), value + more)
        reach = after
    return max(reach.values())


def test_tiny_rounds_against_every_place() -> None:
    """Exhaustive, apart from options and audit: value and bound at gap 0 are the best there is."""
    spread, tried = 0, count(24, 600)
    for seed in range(tried):
        problem_ = tiny(seed)
        decision = decide_round(problem_, limits=EXACT)
        assert decision.value == pytest.approx(best_progress(problem_), rel=1e-7), seed
        assert decision.proof[2] <= 1e-6, seed
        row = decision.allocation.row
        spread += bool((problem_.rates.nodes[row[row >= 0]] > 0).any())
    assert spread >= tried / 8


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_tiny_rounds_against_every_plan(objective: str) -> None:
    """All options of all jobs on all nodes in every objective."""
    for seed in range(count(3, 10)):
        problem_ = override_settings(tiny(seed, 4), objective, None)
        decision = decide_round(problem_, limits=EXACT)
        best = best_value(problem_)
        assert decision.value == pytest.approx(best, rel=1e-7, abs=1e-9), seed
        assert decision.proof[2] <= 1e-6, seed


def test_the_audit_names_a_wrong_number_of_nodes() -> None:
    """The places of another shape, and a row of another shape, are faults."""
    problem_ = problem([job("a", 4)], [4, 4, 4]).checked
    decision = decide_round(problem_)
    plan = decision.allocation
    apart, three = (
        dataclasses.replace(
            plan.places,
            job=np.zeros(len(gpus), int),
            node=np.arange(len(gpus)),
            gpus=np.array(gpus),
            gpu=np.full(len(gpus), -1),
        )
        for gpus in ([2, 2], [2, 1, 1])
    )
    spread = int(np.flatnonzero((problem_.rates.nodes == 2) & (problem_.rates.gpus == 4))[0])
    row = np.array([spread])

    def faults(**changed: Any) -> str:
        round_ = decision.round
        altered = dataclasses.replace(plan, **changed)
        return " ".join(audit(problem_, altered, round_.repairs, round_.offer).faults)

    assert faults() == faults(places=apart, row=row) == ""
    assert "which does not give its rate" in faults(places=apart)
    assert f"is on 1 nodes, row {spread} of rates.csv is for 2" in faults(row=row)
    assert "is on 3 nodes, for which rates.csv has no speed of 4 GPUs" in faults(places=three)


def test_bad_input() -> None:
    """All faults at once; a row on fewer nodes than its GPUs need, or for a type that has no nodes
    here, is warned of."""
    twice = [*SPREAD, Rate("m", "A", 4, 2.0, spread=2), Rate("m", "A", 2, 1.0, spread=3)]
    with pytest.raises(allocator.InvalidInput) as found:
        problem([job("a", 4)], [8, 8], rates=twice)
    assert [fault.message for fault in found.value.faults] == [
        'model "m" has this spread at 4 x A already in line 2',
        "spread 3 is above gpus 2: each node has at least one GPU of a job",
    ]
    low = problem([job("a", 4)], [8, 8], rates=[*PACKED, Rate("m", "A", 16, 9.0, spread=1)])
    assert "spread 1 is below the 2 nodes that 16 x A need" in "".join(low.warnings)
    nodes, pools = [Node("n", "q", 8)], [Pool("p", "A", 8), Pool("q", "B", 8)]
    plain = Problem.build(jobs=[job("a", 4)], pools=pools, rates=PACKED + SPREAD, nodes=nodes)
    assert 'is no shape of its own: no pool of "A" has nodes' in "".join(plain.warnings)
