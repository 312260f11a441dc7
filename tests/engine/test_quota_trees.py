"""Trees of tenants by hand: borrowing, reclaiming within a round, lending, reasons and advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import allocator
from allocator import Infeasible, Job, Pool, Problem, Quota, Rate, Tenant

TREE = (
    Tenant("research", max_gpus=12),
    Tenant("vision", parent="research"),
    Tenant("speech", parent="research"),
    Tenant("ops"),
)
RIGHTS = (
    Quota("vision", gpu_type="A100", guaranteed_gpus=4),
    Quota("speech", gpu_type="A100", guaranteed_gpus=4),
)


def job(name: str, tenant: str, **columns: Any) -> Job:
    given = {"remaining_work": 90_000, "max_gpus": 8, "submitted_s": 0.0, **columns}
    return Job(name, "m", tenant=tenant, **given)


def cluster(
    jobs: Sequence[Job], quotas: Sequence[Quota] = (), tenants: Sequence[Tenant] = TREE
) -> Problem:
    """8 A100 and 8 slower V100."""
    return Problem.build(
        jobs=jobs,
        pools=[Pool("main", "A100", 8), Pool("old", "V100", 8)],
        rates=[
            Rate("m", kind, k, speed * k**0.9)
            for kind, speed in (("A100", 10.0), ("V100", 4.0))
            for k in (1, 2, 4, 8)
        ],
        tenants=tenants,
        quotas=quotas,
        now_s=1000.0,
    )


def gets(problem: Problem, policy: str = "mip") -> dict[str, tuple[str | None, int]]:
    """Pool and GPUs of every job."""
    plan = allocator.solve(problem, policy=policy, gap=0.0).to_frame()
    return {
        row.job_id: (row.pool if row.gpus else None, int(row.gpus)) for row in plan.itertuples()
    }


def test_guarantees_and_fixed_jobs_come_before_what_is_not_lent() -> None:
    """A plan exists, and a warning says what stays free."""
    fixed = job("v", "vision", state="running", pool="main", gpus=6, preemptible=False)
    fixed = dataclasses.replace(fixed, sizes=[6])
    rights = [Quota("speech", gpu_type="A100", guaranteed_gpus=4, lend_gpus=0)]
    plan = allocator.solve(cluster([fixed, job("o", "ops", gpu_types=["A100"])], rights))
    assert plan.to_frame().gpus.tolist() == [6, 0]
    assert plan.warnings == (
        "2 GPUs of type A100 instead of 4 are kept for tenants that do not lend them: guarantees,"
        " jobs that may not be moved or max_changes need the others",
    )


def test_a_reason_names_the_node_of_the_tree() -> None:
    """The limit that binds: that of the parent, by type, or what others do not lend."""
    tight = [Quota("research", gpu_type="A100", max_gpus=4)]
    wide = cluster([job("v", "vision", gpu_types=["A100"])], tight)
    detail = allocator.solve(wide).to_frame().detail[0]
    assert detail == 'even 8 x main alone is above max_gpus of tenant "research" of type "A100"'
    kept = [Quota("speech", gpu_type="A100", guaranteed_gpus=4, lend_gpus=0)]
    detail = allocator.solve(cluster([job("v", "vision", gpu_types=["A100"])], kept)).to_frame()
    assert detail.detail[0] == "even 8 x main alone is above what tenants lend of type A100"


def test_advice_says_which_quota_and_by_how_much() -> None:
    """Each change was decided again; one less would not do."""
    tight = [Quota("research", gpu_type="A100", max_gpus=4)]
    problem = cluster([job("v", "vision", gpu_types=["A100"])], tight)
    (change,) = allocator.explain(problem, "v").changes
    assert change.values == {"quotas.research/A100.max_gpus": "8"} and change.gpus == 8
    assert gets(problem.change({"quotas.research/A100.max_gpus": 8}))["v"] == ("main", 8)
    kept = [Quota("speech", gpu_type="A100", guaranteed_gpus=4, lend_gpus=0)]
    problem = cluster([job("v", "vision", gpu_types=["A100"])], kept)
    changes = [c.values for c in allocator.explain(problem, "v").changes]
    assert {"quotas.speech/A100.lend_gpus": "4"} in changes
    assert {"quotas.speech/A100.guaranteed_gpus": "0"} in changes
    two = cluster([job("v", "vision", max_gpus=2), job("w", "vision", max_gpus=2, weight=2.0)], [])
    found = allocator.explain(two.change({"tenants.vision.max_jobs": 1}), "v")
    assert found.got["detail"].startswith('without the limits of tenant "vision" it would get 2 x')
    assert {"tenants.vision.max_jobs": "2"} in [c.values for c in found.changes]


def test_whatif_sets_quotas() -> None:
    """Rows are named TENANT/TYPE, TENANT/POOL or TENANT; a new name is a new row."""
    problem = cluster([job("v", "vision", gpu_types=["A100"])])
    for place in ("quotas.vision/A100", "quotas.research/main", "quotas.vision"):
        assert gets(problem.change({f"{place}.max_gpus": 4}))["v"] == ("main", 4)
    twice = problem.change({"quotas.vision/A100.max_gpus": 4, "quotas.vision/A100.lend_gpus": 0})
    assert len(twice.checked.quotas) == 1


def test_rules_that_clash_are_named_with_the_smallest_relaxation() -> None:
    """A guarantee below a limit of the parent; a borrower that may not be moved."""
    both = [job("v", "vision", gpu_types=["A100"]), job("s", "speech", gpu_types=["A100"])]
    rights = [
        Quota("vision", gpu_type="A100", guaranteed_gpus=8),
        Quota("research", pool="main", max_gpus=4),
    ]
    with pytest.raises(Infeasible) as stop:
        allocator.solve(cluster(both, rights))
    assert stop.value.conflict == (
        'max_gpus of tenant "research" of pool "main"',
        'guaranteed_gpus of tenant "vision" of type "A100"',
    )
    borrower = job("v", "vision", state="running", pool="main", gpus=8, preemptible=False)
    with pytest.raises(Infeasible) as stop:
        allocator.solve(cluster([borrower, both[1]], RIGHTS))
    (relaxed,) = stop.value.relaxations
    assert str(relaxed).startswith('guaranteed_gpus of tenant "speech" of type "A100": 4 would')


def test_faults_of_trees_and_quotas_are_told_at_once() -> None:
    """File, line and rule."""
    with pytest.raises(allocator.InvalidInput) as stop:
        cluster(
            [job("v", "vision")],
            [
                Quota("nobody", max_gpus=1),
                Quota("vision", gpu_type="A100", pool="main"),
            ],
            [
                Tenant("vision", parent="research"),
                Tenant("research", parent="vision"),
            ],
        )
    assert sorted(str(fault) for fault in stop.value.faults) == sorted(
        [
            'tenants.csv:2: parent makes a circle: "vision" -> "research" -> "vision" (tenant'
            ' "vision")',
            'tenants.csv:3: parent makes a circle: "research" -> "vision" -> "research" (tenant'
            ' "research")',
            'quotas.csv:2: tenant "nobody" is not in tenants.csv',
            "quotas.csv:3: gpu_type and pool are both given; a quota is of one of them",
        ]
    )
