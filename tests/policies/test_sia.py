"""Sia's integer programme as a policy: its matrix against the saved rounds, its plan against
trying everything.
"""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import count
from fakes.random_rounds import random_snapshot
from test_sia_ilp import ROUND, saved

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.io.published_models import read_sia_ilp
from allocator.options.instance_building import compile_round
from allocator.policies.base import Task
from allocator.policies.rules.sia import (
    goodput_round,
    option_value,
    relative_goodput,
    restart_factor,
    sia,
)
from allocator.solvers.base import SolveLimits


def plan(p: Problem) -> list[tuple[str | None, int]]:
    r = decide(p, policy="sia")
    return list(zip(r.jobs["pool"], r.jobs["gpus"], strict=True))


def running(gpus: int, **more: Any) -> dict[str, Any]:
    return {"state": "running", "pool": "p0", "gpus": gpus, **more}


@pytest.mark.parametrize(("p", "lam"), [(-0.5, 1.1), (0.5, -1.1)])
def test_matrix_agrees_with_the_saved_rounds(tmp_path: Path, p: float, lam: float) -> None:
    """The values of read_sia_ilp, made from the same goodputs, restart factors and holdings, for
    both signs of p.
    """
    path = saved(tmp_path, p=np.array(p), lam=np.array(lam))
    G, prev = ROUND["G"].astype(float), ROUND["prev"]
    factor = np.repeat(np.where(prev < 0, 1.0, ROUND["restart"])[:, None], 3, axis=1)
    factor[[0, 2], prev[[0, 2]]] = 1.0
    assert option_value(G, factor, p, lam).ravel() == pytest.approx(read_sia_ilp(path).value)


def test_rows_are_relative_to_the_smallest_goodput() -> None:
    """Rates 6, 2, 8 of a job that may run on 1 GPU: 3, 1, 4. A job that needs 4: 10, 20 -> 4, 8.
    No scale remains.
    """
    rate, job = np.array([6.0, 2.0, 8.0, 10.0, 20.0]), np.array([0, 0, 0, 1, 1])
    assert relative_goodput(rate, job, np.array([1, 4])).tolist() == [3, 1, 4, 4, 8]
    assert relative_goodput(1000 * rate, job, np.array([1, 4])).tolist() == [3, 1, 4, 4, 8]


def test_restart_factor_by_hand() -> None:
    """S 100. Age 900, 3 restarts: (900 - 300) / 1000 = .6; age 50 < S: 1; waiting: 1; 10
    restarts: 0.
    """
    p = problem(
        [
            running(1, restarts=3, submitted_s=100),
            running(1, restarts=3, submitted_s=950),
            {"restarts": 3, "submitted_s": 100},
            running(1, restarts=10, submitted_s=100),
        ],
        config={"now_s": 1000, "restart_s": 100},
    )
    assert restart_factor(p.jobs, p.now_s).tolist() == pytest.approx([0.6, 1.0, 1.0, 0.0])


def test_a_job_starts_small_and_doubles() -> None:
    """Never run: 1 GPU (min_gpus 2: 2). Two GPUs are the most it ever had: it may have 4, not 8, of
    the 8 that are free (it is old and never restarted: its factor is 1e6 / (1e6 + 30), next to 1).
    """
    assert plan(problem([{}])) == [("p0", 1)]
    assert plan(problem([{"min_gpus": 2}])) == [("p0", 2)]
    assert plan(problem([running(2)], config={"now_s": 1e6})) == [("p0", 4)]
    assert plan(problem([running(1, largest_gpus=2)], config={"now_s": 1e6})) == [("p0", 4)]


def test_as_good_as_trying_everything() -> None:
    """Random rounds of 5 jobs with all rules: no plan of the round has a higher value to Sia than
    the one found.
    """
    tried = 0
    for s in range(count(6, 200)):
        p = validate(random_snapshot(np.random.default_rng(s), 5).snapshot())
        whole = compile_round(p, prunes=False)
        task = Task(whole, SolveLimits(), None, time.monotonic() + 60)
        round_, _ = goodput_round(whole)
        groups = [[-1, *range(a, b)] for a, b in itertools.pairwise(round_.instance.start.tolist())]
        if math.prod(len(g) for g in groups) > 20_000:
            continue
        values = [task_value(round_, np.array(c)) for c in itertools.product(*groups)]
        known = [v for v in values if v is not None]
        if not known:
            continue
        tried += 1
        choice = sia(task).choice
        assert task.choices.feasible(choice)
        mine = {c: k for k, c in enumerate(goodput_round(whole)[1].tolist())}
        got = task_value(round_, np.array([mine[c] if c >= 0 else -1 for c in choice.tolist()]))
        assert got == pytest.approx(max(known), rel=2e-4, abs=1e-9)
    assert tried >= 3


def task_value(round_: Any, choice: Any) -> float | None:
    """Sia's value of a choice, None where it breaks a rule."""
    x = np.zeros(round_.model.n)
    x[choice[choice >= 0]] = 1.0
    return float(round_.model.value @ x) if round_.model.feasible(x) else None
