"""What physics broke is repaired and reported; what rules broke is named with the smallest
relaxation.
"""

from __future__ import annotations

import pytest
from builders import problem
from text_tables import cases, given

from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.errors import Infeasible
from allocator.options.instance_building import compile_round

RUNS = "state=running pool=p0 preemptible=false gpus="


def got(p: Problem) -> dict[str, int]:
    r = decide(p)
    return dict(zip(r.jobs["job_id"], r.jobs["gpus"], strict=True))


def test_drained_pool_releases_the_fewest_gpus() -> None:
    """4 + 2 + 2 non-preemptible GPUs on 6: releasing one 2 is enough, and the latest submitted
    goes.
    """
    fixed = f"jobs: {RUNS}4; {RUNS}2 submitted_s=5; {RUNS}2 submitted_s=9 / pools: gpus=6"
    p = problem(**given(fixed))
    assert compile_round(p).repairs.released.tolist() == [False, False, True]
    assert got(p) == {"j0": 4, "j1": 2, "j2": 0}
    assert any('"j2"' in w and "released" in w for w in decide(p).warnings)


def test_larger_late_job_stays_if_that_keeps_more_gpus() -> None:
    """2 (old) and 6 (late) on 6 GPUs: keeping the 6 loses 2 GPUs, keeping the 2 would lose 6."""
    p = problem(**given(f"jobs: {RUNS}2; {RUNS}6 submitted_s=9 sizes=6 / pools: gpus=6"))
    assert compile_round(p).repairs.released.tolist() == [True, False]


def test_lost_gpus_lift_the_limit_on_changes() -> None:
    """Three jobs of 2 on a pool of 2: two must change although max_changes is 0."""
    two = "state=running pool=p0 gpus=2 max_gpus=2 min_gpus=2"
    round_ = f"jobs: {two}; {two}; {two} / pools: gpus=2 / config: max_changes=0"
    p = problem(**given(round_))
    assert compile_round(p).repairs.max_changes == 2
    assert sorted(got(p).values()) == [0, 0, 2]


# round -> words of each rule that clashes -> the relaxation
CLASHES = f"""
jobs: tenant=a; tenant=b / tenants: tenant=a guaranteed_gpus=8; tenant=b guaranteed_gpus=4 -> \
guaranteed_gpus,GPUs of pool -> guaranteed_gpus of tenant "a": 8 would have to be 4
jobs: {RUNS}8 / pools: price_per_gpu_hour=2 / \
config: budget_per_hour=10 -> budget_per_hour -> budget_per_hour: 10 would have to be 16
jobs: state=running pool=p0 gpus=8 tenant=a / tenants: tenant=a max_gpus=4 / \
config: max_changes=0 -> max_changes -> max_changes: 0 would have to be 1
"""


@pytest.mark.parametrize("case", cases(CLASHES), ids=range(3))
def test_rules_that_clash_are_named(case: tuple[str, ...]) -> None:
    """Exit 4 with the clashing rules and a relaxation that can be checked by hand."""
    text, rules, relaxation = case
    with pytest.raises(Infeasible) as e:
        decide(problem(**given(text)))
    for word in rules.split(","):
        assert any(word in c for c in e.value.conflict), e.value.conflict
    assert relaxation in str(e.value)
    assert len(e.value.relaxations) == 1
