"""Gangs of pods that lie whole on nodes: sizes, places, the best plan, and what runs torn."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from best_on_nodes import decide_best
from examples import count, series
from hypothesis import given, strategies as st
from node_rounds import node_round, nodes_of, one_pool, sized_job
from test_holes import holes

import allocator
from allocator import Job, Node, Pool, Problem, Rate
from allocator.audit import audit
from allocator.domain.problem import Placements
from allocator.domain.records import Colocation
from allocator.engine.decision import decide_round, override_settings
from allocator.options.instance_building import compile_round
from formulations.objectives import BUILT_IN as OBJECTIVES
from formulations.placement.holes import Need, Wish

RATES = [Rate("m", "A", k, float(k) ** 0.9) for k in (1, 2, 4, 8, 64)]
EXACT = allocator.SolveLimits(gap=0.0)
problem = partial(one_pool, rates=RATES)


def gang(name: str, pods: int, gpus: int, on: str = "", **more: Any) -> Job:
    """A job of so many pods, each of so many GPUs."""
    return sized_job(name, pods * gpus, on, gpus_per_pod=gpus, **more)


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([(Wish.PACKED, 0), (Wish.PACKED, 1), (Wish.SPREAD, 0), (Wish.SAME, 0)]),
)
def test_a_gang_is_placed_exactly_if_it_can_be(
    free: list[int], pods: int, pod: int, most: int, asked: tuple[Wish, int]
) -> None:
    """Against all sets of nodes: at most `most`, exactly as many, any, or in one domain."""
    wish, exact = asked
    most = min(most, pods) if exact else most
    domain = [n % 2 for n in range(len(free))]
    nodes = holes(*[8] * len(free), domains=domain)
    for n, k in enumerate(free):
        nodes.take(((n, 8 - k, -1),), Need(0, 8 - k, 1))
    need = Need(0, pods * pod, most, wish=wish, level=0, least_nodes=exact * most, pod=pod)
    found = nodes.find(need)
    can = False
    for many in range(1, len(free) + 1):
        for some in itertools.combinations(range(len(free)), many):
            whole = [free[n] // pod for n in some]
            fits = sum(whole) >= pods and (not exact or (min(whole) > 0 and many <= pods))
            near = wish is not Wish.SAME or len({domain[n] for n in some}) == 1
            fine = many == most if exact else many <= most or wish is not Wish.PACKED
            can |= fits and near and fine
    assert (found is not None) == can
    if found is not None:
        assert sum(k for _, k, _ in found) == pods * pod
        assert all(0 < k <= free[n] and k % pod == 0 for n, k, _ in found)
        assert not exact or len(found) == most


def test_sizes_are_whole_pods() -> None:
    """Without nodes too: every number of pods in the range, listed sizes, and what runs."""
    jobs = [
        Job("any", "m", remaining_work=1e4, min_gpus=4, max_gpus=14, gpus_per_pod=3),
        Job("some", "m", remaining_work=1e4, max_gpus=12, sizes=[4, 12], gpus_per_pod=4),
        Job("held", "m", remaining_work=1e4, max_gpus=7, gpus_per_pod=6, **on(5)),
    ]
    table = compile_round(
        Problem.build(jobs=jobs, pools=[Pool("p", "A", 64)], rates=RATES).checked, prunes=False
    ).option_table
    sizes = [sorted(table.gpus[table.job == j].tolist()) for j in range(3)]
    assert sizes == [[6, 9, 12], [4, 12], [5, 6]]


def on(gpus: int) -> dict[str, Any]:
    return {"state": "running", "pool": "p", "gpus": gpus}


@pytest.mark.parametrize(("state", "found"), [("up", [4, 2]), ("drain", [3, 3])])
def test_what_runs_torn_stays_until_it_moves(state: str, found: list[int]) -> None:
    """2 pods of 3 on nodes with 4 and 2; where they have to leave, they lie whole."""
    placed = {"a": {"n0": 4, "n1": 2}}
    made = problem([gang("a", 2, 3, "p")], [4, 4, 4], placed, gpus_per_node=4, n1={"state": state})
    plan = allocator.solve(made)
    assert [*nodes_of(plan)["a"].values()] == found
    assert plan.job("a").action == ("keep" if state == "up" else "move")


@pytest.mark.parametrize(
    "case",
    # the fewest nodes that hold whole pods are the shape
    """9 1 spread 3 9
    3 3 spread 3 9
    3 3 packed 3 9
    9 1 packed 2 6
    1 9 spread 0 0""".splitlines(),
)
def test_spread_shapes_have_whole_pods(case: str) -> None:
    """A job of 9 GPUs needs two nodes of 5, and is faster on three."""
    pods, pod, placement, nodes, speed = case.split()
    rates = [Rate("m", "A", 9, 6.0), Rate("m", "A", 9, 9.0, spread=3)]
    jobs = [gang("a", int(pods), int(pod), placement=placement)]
    plan = allocator.solve(one_pool(jobs, [5] * 4, rates=rates, gpus_per_node=5))
    assert len(nodes_of(plan).get("a", ())) == int(nodes)
    assert plan.job("a").work_per_s == float(speed)


def test_gangs_share_no_gpus_on_nodes() -> None:
    """Two gangs may share GPUs as a pair only in a pool without nodes."""
    pool = Pool("p", "A", 8, sharing="any", memory_gb=80)
    for nodes, pairs in (([], 1), ([Node("n", "p", 8)], 0)):
        made = Problem.build(
            jobs=[gang(name, 2, 4, memory_gb=9.0) for name in "ab"],
            pools=[pool],
            rates=RATES,
            nodes=nodes,
            sharing=[Colocation("m", "m", "A", 8, 1.1, 1.1)],
        )
        shared = allocator.solve(made).jobs["shared_with"]
        assert sum(name is not None for name in shared) == 2 * pairs


@pytest.mark.parametrize("objective", series(list(OBJECTIVES), 2))
def test_tiny_rounds_against_every_plan(objective: str) -> None:
    """Every option on up to 6 nodes: with gap 0 the plan is the best, and proven to be."""
    placed = 0
    for seed in range(count(12, 60)):
        made = node_round(seed, jobs=4, nodes=6, pools=1, spread=seed % 3 == 0, pods=True)
        decision = decide_best(override_settings(made, objective, None), seed)
        if decision is not None:
            placed += ((made.jobs.gpus_per_pod > 1) & (decision.allocation.gpus > 0)).sum()
    assert placed > 5


def test_the_audit_names_torn_pods_and_sizes() -> None:
    """Places that tear a pod, more nodes than whole pods need, and a size that has part of one."""
    made = problem([gang("a", 2, 3)], [8, 8, 8]).checked
    decision = decide_round(made)

    def faults(*gpus: int) -> str:
        places = Placements(*np.array([(0, n, k, -1) for n, k in enumerate(gpus)]).T)
        plan = dataclasses.replace(decision.allocation, gpus=np.array([sum(gpus)]), places=places)
        return " ".join(audit(made, plan, decision.round.repairs, decision.round.offer).faults)

    assert faults(6) == ""
    assert faults(3, 3).endswith("is on 2 nodes, 6 packed GPUs need 1")
    assert "has part of a pod of 3 GPUs on a node" in faults(4, 2)
    assert "gets 4 GPUs of" in faults(4)


def test_holes_of_many_pods_cost_one_move_each() -> None:
    """Each of 60 nodes has 8 GPUs, on which three jobs of one GPU run. Five gangs of 8 pods of 6
    GPUs start, and on each of their 40 nodes one job makes room for a pod."""
    work = np.random.default_rng(1).uniform(2e4, 8e4, 180).tolist()
    jobs = [sized_job(f"s{i}", 1, "p", restart_s=20, remaining_work=w) for i, w in enumerate(work)]
    placed = {job.job_id: {f"n{i // 3}": 1} for i, job in enumerate(jobs)}
    gangs = [gang(f"g{i}", 8, 6, remaining_work=2e6) for i in range(5)]
    plan = allocator.solve(problem([*jobs, *gangs], [8] * 60, placed))
    assert plan.placement is not None
    assert (plan.placement.moved, plan.placement.reduced) == (40, 0)
    assert all([*nodes_of(plan)[job.job_id].values()] == [6] * 8 for job in gangs)
