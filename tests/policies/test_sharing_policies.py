"""Policies that share GPUs by rules of their own: by hand, and over whole workloads."""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem

from allocator.domain.problem import Problem
from allocator.engine.decision import decide

RATES = [{"model": m, "gpu_type": "A", "gpus": k, "work_per_s": 1} for m in "abc" for k in (1, 2)]


def round_(
    jobs: list[dict[str, Any]],
    slow: dict[str, tuple[float, float]],
    gpus: int = 1,
    isolation: str = "any",
    memory_gb: float = 10,
) -> Problem:
    """Jobs of 4 GB; slow: "ab" -> slowdowns of a and b on the same GPUs."""
    rows = [{"max_gpus": 1, "memory_gb": 4, "model": "a", **j} for j in jobs]
    return problem(
        rows,
        [{"gpus": gpus, "memory_gb": memory_gb, "sharing": isolation}],
        RATES,
        config={"now_s": 100},
        sharing=[
            {
                "model_a": k[0],
                "model_b": k[1],
                "gpu_type": "A",
                "gpus": 1,
                "slowdown_a": x,
                "slowdown_b": y,
            }
            for k, (x, y) in slow.items()
        ],
    )


def primaries(p: Problem, policy: str) -> dict[str, str | None]:
    """Who runs, and on whose GPUs ("" = its own)."""
    from allocator.engine.decision import decide_round

    a = decide_round(p, policy=policy).allocation
    return {
        name: "" if h < 0 else p.jobs.job_id[h]
        for name, pool, h in zip(p.jobs.job_id, a.pool.tolist(), a.primary.tolist(), strict=True)
        if pool >= 0
    }


RUNS: dict[str, Any] = {"state": "running", "pool": "p0", "gpus": 1, "preemptible": True}


@pytest.mark.parametrize(
    ("b", "a", "xi", "together"),
    [
        (10, 10, (1.5, 1.5), False),
        (10, 10, (2.2, 2.2), False),
        (10, 2, (1.5, 1.5), True),
        (10, 2, (1.2, 3.5), True),
        (10, 2, (2.5, 2.5), True),
        (2, 10, (2.5, 2.5), False),
    ],
)
def test_the_rule_of_the_paper(b: float, a: float, xi: tuple[float, float], together: bool) -> None:
    """The running job has b left, the newcomer a; xi: slowdowns of the running job and of the
    newcomer. `ffs` always shares, `sjf` never."""
    p = round_(
        [
            RUNS | {"job_id": "B", "model": "b", "remaining_work": b},
            {"job_id": "A", "remaining_work": a},
        ],
        {"ba": xi},
    )
    assert primaries(p, "bsbf") == {"B": ""} | ({"A": "B"} if together else {})
    assert primaries(p, "ffs") == {"B": "", "A": "B"}
    assert primaries(p, "sjf") == {"B": ""}


def test_the_best_pair() -> None:
    """A of 10 next to B of 40 (1.5 each) or C of 40 (1.1 each): with C the mean is less. `ffs`
    takes who came first.
    """
    jobs = [
        RUNS | {"job_id": "B", "model": "b", "remaining_work": 40},
        RUNS | {"job_id": "C", "model": "c", "remaining_work": 40, "submitted_s": 5},
        {"job_id": "A", "remaining_work": 10},
    ]
    p = round_(jobs, {"ba": (1.5, 1.5), "ca": (1.1, 1.1)}, gpus=2)
    assert primaries(p, "bsbf") == {"B": "", "C": "", "A": "C"} and primaries(p, "ffs") == {
        "B": "",
        "C": "",
        "A": "B",
    }


def test_a_pair_that_runs_stays_and_a_gpu_has_two_at_most() -> None:
    """A is B's secondary job already; C waits."""
    jobs = [
        RUNS | {"job_id": "B", "model": "b"},
        RUNS | {"job_id": "A", "shared_with": "B"},
        {"job_id": "C"},
    ]
    p = round_(jobs, {"ba": (2.4, 2.4), "aa": (1.0, 1.0)})
    for policy in ("bsbf", "ffs"):
        assert primaries(p, policy) == {"B": "", "A": "B"}
    kept = decide(p, policy="bsbf")
    assert list(kept.jobs["shared_with"]) == ["A", "B", None] and kept.jobs["action"][:2] == [
        "keep",
        "keep",
    ]
