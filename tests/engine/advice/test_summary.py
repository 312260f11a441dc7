"""The first line of an explanation: where a job stands, why, what would help, when it may start."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from builders import snapshot

from allocator.engine.advice.start import StartEstimate
from allocator.engine.advice.summary import format_duration, summary
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.explain import Explanation, explain
from allocator.solvers.base import SolveLimits

ONE: dict[str, Any] = {"min_gpus": 1, "max_gpus": 1}
RATES = {1: 1.0, 2: 2.0}


RANGE = re.compile(r", [\d.]+ (min|h|days) to [\d.]+ (min|h|days) in 90 % of cases")


def without_range(told: str) -> str:
    """The summary without the range of the start, which has to be there."""
    rest, number = RANGE.subn("", told)
    assert number == 1
    return rest


def told(job: str, *args: Any, **kwargs: Any) -> Explanation:
    """The explanation of a job of the snapshot from these rows, decided exactly."""
    return explain(snapshot(*args, **kwargs), job, SolveCommand(limits=SolveLimits(gap=0.0)))


def test_the_whole_line_by_hand() -> None:
    """One GPU at 1 $/h and 1 $/h: rich (weight 3) has 900 s to run and 300 s are a round, so poor
    starts after three; with weight above 3 it would run instead."""
    jobs = [
        ONE | {"job_id": "rich", "weight": 3, "remaining_work": 900},
        ONE | {"job_id": "poor", "remaining_work": 900},
    ]
    e = told(
        "poor", jobs, [{"gpus": 1, "price_per_gpu_hour": 1}], RATES, config={"budget_per_hour": 1}
    )
    assert e.lines()[0] == e.summary
    head, _, tail = without_range(e.summary).partition(" It would get 1 x p0 with weight 3.0")
    assert head == "poor waits: the budget of 1 $/h and the GPUs go to jobs of more value."
    assert tail.endswith(" instead of 1. Expected start: in about 15 min (when rich ends).")
    assert e.start == StartEstimate(900.0, 1, "p0", ("rich",))


def entry(**of: Any) -> dict[str, Any]:
    """An entry of a plan."""
    return {
        "job_id": "a",
        "tenant": "t",
        "action": "wait",
        "pool": None,
        "gpus": 0,
        "shared_with": None,
        "reason": "outranked",
        "detail": "",
    } | of


@pytest.mark.parametrize(
    ("of", "line"),
    [
        (
            {"reason": "capacity"},
            "a waits: the GPUs that are left are too few for any size that it may have.",
        ),
        (
            {"detail": "x; it lacks budget, quota and GPUs together"},
            (
                'a waits: the budget of 5 $/h, what tenant "t" may have and the GPUs go to jobs'
                " of more value."
            ),
        ),
        ({"reason": "not_evaluated"}, "a waits: the policy las does not give it more."),
    ],
)
def test_every_reason_in_words(of: dict[str, Any], line: str) -> None:
    """Each code as a sentence, without help and without a start."""
    rest = " No single change was found that helps it. Expected start: not known."
    assert summary(entry(**of), "las", 5.0, (), None) == line + rest


def test_names_and_times_are_short() -> None:
    """Two names at most; minutes, hours, days."""
    start = StartEstimate(7200.0, 1, "p0", ("x", "y", "z"), (3600.0, 86_400.0))
    assert summary(entry(), "mip", math.inf, (), start).endswith(
        "Expected start: in about 2.0 h (when z and 2 others end), 60 min to 24.0 h in 90 % of"
        " cases."
    )
    assert [format_duration(s) for s in (10, 300, 5300, 86_400, 400_000)] == [
        "1 min",
        "5 min",
        "88 min",
        "24.0 h",
        "4.6 days",
    ]
