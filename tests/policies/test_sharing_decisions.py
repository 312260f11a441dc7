"""Decisions in which jobs share GPUs: by hand, for every solver, and their properties.

test_several_primaries.py holds `mip` against every plan with pairs under every
rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem

from allocator.engine.decision import decide
from allocator.options.instance_building import compile_round
from allocator.solvers.base import SolveLimits

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
