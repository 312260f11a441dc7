"""Exploring: who is paid for running where it teaches most; by hand, its bounds, and the audit's
second account.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from builders import problem

from allocator.domain.problem import Problem
from allocator.options.instance_building import compile_round
from allocator.performance import profiling

CURVE = {"gpu_type": "A", "kind": "power"}


def curve(error: float | None, exponent: float = 0.5, model: str = "m") -> dict[str, Any]:
    """k^exponent work per second with a relative standard error."""
    q = {"rate_1": 1.0, "exponent": exponent} | ({} if error is None else {"error": error})
    return {"model": model, **CURVE, "parameters": json.dumps(q)}


def world(
    jobs: list[dict[str, Any]],
    curves: list[dict[str, Any]],
    share: float | None,
    gpus: int = 8,
    seen: tuple[int, ...] = (1,),
    **config: Any,
) -> Problem:
    """One pool of type A; the sizes seen of model m are measured, exactly on a curve k^0.5."""
    rates = [{"gpu_type": "A", "gpus": k, "work_per_s": math.sqrt(k)} for k in seen]
    asked = {} if share is None else {"profiling": {"share": share, "rounds": 6}}
    return problem(
        [{"remaining_work": 1e6, "sizes": [1, 4], **j} for j in jobs],
        [{"gpus": gpus}],
        rates,
        models=curves,
        config={**config, **asked},
    )


def extra(p: Problem, without: Problem) -> dict[tuple[int, int], float]:
    """{(job, GPUs): value that exploring adds}."""
    a, b = (
        compile_round(p, prunes=False).option_table,
        compile_round(without, prunes=False).option_table,
    )
    more = a.value - b.value
    return {(int(a.job[o]), int(a.gpus[o])): float(more[o]) for o in np.flatnonzero(more)}


def test_by_hand() -> None:
    """Size 1 is measured at 1 work/s, size 4 believed to run 2, with a deviation of 30 % of which
    two doublings leave 0.3 sqrt(1 - e^(-8/3)) or a little more. Both are as good, time x cost for
    time x cost, so that knowing size 4 has value s phi(0) in logarithms: for six rounds, of the
    job's best value."""
    p, without = world([{}], [curve(0.3)], 0.5), world([{}], [curve(0.3)], None)
    deviation = profiling.prediction_deviation(np.array([4]), np.array([1]), 0.3)[0]
    assert deviation == pytest.approx(0.3 * math.sqrt(1 - math.exp(-8 / 3)), rel=0.01)
    best = compile_round(without, prunes=False).option_table.value.max()
    assert extra(p, without) == {
        (0, 4): pytest.approx(6 * deviation / math.sqrt(2 * math.pi) * best)
    }


def test_off_unless_asked_for_and_where_nothing_is_unsure() -> None:
    """No table, a share of nothing, a curve without error, and a size that is measured: nothing
    is added.
    """
    without = world([{}], [curve(0.3)], None)
    assert extra(world([{}], [curve(0.3)], 0.0), without) == {}
    assert extra(world([{}], [curve(None)], 0.5), world([{}], [curve(None)], None)) == {}
    assert (
        extra(
            world([{}], [curve(0.3)], 0.5, seen=(1, 4)),
            world([{}], [curve(0.3)], None, seen=(1, 4)),
        )
        == {}
    )


def test_one_job_for_each_curve_and_no_more_gpus_than_the_share() -> None:
    """Of three jobs of a model one is to try, the first of those that lose least by it; a share of
    3 of 8 GPUs has no space for four."""
    jobs = [{"weight": 2}, {"weight": 1}, {"weight": 3}]
    without = world(jobs, [curve(0.3)], None)
    assert list(extra(world(jobs, [curve(0.3)], 0.5), without)) == [(0, 4)]
    assert extra(world(jobs, [curve(0.3)], 0.4), without) == {}
