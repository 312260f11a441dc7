"""Decisions in which jobs share GPUs: by hand, for every solver, and their properties.

tests/formulations/test_sharing_bounds.py holds `mip` against every plan with pairs under every
rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot
from examples import seeds
from sharing_rounds import best_of_all, sharing_snapshot

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.explain import explain
from allocator.errors import Infeasible
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import compile_round
from allocator.policies.registry import POLICIES
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Solver, Termination

EXACT = SolveLimits(gap=0.0)
SHARE = [
    {
        "model_a": "m",
        "model_b": "m",
        "gpu_type": "A",
        "gpus": 1,
        "slowdown_a": 1.2,
        "slowdown_b": 1.2,
    }
]
POOL = {"gpus": 1, "memory_gb": 10.0, "sharing": "any"}
ONE = {"remaining_work": 1000, "max_gpus": 1, "memory_gb": 4.0}


@pytest.fixture(scope="module")
def bests() -> list[tuple[Problem, float | None]]:
    """Six rounds, and the value of the best plan."""
    made = [validate(sharing_snapshot(seed, jobs=3).snapshot()) for seed in range(1, 7)]
    return [(p, best_of_all(p)) for p in made]


@pytest.mark.parametrize("name", list(registry.SOLVERS))
def test_every_solver_finds_the_best_pairs(
    name: str, bests: list[tuple[Problem, float | None]]
) -> None:
    """The models of six such rounds, solved as they are to optimality by each solver: the best of
    all plans.
    """
    solver: Solver = registry.get(name)
    for p, best in bests:
        model = compile_round(p).model
        if not model.n:
            continue  # nothing to solve
        answer = solver.solve(model, EXACT)
        assert (answer.termination is Termination.INFEASIBLE) == (best is None)
        assert best is None or answer.objective == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_a_pair_by_hand() -> None:
    """Four jobs of 1000 s, two GPUs, intervals of 300 s. Alone two jobs do 0.3 of what is left; two
    by two, each at 1/1.2, four do 0.25. The primary job pays for both: 2 $/h for each GPU."""
    p = problem([ONE] * 4, [POOL | {"gpus": 2, "price_per_gpu_hour": 2.0}], {1: 1.0}, sharing=SHARE)
    plan = decide(p, limits=EXACT)
    jobs, others = plan.jobs, plan.jobs["shared_with"]
    assert jobs["value"] == pytest.approx([0.25] * 4)
    assert jobs["work_per_s"] == pytest.approx([1 / 1.2] * 4)
    assert [others[int(other[1])] for other in others] == ["j0", "j1", "j2", "j3"]
    assert sorted(jobs["cost_per_hour"]) == [0, 0, 2, 2] and plan.pools[0].used == 2


def test_too_much_memory_too_slow_or_not_allowed() -> None:
    """No pair where both need 6 of 10 GB, where each would be 2.2 times as slow, or where pools
    do not let them.
    """
    for job, pool, slow in (
        (ONE | {"memory_gb": 6.0}, POOL, 1.2),
        (ONE, POOL, 2.2),
        (ONE, {"gpus": 1}, 1.2),
        (ONE, POOL | {"sharing": "none"}, 1.2),
    ):
        p = problem(
            [job] * 2,
            [pool],
            {1: 1.0},
            sharing=[SHARE[0] | {"slowdown_a": slow, "slowdown_b": slow}],
        )
        assert sorted(decide(p, limits=EXACT).jobs["gpus"]) == [0, 1]


def pair_of(*jobs: dict[str, Any], gpus: int = 1, **more: Any) -> Plan:
    """The best plan of jobs that may share the GPUs of one pool."""
    tables = {"sharing": SHARE, **more}
    return decide(problem(jobs, [POOL | {"gpus": gpus}], {1: 1.0}, **tables), limits=EXACT)


def running(**more: Any) -> dict[str, Any]:
    return ONE | {"state": "running", "pool": "p0", "gpus": 1, "restart_s": 60} | more


def test_what_a_running_pair_may_do() -> None:
    """It stays for nothing. With a second GPU the secondary job moves there, at a restart of 60 s:
    0.3 + 0.24 instead of 0.25 each. If the primary job may not run at all, its secondary job keeps
    the GPU and loses nothing. If neither may move, they stay."""
    primary, secondary = running(), running(shared_with="j0")
    slow = primary | {"weight": 1e-3}
    for plan, value, action in (
        (pair_of(primary, secondary), [0.25, 0.25], ["keep", "keep"]),
        (pair_of(primary, secondary, gpus=2), [0.3, 0.24], ["keep", "move"]),
        (pair_of(slow, secondary), [0.0, 0.3], ["pause", "keep"]),
    ):
        assert plan.jobs["value"] == pytest.approx(value) and plan.jobs["action"] == action
    firm = pair_of(*(job | {"preemptible": False} for job in (primary, secondary)), gpus=2)
    assert firm.jobs["shared_with"] == ["j1", "j0"]


def test_explained_with_other_jobs() -> None:
    """Three jobs, one GPU: one has it, one runs on the same GPU, the third is told what it would
    have to offer; options that run with another job name it."""
    p = snapshot([ONE | {"weight": w} for w in (3, 2, 1)], [POOL], {1: 1.0}, sharing=SHARE)
    told = explain(p, "j2", limits=EXACT)
    assert told.got["shared_with"] is None and told.got["reason"] == "outranked"
    assert any(o["beside"] in ("j0", "j1") for o in told.options) and any(
        "next to" in line for line in told.lines()
    )
    assert explain(p, "j1", limits=EXACT).got["shared_with"] == "j0"


def test_changes_are_counted_for_both() -> None:
    """max_changes 0: the pair stays although a second GPU is free, and the objective would gain."""
    plan = pair_of(running(), running(shared_with="j0"), gpus=2, config={"max_changes": 0})
    assert plan.jobs["shared_with"] == ["j1", "j0"]


def test_lost_gpus_of_pairs() -> None:
    """Two pairs of jobs that may not be moved on two GPUs, of which one is left: the pair submitted
    last is released; the first one stays. One colocated job that may not be moved is enough.
    Nothing is released while both pairs fit, nor where nothing could be kept."""
    jobs = [
        running(preemptible=False, submitted_s=1),
        running(shared_with="j0"),
        running(submitted_s=2),
        running(shared_with="j2", preemptible=False, submitted_s=3),
    ]
    for gpus, released in ((2, []), (1, [3]), (0, [])):
        p = problem(
            jobs, [POOL | {"gpus": gpus}], {1: 1.0}, sharing=SHARE, config={"max_changes": 0}
        )
        mended = compile_round(p).repairs
        assert np.flatnonzero(mended.released).tolist() == released
        assert decide(p, limits=EXACT).jobs["action"] == ["keep"] * 2 * gpus + ["pause"] * (
            4 - 2 * gpus
        )


def test_a_pair_that_may_not_be_any_more() -> None:
    """The pool no longer lets jobs share: the secondary job moves to the free GPU; without one the
    pair is parted.
    """
    pair = [running(), running(shared_with="j0")]
    for gpus, actions in ((2, [["keep", "move"]]), (1, [["keep", "pause"], ["pause", "keep"]])):
        p = problem(pair, [POOL | {"gpus": gpus, "sharing": "none"}], {1: 1.0}, sharing=SHARE)
        assert decide(p, limits=EXACT).jobs["action"] in actions


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_names_and_order_change_nothing_and_sharing_never_hurts(seed: int) -> None:
    """The best value is the same with the jobs in another order, and at least that of the pools
    without sharing.
    """
    folder = sharing_snapshot(seed, jobs=6)
    tables = dict(folder.tables)

    def value(changed: dict[str, Any]) -> float | None:
        try:
            return decide(
                validate(type(folder)("other", folder.config, tables | changed).snapshot()),
                limits=EXACT,
            ).objective_value
        except Infeasible:
            return None

    whole = value({})
    assert value({"jobs.csv": tables["jobs.csv"][::-1]}) == pytest.approx(whole)
    if whole is not None and not any(j.get("shared_with") for j in tables["jobs.csv"]):
        alone = value({"pools.csv": [p | {"sharing": "none"} for p in tables["pools.csv"]]})
        assert alone is None or alone <= whole + 1e-9


SHARED = [
    s
    for s in range(20)
    if any(j.get("shared_with") for j in sharing_snapshot(s, jobs=3).tables["jobs.csv"])
]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "mip"])
def test_policies_that_do_not_share_keep_the_rules_with_pairs(policy: str) -> None:
    """Every policy finds a plan that the audit accepts wherever pairs run and there is one."""
    for seed in SHARED[:2]:
        p = validate(sharing_snapshot(seed, jobs=3).snapshot())
        try:
            decide(p, policy=policy, limits=EXACT)
        except Infeasible:
            assert best_of_all(p) is None


def test_a_round_that_changes_nothing_keeps_every_pair() -> None:
    """In random rounds with running pairs, the unchanged choice is what the jobs hold: pool, GPUs,
    and who runs on whose GPUs. The other order of a running pair is an option too."""
    pairs = 0
    for seed in range(15):
        problem = validate(sharing_snapshot(seed, 3 + seed % 8).snapshot())
        jobs = problem.jobs
        round_ = compile_round(problem, prunes=False, shares=PairOffer.ALL)
        held = round_.allocation(round_.unchanged_choice())
        stays = held.gpus > 0  # others may not keep what they hold
        assert (held.pool[stays] == jobs.pool[stays]).all(), seed
        assert (held.gpus[stays] == jobs.gpus[stays]).all(), seed
        assert (held.primary[stays] == jobs.primary[stays]).all(), seed
        pairs += np.count_nonzero(held.primary >= 0)
    assert pairs > 5
