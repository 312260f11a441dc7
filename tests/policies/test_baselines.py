"""Rule-based baselines followed by hand (docs/policies.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import count
from fakes.random_rounds import random_snapshot

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import NO_LIMITS, decide, run_policy
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.registry import POLICIES

RUNS = {"state": "running", "pool": "p0"}
AB = [{"gpu_type": "A"}, {"gpu_type": "B"}]


def asking(*sizes: int, **more: Sequence[Any]) -> list[dict[str, Any]]:
    """Jobs submitted one after the other that ask for these sizes and may have no other; further
    columns by name.
    """
    return [
        {"requested_gpus": k, "min_gpus": k, "max_gpus": k, "submitted_s": s}
        | {name: column[s] for name, column in more.items()}
        for s, k in enumerate(sizes)
    ]


def wants(asked: int, /, **more: Any) -> dict[str, Any]:
    return {"requested_gpus": asked, **more}


def linear(**speed: float) -> list[dict[str, Any]]:
    """Speeds per GPU of a type."""
    return [
        {"gpu_type": t, "gpus": k, "work_per_s": f * k}
        for t, f in speed.items()
        for k in (1, 2, 4, 8)
    ]


SIX = {"requested_gpus": 6, "min_gpus": 6, "max_gpus": 6, "sizes": [6]}
TWO_MODELS = [{"model": m, "max_gpus": 4} for m in "ab"]
TWO_CURVES = [
    {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": r}
    for m, curve in (("a", (1.0, 1.9, 3.1)), ("b", (2.0, 3.0, 4.0)))
    for k, r in zip((1, 2, 4), curve, strict=True)
]


@pytest.mark.parametrize(
    ("policy", "jobs", "more", "expected"),
    [
        # 8 GPUs: 4 start, 8 do not fit: static lets the 1 behind them wait though 4 GPUs idle
        ("static", asking(4, 8, 1), {}, [4, 0, 0]),
        # at the requested size 1/4 s, 90/8 = 11 s (does not fit), 50 s
        ("srtf", asking(4, 8, 1, remaining_work=(1, 90, 50)), {}, [4, 0, 1]),
        # the oldest job stands behind its tenant's quota, which may never change
        (
            "static",
            asking(2, 4, tenant=("small", "big")),
            {"tenants": [{"tenant": "small", "max_gpus": 1}]},
            [0, 4],
        ),
        # a running job keeps 8 although it asked for 2 and an older one waits
        ("static", [wants(2, **RUNS, gpus=8, submitted_s=5), wants(4)], {}, [8, 0]),
        # share 2 (8 // 3); the 2 that are left make the oldest, the last of the file, a 4
        ("equal", [{"submitted_s": s} for s in (3, 2, 1)], {}, [2, 2, 4]),
        # share 4: the first may have 1, the second takes 4 and then, as the only one left, 8
        ("equal", [{"max_gpus": 1}, {}], {"pools": [{"gpus": 9}]}, [1, 8]),
        # 100/4 = 25 s more; the new one 40/8 = 5 s: the running one is paused; or 50 s: it waits
        (
            "srtf",
            [wants(4, remaining_work=100, **RUNS, gpus=4), wants(8, remaining_work=40)],
            {},
            [0, 8],
        ),
        (
            "srtf",
            [wants(4, remaining_work=100, **RUNS, gpus=4), wants(8, remaining_work=400)],
            {},
            [4, 0],
        ),
        # time, not work: 60 units at 4 GPUs take 15 s, 100 at 8 take 12.5 s
        ("srtf", [wants(4, remaining_work=60), wants(8, remaining_work=100)], {}, [0, 8]),
        # from 3600 GPU-s on a job is in the second queue and paused for a new one
        (
            "las",
            [wants(8, **RUNS, gpus=8, attained_gpu_s=3600), wants(8, submitted_s=50)],
            {},
            [0, 8],
        ),
        (
            "las",
            [wants(8, **RUNS, gpus=8, attained_gpu_s=3599), wants(8, submitted_s=50)],
            {},
            [8, 0],
        ),
        # first started, first served inside a queue; lengths are not known
        (
            "las",
            [wants(8, remaining_work=1), wants(8, submitted_s=7, attained_gpu_s=5)],
            {},
            [0, 8],
        ),
        # first come, first served at the requested size; the first of the file came last
        (
            "greedy",
            [wants(4, min_gpus=4, max_gpus=4, submitted_s=s) for s in (9, 0, 5)],
            {},
            [0, 4, 4],
        ),
        # 6 of 8 GPUs are taken: 8 is not halved below min_gpus
        ("greedy", [SIX, wants(8, min_gpus=4)], {}, [6, 0]),
        # from 1 each: a gains 0.9 by a second GPU and 0.6 by each further one, b 0.5
        ("greedy", TWO_MODELS, {"pools": [{"gpus": 6}], "rates": TWO_CURVES}, [4, 2]),
        ("greedy", TWO_MODELS, {"pools": [{"gpus": 5}], "rates": TWO_CURVES}, [4, 1]),
        # who runs never shrinks, and the first that waits takes all it may
        (
            "greedy-naive",
            [
                RUNS | {"gpus": 2, "submitted_s": 3},
                *({"submitted_s": s, "max_gpus": 4} for s in (1, 2)),
            ],
            {},
            [2, 4, 2],
        ),
    ],
)
def test_one_pool_by_hand(
    policy: str, jobs: list[dict[str, Any]], more: dict[str, Any], expected: list[int]
) -> None:
    """What the line above each round says."""
    assert decide(problem(jobs, **more), policy=policy).jobs["gpus"] == expected


@pytest.mark.parametrize(
    ("policy", "jobs", "pools", "speeds", "expected"),
    [
        # the head wants 8 of A where 4 are free: later jobs may not use A, but B is open to them
        (
            "static",
            [
                wants(4, gpu_types="A", **RUNS, gpus=4),
                *asking(8, 2, 2, gpu_types=("A", None, None)),
            ],
            AB,
            {"A": 9.0, "B": 1.0},
            ["p0", None, "p1", "p1"],
        ),
        # 4 fast and 4 slow GPUs, 4 jobs: 2 each; the two oldest get the fast ones
        (
            "equal",
            [{"submitted_s": s} for s in range(4)],
            [t | {"gpus": 4} for t in AB],
            {"A": 1.0, "B": 3.0},
            ["p1", "p1", "p0", "p0"],
        ),
        # who runs is first tried where it runs, others on the faster type
        (
            "greedy",
            [{"max_gpus": 1}, {"max_gpus": 1, **RUNS, "gpus": 1}],
            AB,
            {"A": 1.0, "B": 3.0},
            ["p1", "p0"],
        ),
        # the shortest first; speed x GPUs / jobs in the pool if it came: 24 v 16: fast; 12 v 16:
        # slow; 12 v 8: fast; 8 v 8: the faster
        (
            "afs",
            [{"remaining_work": w} for w in (1, 2, 3, 4)],
            AB,
            {"A": 3.0, "B": 2.0},
            ["p0", "p1", "p0", "p0"],
        ),
    ],
)
def test_two_types_by_hand(
    policy: str, jobs: Any, pools: Any, speeds: dict[str, float], expected: list[str | None]
) -> None:
    """What the comment of each round says; all GPUs are used that may be."""
    jobs = [{"submitted_s": s} | j for s, j in enumerate(jobs)]
    assert decide(problem(jobs, pools, linear(**speeds)), policy=policy).jobs["pool"] == expected


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
