"""Generated rounds with nodes under all policies, held against an account of the rules about nodes,
of speeds, values and money that shares no code with the product.

Odd sizes, drained nodes, racks, shares of a GPU, CPUs, memory, quotas, limits on changes.
"""

from __future__ import annotations

import json

import pytest
from best_on_nodes import most_gpus
from examples import count, series
from node_rounds import node_round, node_snapshot
from second_nodes import node_faults

import allocator
from allocator import Problem
from allocator.options.instance_building import compile_round
from allocator.policies.base import POLICIES

NAMES = sorted(POLICIES)


def find_faults(seed: int) -> list[str] | None:
    """Decide a round with one of the policies, in turn; None if its rules cannot all hold."""
    snapshot, policy = node_snapshot(seed, leaving=seed % 2 == 0), NAMES[seed % len(NAMES)]
    try:
        plan = allocator.solve(Problem(snapshot), policy=policy)
    except allocator.Infeasible as why:
        assert why.relaxations, seed
        return None
    faults = node_faults(snapshot, json.loads(json.dumps(plan.to_dict())))
    return [f"{seed} {policy}: {fault}" for fault in faults]


def check_rounds(seeds: range) -> None:
    """No round has a fault, and few are refused."""
    found = [find_faults(seed) for seed in seeds]
    assert [fault for faults in found for fault in faults or ()] == []
    assert found.count(None) < 0.1 * len(found)


@pytest.mark.parametrize("rounds", series([range(1000, 1004), range(1004, 1024)], 1), ids=str)
def test_generated_rounds_have_no_fault(rounds: range) -> None:
    """4 rounds, nightly 24; `./scripts/test -m soak` has 1,000."""
    check_rounds(rounds)


@pytest.mark.parametrize(("field", "wrong"), [("value", 1e9), ("action", "none"), ("nodes", None)])
def test_the_account_finds_what_is_wrong(field: str, wrong: object) -> None:
    """One wrong number, word or node of a job is a fault."""
    snapshot = node_snapshot(1001)
    document = json.loads(json.dumps(allocator.solve(Problem(snapshot)).to_dict()))
    next(entry for entry in document["jobs"] if entry["gpus"])[field] = wrong
    assert [*node_faults(snapshot, document)]


@pytest.mark.soak
def test_a_thousand_generated_rounds_have_no_fault() -> None:
    """Every policy has about 40 of them."""
    check_rounds(range(1000))


def test_guarantees_are_what_nodes_hold() -> None:
    """u of tiny rounds is that of an exhaustive search over the places of all options."""
    less = 0
    for seed in range(count(15, 30)):
        problem = node_round(seed, jobs=8, nodes=3)
        tenants = problem.tenants
        most = [most_gpus(problem, name) for name in tenants.tenant]
        assert compile_round(problem).repairs.usable[: len(most)].tolist() == most, seed
        less += sum(most) < tenants.guaranteed_gpus.sum()
    assert less > 1
