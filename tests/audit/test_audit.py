"""The witness: a rule broken by hand gives exactly that fault, and a legal plan gives none.

Limits of tenants are tried in test_audit_agrees.py, against a second reading.

Default round of the builders: jobs j0, j1 ... of model "m" with 1000 units left, pools p0, p1 ...
of 8 GPUs of type "A" in nodes of 8, rate = GPUs, rounds of 300 s, restart 30 s.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import cases, cells, given

from allocator.audit import Audit, audit
from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Problem
from allocator.options.instance_building import compile_round

Gets = dict[str, tuple[str, int]]


def plan(p: Problem, gets: Gets) -> Allocation:
    """{"j0": ("p0", 4)} as an Allocation; the row is the fastest measured one at that size."""
    pool, gpus, row = (
        np.full(len(p.jobs), -1),
        np.zeros(len(p.jobs), np.int64),
        np.full(len(p.jobs), -1),
    )
    for name, (where, k) in gets.items():
        j, i = p.jobs.job_id.index(name), p.pools.pool.index(where)
        pool[j], gpus[j] = i, k
        r = p.rates
        fits = (r.model == p.jobs.model[j]) & (r.gpu_type == p.pools.gpu_type[i]) & (r.gpus == k)
        if fits.any():
            row[j] = np.flatnonzero(fits)[np.argmax(r.rate[fits])]
    return Allocation(pool, gpus, row, np.full(len(p.jobs), -1))


def repairs(
    p: Problem,
    released: str = "",
    max_changes: str | None = None,
) -> Repairs:
    """No repairs, but for what is named; a guarantee is claimed to amount to nothing."""
    return Repairs(
        np.array([n == released for n in p.jobs.job_id], dtype=bool),
        p.max_changes if max_changes is None else int(max_changes),
        np.zeros(len(p.tenants.tenant), dtype=np.int64),
    )


def judge(p: Problem, gets: Gets, **mended: Any) -> Audit:
    return audit(p, plan(p, gets), repairs(p, **mended), compile_round(p).offer)


# Each line is a round, a plan, and words of the only fault that the audit finds. The repairs of the
# round follow, if there are any.
BROKEN = """
jobs: min_gpus=2 -> j0=p0:1 -> outside its range 2 to 8
jobs: sizes=1|4 -> j0=p0:2 -> not one of its sizes
jobs: gpu_types=A / pools: ; gpu_type=B -> j0=p1:2 -> of type "B", which its gpu_types exclude
jobs: weight=1 / pools: gpus=4 -> j0=p0:8 -> which has only 4
jobs: weight=1 / rates: gpu_type=A gpus=2 work_per_s=2 -> j0=p0:4 -> no rate is known
jobs: state=held -> j0=p0:1 -> although it is held
jobs: ; after=j0 -> j1=p0:1 -> it comes after
jobs: runs=2 resizes_left=0 -> j0=p0:4 -> resizes_left is 0
jobs: runs=2 preemptible=false -> nothing -> gets nothing, although it is not
jobs: runs=2 preemptible=false; runs=8 preemptible=false / pools: ; -> j0=p1:2 j1=p0:8 -> \
"p1", although it is not preemptible -> released=j0
jobs: runs=2 preemptible=false -> j0=p0:2 -> can hold its 2 -> released=j0
jobs: ; -> j0=p0:8 j1=p0:1 -> pool "p0": 9 GPUs are given, it has 8
jobs: weight=1 / pools: price_per_gpu_hour=2 / config: budget_per_hour=7.9 -> j0=p0:4 -> \
the plan costs 8 $/h, budget_per_hour is 7.9
jobs: runs=2; runs=2 / config: max_changes=1 -> j0=p0:4 -> \
2 running jobs change, max_changes is 1
jobs: runs=2 / config: max_changes=0 -> j0=p0:2 -> \
max_changes 0 is lifted to 1, lost GPUs force 0 -> max_changes=1
"""


@pytest.mark.parametrize("case", cases(BROKEN.replace("runs=", "state=running pool=p0 gpus=")))
def test_each_broken_rule_is_the_only_fault(case: tuple[str, ...]) -> None:
    """One rule broken, one sentence about it."""
    context, gets, words, *mended = case
    found = {n: (pool, int(k)) for n, pool, k in re.findall(r"(\w+)=(\w+):(\d+)", gets)}
    (fault,) = judge(problem(**given(context)), found, **cells("".join(mended))).faults
    assert words in fault


def test_exactly_the_budget_is_legal() -> None:
    """Three GPUs at 0.1 $/h: the cents do not add up to 0.3 in binary numbers."""
    pools, config = [{"price_per_gpu_hour": 0.1}], {"budget_per_hour": 0.3}
    assert judge(problem([{"sizes": [3]}], pools, config=config), {"j0": ("p0", 3)}).faults == ()


@pytest.mark.parametrize(
    ("pool", "gpus", "row", "words"),
    [
        (7, 2, -1, "neither an option nor nothing"),
        (0, 0, -1, "neither an option nor nothing"),
        (0, 2, 0, "does not give its rate"),
        (0, 2, 99, "does not give its rate"),
    ],
)
def test_arrays_out_of_bounds_are_faults(pool: int, gpus: int, row: int, words: str) -> None:
    """Indices that mean nothing are told, not followed; row 1 is the one that gives the rate of
    2 GPUs.
    """
    p = problem([{}])
    plan = Allocation(*(np.array([n]) for n in (pool, gpus, row, -1)))
    (found,) = audit(p, plan, repairs(p), compile_round(p).offer).faults
    assert words in found


def test_no_jobs_and_no_pools() -> None:
    """Nothing to decide is a legal decision of value 0."""
    spot = {"tenants": [{"tenant": "t", "max_spot_gpus": 1}]}
    for p in (problem([]), problem([{}], [{"gpus": 0}]), problem([{"tenant": "t"}], [], **spot)):
        told = judge(p, {})
        assert told.faults == () and told.objective_value == 0.0


def test_arrays_of_the_wrong_length_are_a_fault() -> None:
    """An allocation of another problem is refused as a whole."""
    p = problem([{}, {}])
    short = Allocation(np.zeros(1, np.int64), *(np.ones(2, np.int64) for _ in range(3)))
    found = audit(p, short, repairs(p), compile_round(p).offer)
    assert found.faults == ("allocation.pool has shape (1,), it should be (2,)",)
