"""The setting `objective`: its syntax, and ranked objectives compared with every plan."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot
from hypothesis import given, settings, strategies as st
from text_tables import cases

from allocator.domain.objectives import names, normalise, parse_levels
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import InvalidInput, UsageError
from formulations.objectives import BUILT_IN as OBJECTIVES
from formulations.objectives.combination import GIVEN_UP, combine_ranks, factors, most


def test_objectives_are_names_sums_and_ranks() -> None:
    """One way to write each; a factor of 1 need not be written."""
    assert normalise(" progress ") == "progress" and normalise("progress=1") == "progress"
    assert normalise("completion , cost = 0.20") == "completion=1,cost=0.2"
    assert (
        normalise("fairness>completion=2,cost=1e-3 >cost")
        == "fairness > completion=2,cost=0.001 > cost"
    )
    assert parse_levels("cost=3 > progress") == ((("cost", 3.0),), (("progress", 1.0),))
    assert names("cost,progress > cost") == ("cost", "progress", "cost")
    assert all(
        normalise(normalise(text)) == normalise(text)
        for text in (*OBJECTIVES, "cost=0.1,progress=3 > cost")
    )


WRONG = """
progres -> did you mean "progress"
 -> is not known (known: progress
progress= -> above 0
progress=0 -> above 0
progress=nan -> above 0
progress=1_0 -> above 0
cost=1,cost=2 -> names cost twice
cost > -> is not known
cost > cost > cost > cost -> 3 levels
cost=1e99 -> above 0
"""


@pytest.mark.parametrize(("text", "told"), cases(WRONG))
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    """In config.toml with its line, and to callers."""
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        decide(problem([{}]), objective=text)
    with pytest.raises(InvalidInput, match="objective"):
        validate(snapshot([{}], config={"objective": text}))


@st.composite
def rounds(draw: Any) -> tuple[list[list[tuple[int, float, float]]], int]:
    """Jobs with options (GPUs, first value, second value), and GPUs there are."""
    number = st.integers(-3, 12).map(float)
    option = st.tuples(st.integers(1, 4), number, number)
    return draw(st.lists(st.lists(option, max_size=3), min_size=1, max_size=4)), draw(
        st.integers(1, 6)
    )


@settings(max_examples=25)
@given(rounds())
def test_ranks_keep_their_promise(given_: tuple[list[list[tuple[int, float, float]]], int]) -> None:
    """Every plan tried: the best in the ranked value misses the best first value by at most a
    hundredth of what plans can differ in it, and none with the same first value has a better second
    one."""
    jobs, total = given_
    start = np.cumsum([0, *(len(options) for options in jobs)])
    job = np.repeat(np.arange(len(jobs)), np.diff(start))
    flat = np.array([o for options in jobs for o in options], dtype=float).reshape(-1, 3)
    gpus, first, second = flat[:, 0].astype(np.int64), flat[:, 1], flat[:, 2]
    value = combine_ranks([first, second], factors([first, second], job, gpus, total))
    plans = [
        [o for o in plan if o >= 0]
        for plan in itertools.product(
            *([-1, *range(start[j], start[j + 1])] for j in range(len(jobs)))
        )
    ]
    plans = [plan for plan in plans if gpus[plan].sum() <= total]
    highest, limit = max(first[plan].sum() for plan in plans), most(job, first, gpus, total)
    assert highest <= limit + 1e-9
    best = max(plans, key=lambda plan: value[plan].sum())
    reach = limit + most(job, -first, gpus, total)
    assert highest - first[best].sum() <= GIVEN_UP * reach + 1e-9
    assert max(second[plan].sum() for plan in plans if first[plan].sum() == first[best].sum()) <= (
        second[best].sum() + 1e-6
    )
