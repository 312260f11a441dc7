"""Reasons are causes: what a code names, and nothing less, gives the job more when the round is
decided again.

The long checks: `pytest -m soak tests/engine/test_reasons.py -s` prints the counts by code.
"""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from builders import problem
from fakes.random_rounds import random_snapshot
from places import ROOT
from reason_checks import Checker

from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import AllocatorError
from allocator.io.snapshots import read_snapshot
from allocator.solvers.base import SolveLimits
from formulations.objectives import BUILT_IN as OBJECTIVES

EXACT = SolveLimits(gap=0.0)
ONE = {"min_gpus": 1, "max_gpus": 1}
CAUSES = ("budget", "quota", "capacity")


def reasons(p: Problem, **how: object) -> list[tuple[str | None, str]]:
    """(code, detail) of every job, decided exactly."""
    jobs = decide(p, limits=EXACT, **how).jobs  # type: ignore[arg-type]
    return list(zip(jobs["reason"], map(str, jobs["detail"]), strict=True))


def test_reasons_read_late_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for reasons begins when they are read, not when the plan is made."""
    p = validate(read_snapshot(ROOT / "data" / "snapshots" / "full"))
    now, later = decide(p), decide(p)
    told = list(now.jobs["reason"])
    monkeypatch.setattr(time, "monotonic", lambda at=time.monotonic: at() + 100)
    assert later.jobs["reason"] == told


def test_a_budget_is_the_cause_only_for_those_whom_dollars_admit() -> None:
    """2 GPUs at 1 $/h, 1 $/h, three jobs. Without the budget the second job gets the free GPU; the
    third needs both: a GPU is free now, but not for it."""
    p = problem(
        [ONE | {"weight": w} for w in (3, 2, 1)],
        [{"gpus": 2, "price_per_gpu_hour": 1}],
        config={"budget_per_hour": 1},
    )
    none, second, third = reasons(p)
    assert none[0] is None
    assert (
        second[0] == "budget" and "it would get 1 x p0 for 1.00 $/h, 0.00 $/h are left" in second[1]
    )
    assert third[0] == "outranked" and third[1].endswith("; it lacks budget and GPUs together")


def test_a_limit_on_changes_is_named() -> None:
    """A GPU is free, but no running job may change: nothing that fits was overlooked, the limit is
    in the way."""
    p = problem(
        [{"state": "running", "pool": "p0", "gpus": 1, "max_gpus": 2, "remaining_work": 1e6}],
        [{"gpus": 2}],
        config={"max_changes": 0},
    )
    ((code, detail),) = reasons(p)
    assert code == "outranked" and detail.endswith("; it lacks max_changes")


def test_a_job_that_the_gap_left_out_is_told_so() -> None:
    """2 GPUs, 1 of them held; the other job needs both and is worth 1.4 times as much. At a gap of
    90 % the plan stays, and no limit is why; at 0 the other job is served."""
    running = ONE | {"state": "running", "pool": "p0", "gpus": 1, "remaining_work": 1e6}
    wide = {"min_gpus": 2, "max_gpus": 2, "weight": 0.7, "remaining_work": 1e6}
    p = problem([running, wide], [{"gpus": 2}])
    told = decide(p, limits=SolveLimits(gap=0.9)).jobs
    assert told["reason"] == [None, "not_evaluated"]
    assert "better by less than the asked gap gives it 2 x p0" in told["detail"][1]
    assert reasons(p)[1][0] is None


def test_reasons_of_other_policies_are_about_their_own_decisions() -> None:
    """`static` gives jobs what they ask for, first come first served: without the budget it serves
    the second. It never gives the first one more than its 1 GPU: not next to the plan in which 2
    fit, and not without the budget."""
    jobs = [{"requested_gpus": 1, "max_gpus": 2, "submitted_s": s} for s in (0, 1)]
    p = problem(jobs, [{"gpus": 3, "price_per_gpu_hour": 1}], config={"budget_per_hour": 1})
    first, second = reasons(p, policy="static")
    assert first == (
        "not_evaluated",
        "2 x p0: this policy does not give it more, whatever limit is lifted",
    )
    assert second[0] == "budget"
    fits = reasons(problem(jobs[:1], [{"gpus": 3}]), policy="static")
    assert fits[0][0] == "not_evaluated" and fits[0][1].startswith("2 x p0 would fit")


def test_reasons_wait_until_they_are_read() -> None:
    """A decision looks for no reasons; a plan that is sent to another process brings them along."""
    result = decide(problem([ONE | {"weight": w} for w in (2, 1)], [{"gpus": 1}]))
    assert (
        not hasattr(result.jobs, "reason")
        and "reason" in result.jobs
        and len(result.jobs) == len(list(result.jobs))
    )
    copy: Plan = pickle.loads(pickle.dumps(result))
    assert copy.jobs["reason"] == result.jobs["reason"] == [None, "outranked"]
    with pytest.raises(KeyError):
        result.jobs["reasons"]


def rounds(seed: int, count: int, sizes: tuple[int, ...]) -> Iterator[Problem]:
    """Random rounds with every rule, the objectives in turn; those that nobody can decide are left
    out."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        snapshot = random_snapshot(rng, int(rng.choice(sizes))).snapshot()
        yield dataclasses.replace(validate(snapshot), objective=OBJECTIVES[k % len(OBJECTIVES)])


def checked(
    problems: Iterator[Problem], limits: SolveLimits, gap: float
) -> Counter[tuple[str, bool]]:
    """The reasons of all rounds by code and truth."""
    counts: Counter[tuple[str, bool]] = Counter()
    for p in problems:
        try:
            counts += Checker(p, limits, gap).counts()
        except AllocatorError:
            continue
    print(counts)
    return counts


def share(counts: Counter[tuple[str, bool]], *codes: str) -> float:
    """Share of reasons with these codes that are true."""
    true, false = (sum(counts[code, is_true] for code in codes) for is_true in (True, False))
    return true / (true + false or 1)


def all_true(counts: Counter[tuple[str, bool]]) -> None:
    """What is asked of generated rounds: see docs/concepts.md on what a gap leaves open."""
    for code in CAUSES:
        assert counts[code, True] and share(counts, code) >= 0.99
    assert (
        share(counts, "exceeds_quota", "exceeds_cluster", "no_matching_gpu_type", "protected") == 1
    )
    assert share(counts, "outranked") >= 0.97


@pytest.mark.nightly
def test_reasons_of_generated_rounds() -> None:
    """Of every code, in small rounds of every objective: what it names gives the job more, and less
    does not."""
    counts = checked(rounds(11, 20, (3, 5, 8, 12, 20)), SolveLimits(time_s=300), 0.0)
    assert sum(counts[code, True] for code in CAUSES) > 14
    all_true(counts)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "sizes"), [(1100, (3, 5, 8, 12, 20, 30)), (110, (60, 100, 150))], ids=str
)
def test_reasons_of_many_generated_rounds(number: int, sizes: tuple[int, ...]) -> None:
    """The same on many small rounds, and on rounds of 60 to 150 jobs."""
    all_true(checked(rounds(12, number, sizes), SolveLimits(time_s=300), 0.0))
