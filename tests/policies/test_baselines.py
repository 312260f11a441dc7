"""Rule-based baselines followed by hand (docs/policies.md)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from builders import LINEAR, problem
from examples import count
from fakes.random_rounds import random_snapshot
from text_tables import cases, given

from allocator.domain.plan import Plan
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import NO_LIMITS, decide, run_policy
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.base import POLICIES

# policy -> round -> GPUs -> why; `only` is the one size that a job may have
ONE_POOL = """
static -> jobs: only=4; only=8; only=1 -> 4 0 0 -> 8 do not fit, and the 1 behind them waits
srtf -> jobs: only=4 remaining_work=1; only=8 remaining_work=90; only=1 remaining_work=50 -> \
4 0 1 -> at the requested size 1/4 s, 90/8 = 11 s (does not fit), 50 s
static -> jobs: only=2 tenant=small; only=4 tenant=big / tenants: tenant=small max_gpus=1 -> \
0 4 -> the oldest job stands behind its tenant's quota, which may never change
static -> jobs: wants=2 runs=8 submitted_s=5; wants=4 -> 8 0 -> \
a running job keeps 8 although it asked for 2 and an older one waits
equal -> jobs: submitted_s=3; submitted_s=2; submitted_s=1 -> 2 2 4 -> \
share 2 (8 // 3); the 2 that are left make the oldest, the last of the file, a 4
equal -> jobs: max_gpus=1; / pools: gpus=9 -> 1 8 -> \
share 4: the first may have 1, the second takes 4 and then, as the only one left, 8
srtf -> jobs: wants=4 remaining_work=100 runs=4; wants=8 remaining_work=40 -> 0 8 -> \
100/4 = 25 s more; the new one 40/8 = 5 s: the running one is paused
srtf -> jobs: wants=4 remaining_work=100 runs=4; wants=8 remaining_work=400 -> 4 0 -> \
25 s; the new one 50 s: it waits
srtf -> jobs: wants=4 remaining_work=60; wants=8 remaining_work=100 -> 0 8 -> \
time, not work: 60 units at 4 GPUs take 15 s, 100 at 8 take 12.5 s
las -> jobs: wants=8 runs=8 attained_gpu_s=3600; wants=8 submitted_s=50 -> 0 8 -> \
from 3600 GPU-s on a job is in the second queue and paused for a new one
las -> jobs: wants=8 runs=8 attained_gpu_s=3599; wants=8 submitted_s=50 -> 8 0 -> \
before 3600 GPU-s it is not
las -> jobs: wants=8 remaining_work=1; wants=8 submitted_s=7 attained_gpu_s=5 -> 0 8 -> \
first started, first served inside a queue; lengths are not known
greedy -> jobs: only=4 submitted_s=9; only=4 submitted_s=0; only=4 submitted_s=5 -> 0 4 4 -> \
first come, first served at the requested size; the first of the file came last
greedy -> jobs: only=6 sizes=6; wants=8 min_gpus=4 -> 6 0 -> \
6 of 8 GPUs are taken: 8 is not halved below min_gpus
greedy -> TWO / pools: gpus=6 -> 4 2 -> \
from 1 each: a gains 0.9 by a second GPU and 0.6 by each further one, b 0.5
greedy -> TWO / pools: gpus=5 -> 4 1 -> the same with a GPU less
greedy-naive -> jobs: runs=2 submitted_s=3; submitted_s=1 max_gpus=4; submitted_s=2 max_gpus=4 -> \
2 4 2 -> who runs never shrinks, and the first that waits takes all it may
"""
SHORT = {
    "only=(.)": r"requested_gpus=\1 min_gpus=\1 max_gpus=\1",
    "wants=": "requested_gpus=",
    "runs=": "state=running pool=p0 gpus=",
    "TWO": """jobs: model=a max_gpus=4; model=b max_gpus=4 / rates: model=a gpu_type=A gpus=1
        work_per_s=1; model=a gpu_type=A gpus=2 work_per_s=1.9; model=a gpu_type=A gpus=4
        work_per_s=3.1; model=b gpu_type=A gpus=1 work_per_s=2; model=b gpu_type=A gpus=2
        work_per_s=3; model=b gpu_type=A gpus=4 work_per_s=4""",
}
# the same with pools and speeds per GPU of types A and B -> pools
TWO_TYPES = """
static -> jobs: wants=4 gpu_types=A runs=4; only=8 gpu_types=A; only=2; only=2 / \
pools: gpu_type=A; gpu_type=B -> 9 1 -> p0 - p1 p1 -> \
the head wants 8 of A where 4 are free: later jobs may not use A, but B is open to them
equal -> jobs: ;;; / pools: gpu_type=A gpus=4; gpu_type=B gpus=4 -> 1 3 -> p1 p1 p0 p0 -> \
4 fast and 4 slow GPUs, 4 jobs: 2 each; the two oldest get the fast ones
greedy -> jobs: max_gpus=1; max_gpus=1 runs=1 / pools: gpu_type=A; gpu_type=B -> 1 3 -> p1 p0 -> \
who runs is first tried where it runs, others on the faster type
afs -> jobs: remaining_work=1; remaining_work=2; remaining_work=3; remaining_work=4 / \
pools: gpu_type=A; gpu_type=B -> 3 2 -> p0 p1 p0 p0 -> \
the shortest first; speed x GPUs / jobs in the pool if it came: 24 v 16: fast; 12 v 16: slow; \
12 v 8: fast; 8 v 8: the faster
"""


def decided(policy: str, text: str, **more: Any) -> Plan:
    """Decide a round of a text, in which jobs come one after the other unless it says when."""
    for short, long in SHORT.items():
        text = re.sub(short, long, text)
    rows = given(text, **more)
    rows["jobs"] = [{"submitted_s": s} | row for s, row in enumerate(rows["jobs"])]
    return decide(problem(**rows), policy=policy)


@pytest.mark.parametrize("case", cases(ONE_POOL), ids=range(17))
def test_one_pool_by_hand(case: tuple[str, ...]) -> None:
    """What the end of each line says."""
    policy, text, expected, _ = case
    assert " ".join(map(str, decided(policy, text).jobs["gpus"])) == expected


@pytest.mark.parametrize("case", cases(TWO_TYPES), ids=range(4))
def test_two_types_by_hand(case: tuple[str, ...]) -> None:
    """What the end of each line says; all GPUs are used that may be."""
    policy, text, speeds, expected, _ = case
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": float(f) * k}
        for t, f in zip("AB", speeds.split(), strict=True)
        for k in LINEAR
    ]
    pools = decided(policy, text, rates=rates).jobs["pool"]
    assert " ".join(pool or "-" for pool in pools) == expected


def by_the_book(round_: CompiledRound) -> list[int]:
    """AFS-L on one pool without further rules as its page says, one full tournament for each
    step.
    """
    i, jobs = round_.instance, round_.problem.jobs
    rate = round_.option_table.rate[round_.option]
    first = i.start[:-1]
    free = int(i.capacity[0])
    choice = np.full(len(i.mandatory), -1)
    for j in np.lexsort((jobs.submitted_s, jobs.remaining_work / rate[first])).tolist():
        if i.gpus[first[j]] <= free:
            choice[j] = first[j]
            free -= int(i.gpus[first[j]])
    out = {j for j in range(len(choice)) if choice[j] < 0}

    def gain(j: int, after: int) -> float:
        o = int(choice[j])
        return float((rate[o + 1] - rate[o]) / rate[o + after] / (i.gpus[o + 1] - i.gpus[o]))

    while True:
        for j in range(len(choice)):
            o = int(choice[j])
            if j not in out and (
                o + 1 == i.start[j + 1]
                or rate[o + 1] <= rate[o]
                or i.gpus[o + 1] - i.gpus[o] > free
            ):
                out.add(j)
        able = sorted(
            (j for j in range(len(choice)) if j not in out),
            key=lambda j: jobs.remaining_work[j] / rate[choice[j]],
        )
        if not able:
            return [int(i.gpus[o]) if o >= 0 else 0 for o in choice]
        champion = able[0]
        for j in able[1:]:
            if gain(j, 1) > gain(champion, 0):
                champion = j
        free -= int(i.gpus[choice[champion] + 1] - i.gpus[choice[champion]])
        choice[champion] += 1


def test_afs_agrees_with_full_tournaments() -> None:
    """The line of champions gives what a whole tournament per GPU gives, on random rounds of one
    pool.
    """
    for s in range(count(20, 100)):
        folder = random_snapshot(np.random.default_rng(60 + s), 12, rules=False, pools=1)
        round_ = compile_round(validate(folder.snapshot()), prunes=False)
        if (np.diff(round_.instance.start) == 0).any():
            continue
        _, d = run_policy(round_, POLICIES["afs"].decide, None, NO_LIMITS, np.inf)
        assert round_.allocation(d.choice).gpus.tolist() == by_the_book(round_)
