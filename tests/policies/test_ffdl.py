"""FfDL's dynamic programme: against trying everything, and as a policy followed by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from builders import problem

from allocator.domain.problem import Problem
from allocator.engine.decision import decide
from allocator.policies.rules.ffdl import maximise_speed

CURVES = {"good": {1: 1.0, 2: 1.9, 4: 3.6, 8: 6.8}, "poor": {1: 10.0, 2: 15.0, 4: 18.0, 8: 20.0}}


def plan(p: Problem) -> list[tuple[str | None, int]]:
    r = decide(p, policy="ffdl")
    return list(zip(r.jobs["pool"], r.jobs["gpus"], strict=True))


def curves(*types: str, **faster: float) -> list[dict[str, Any]]:
    return [
        {"model": m, "gpu_type": t, "gpus": k, "work_per_s": r * faster.get(t, 1.0)}
        for m, curve in CURVES.items()
        for t in types
        for k, r in curve.items()
    ]


def test_as_good_as_trying_everything() -> None:
    """100 random small cases: total speed equals the best over all combinations of sizes, and no
    GPU too many.
    """
    rng = np.random.default_rng(4)
    for _ in range(100):
        jobs = []
        for _ in range(int(rng.integers(0, 5))):
            extra = np.append(
                0, np.sort(rng.choice(np.arange(1, 7), int(rng.integers(0, 4)), replace=False))
            )
            jobs.append((extra, np.round(rng.random(len(extra)) * 3, 1)))
        spare = int(rng.integers(0, 9))
        got = maximise_speed(jobs, spare)
        best = max(
            sum(s[k] for (_, s), k in zip(jobs, pick, strict=True))
            for pick in itertools.product(*(range(len(g)) for g, _ in jobs))
            if sum(g[k] for (g, _), k in zip(jobs, pick, strict=True)) <= spare
        )
        assert sum(g[k] for (g, _), k in zip(jobs, got, strict=True)) <= spare
        assert abs(sum(s[k] for (_, s), k in zip(jobs, got, strict=True)) - best) < 1e-12


def test_speed_up_decides_not_speed_nor_what_is_left() -> None:
    """8 GPUs, speed-ups good 1, 1.9, 3.6, 6.8 and poor 1, 1.5, 1.8, 2: 4 + 4 has value 5.4, 2 + 4
    5.1; best is 4 + 4.

    Of 6 GPUs: good 4 with poor 2 (5.1) beats good 2 with poor 4 (3.7). That poor does ten times the
    work per second, and that good is nearly done, plays no part.
    """
    jobs = [{"model": "good", "remaining_work": 1}, {"model": "poor"}]
    assert plan(problem(jobs, [{"gpus": 8}], curves("A"))) == [("p0", 4), ("p0", 4)]
    assert plan(problem(jobs, [{"gpus": 6}], curves("A"))) == [("p0", 4), ("p0", 2)]


def test_everybody_gets_one_before_anybody_gets_two() -> None:
    """Two GPUs: the job submitted last waits; nobody waits to make another faster."""
    jobs = [{"model": "good", "submitted_s": s} for s in (3, 0, 1)]
    assert plan(problem(jobs, [{"gpus": 2}], curves("A"))) == [(None, 0), ("p0", 1), ("p0", 1)]


def test_every_pool_has_its_own_programme() -> None:
    """Two pools of 4, B twice as fast. Oldest first to B (share 4); the second finds 4 / 2 of B
    (3.8) or all of A (3.6) and goes to B, the third finds 1 of B (2) or 4 of A (3.6) and goes to A.
    Then 2 + 2 in B and 4 in A."""
    jobs = [{"model": "good", "submitted_s": s} for s in range(3)]
    p = problem(
        jobs, [{"gpu_type": "A", "gpus": 4}, {"gpu_type": "B", "gpus": 4}], curves("A", "B", B=2.0)
    )
    assert plan(p) == [("p1", 2), ("p1", 2), ("p0", 4)]
