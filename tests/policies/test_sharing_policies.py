"""Policies that share GPUs by rules of their own, and what `mip` does about pairs, by
hand. test_several_primaries.py holds `mip` against every plan with pairs under every rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import cases, columns

from allocator.engine.decision import decide
from allocator.options.instance_building import compile_round
from allocator.solvers.base import SolveLimits

RATES = [{"model": m, "gpu_type": "A", "gpus": k, "work_per_s": 1} for m in "abc" for k in (1, 2)]


def plan(policy: str, jobs: Any, slow: dict[str, Any], gpus: int = 1) -> list[Any]:
    """Who shares GPUs with each job of 4 GB; slow: "ab" -> slowdowns of a and b next to each other.

    Jobs of models b and c run.
    """
    runs = {"state": "running", "pool": "p0", "gpus": 1}
    rows = [{"max_gpus": 1, "memory_gb": 4} | (runs if j["model"] != "a" else {}) | j for j in jobs]
    alike = {"gpu_type": "A", "gpus": 1}
    sharing = [
        {"model_a": a, "model_b": b, "slowdown_a": x, "slowdown_b": y} | alike
        for (a, b), (x, y) in slow.items()
    ]
    pool, config = {"gpus": gpus, "memory_gb": 10, "sharing": "any"}, {"now_s": 100}
    p = problem(rows, [pool], RATES, config=config, sharing=sharing)
    return list(decide(p, policy=policy).jobs["shared_with"])


@pytest.mark.parametrize(
    ("work", "slow", "together"),
    cases("""
10 10 -> 1.5 1.5 -> no
10 10 -> 2.2 2.2 -> no
10 2 -> 1.5 1.5 -> yes
10 2 -> 1.2 3.5 -> yes
10 2 -> 2.5 2.5 -> yes
2 10 -> 2.5 2.5 -> no
"""),
)
def test_the_rule_of_the_paper(work: str, slow: str, together: str) -> None:
    """The work that the running job has left, and that of the newcomer, and the slowdowns of both.
    `ffs` always shares, `sjf` never."""
    jobs = [{"model": m, "remaining_work": w} for m, w in zip("ba", work.split(), strict=True)]
    both, apart = ["j1", "j0"], [None, None]
    expected = {"bsbf": both if together == "yes" else apart, "ffs": both, "sjf": apart}
    assert {p: plan(p, jobs, {"ba": slow.split()}) for p in expected} == expected


def test_the_best_pair() -> None:
    """j2 of 10 next to j0 of 40 (1.5 each) or j1 of 40 (1.1 each): with j1 the mean is less. `ffs`
    takes who came first."""
    jobs = [
        {"model": "b", "remaining_work": 40},
        {"model": "c", "remaining_work": 40, "submitted_s": 5},
        {"model": "a", "remaining_work": 10},
    ]
    slow = {"ba": (1.5, 1.5), "ca": (1.1, 1.1)}
    assert plan("bsbf", jobs, slow, gpus=2) == [None, "j2", "j1"]
    assert plan("ffs", jobs, slow, gpus=2) == ["j2", None, "j0"]


def test_a_pair_that_runs_stays_and_a_gpu_has_two_at_most() -> None:
    """The second job is the secondary job of the first one already; the third one waits."""
    jobs = [{"model": "b"}, {"model": "c", "shared_with": "j0"}, {"model": "a"}]
    slow = {"bc": (2.4, 2.4), "ba": (1.0, 1.0), "ca": (1.0, 1.0)}
    for policy in ("bsbf", "ffs"):
        assert plan(policy, jobs, slow) == ["j1", "j0", None]


EXACT = SolveLimits(gap=0.0)
SHARE = columns("model_a model_b gpu_type gpus slowdown_a slowdown_b: m m A 1 1.2 1.2")
POOL = {"gpus": 1, "memory_gb": 10.0, "sharing": "any"}
ONE = {"remaining_work": 1000, "max_gpus": 1, "memory_gb": 4.0}


def running(**more: Any) -> dict[str, Any]:
    return ONE | {"state": "running", "pool": "p0", "gpus": 1, "restart_s": 60} | more


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
