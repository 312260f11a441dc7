"""Ways to keep workers in step: the choice of a round and what the simulator delivers, against sums
over all cases. Drawn steps are the long way to the same sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import second_modes
from builders import problem, snapshot
from examples import series
from text_tables import columns
from worlds import workload

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import InvalidInput
from allocator.simulator import SimulationOptions, simulate
from formulations.transient.revocations import synchronous_share


def useful(text: str, n: int, cv: float, per_s: float) -> float:
    """Work a second, as a share of that of even servers that nobody takes back: replaced in 200 s,
    restarted in 30 s, with checkpoints of 5 s every 300 s."""
    pace_, stops, pause = second_modes.pace(text, n, cv), n * per_s, 230.0
    if text.startswith("asynchronous"):
        return pace_ * 300 / 305 / (1 + per_s * pause)
    if text != "bulk":
        (pace_, stops), pause = second_modes.long_run(text, n, cv, per_s, 200.0), 30.0
    return pace_ * float(synchronous_share(stops, 5.0, 300.0, pause))


@pytest.mark.parametrize(
    ("cv", "modes", "best"),
    [
        (0.1, "bulk|backup:2|replicated:2", "bulk"),
        (0.5, "bulk|backup:2|replicated:2|asynchronous:0.5", "backup:2"),
    ],
)
def test_the_plan_names_the_best_mode(cv: float, modes: str, best: str) -> None:
    """Eight workers of one job. With one mode the plan names that one."""
    for listed, named in ((modes, best), ("replicated:2", "replicated:2")):
        job = {"modes": listed, "sizes": [8], "min_gpus": 8, "remaining_work": 1e5}
        plan = decide(problem([job], [{"straggler_cv": cv}]))
        assert plan.jobs["mode"] == [named]
        assert plan.jobs["work_per_s"][0] == pytest.approx(8 * second_modes.pace(named, 8, cv))


@pytest.mark.parametrize(
    "text", ["bulk:1", "backup", "backup:0", "backup:1.5", "replicated:1", "asynchronous:0", "sync"]
)
def test_faults(text: str) -> None:
    with pytest.raises(InvalidInput, match=f'modes "{text}" is not bulk, backup:K, replicated:R'):
        validate(snapshot(jobs=[{"modes": f"bulk|{text}"}]))


def test_jobs_with_modes_do_not_share() -> None:
    """Two jobs on one GPU where the pool lets them, unless one lists modes or steps vary."""

    def shared(cv: float = 0.0, **job: Any) -> bool:
        p = problem(
            jobs=[{"max_gpus": 1, "memory_gb": 4}, {"max_gpus": 1, "memory_gb": 4, **job}],
            pools=[{"gpus": 1, "memory_gb": 40, "sharing": "any", "straggler_cv": cv}],
            sharing=columns("model_a model_b gpu_type gpus slowdown_a slowdown_b: m m A 1 1.1 1.1"),
        )
        return any(decide(p).jobs["shared_with"])

    assert shared() and not shared(0.5) and not shared(modes="bulk")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", series(["backup:2", "bulk", "replicated:2", "asynchronous:0.9"], 1)
)
def test_the_simulator_delivers_what_the_formula_says(text: str) -> None:
    """20 jobs of eight servers each that are revoked every two hours and replaced in 200 s, with
    checkpoints of 5 s every 300 s: the mean time is the formula's within 3 %."""
    n, cv, work = 8, 0.4, 200_000.0
    pool = {"pool": "p", "gpus": 20 * n, "market": "spot", "startup_s": 200, "straggler_cv": cv}
    pool |= {"revocations_per_gpu_hour": 0.5}
    job = {"total_work": work, "requested_gpus": n, "min_gpus": n, "max_gpus": n, "modes": text}
    job |= {"restart_s": 30, "checkpoint_s": 5, "checkpoint_every_s": 300}
    s = simulate(
        workload([job] * 20, pools=[pool], rates={n: float(n)}),
        policy="static",
        options=SimulationOptions(prove_every=0, interval_s=3600.0),
    )
    expected = work / n / useful(text, n, cv, 0.5 / 3600)
    took = np.asarray(s.jobs["finished_s"] - s.jobs["started_s"], dtype=np.float64)
    assert took.mean() == pytest.approx(expected, rel=0.03)
