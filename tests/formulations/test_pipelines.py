"""Deadlines of pipelines: split by hand, never tighter than needed, seen by objectives and
explanations.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders import problem, snapshot
from hypothesis import given, strategies as st
from text_tables import columns, tables

from allocator.engine.advice.trials import SolveCommand
from allocator.engine.explain import explain
from allocator.performance.pipelines import due, due_s, least_seconds_left
from allocator.solvers.base import SolveLimits
from formulations.deadlines.pipelines import split_deadlines

NAN = np.nan


@pytest.mark.parametrize(
    ("after", "need", "deadline", "now", "due"),
    [
        # 600 of 1000 s to spare: each stage gets 2.5 times its need
        ({1: [0], 2: [1]}, [100, 200, 100], [NAN, NAN, 1000], 0, [250, 750, 1000]),
        # too late: every stage as late as the last one
        ({1: [0], 2: [1]}, [100, 200, 100], [NAN, NAN, 250], 0, [-50, 150, 250]),
        ({1: [0]}, [0, 0], [NAN, 400], 0, [400, 400]),  # no speed is known
    ],
)
def test_stages_by_hand(
    after: dict[int, list[int]],
    need: list[float],
    deadline: list[float],
    now: float,
    due: list[float],
) -> None:
    """What the comment of each pipeline says."""
    found, _ = split_deadlines(after, np.array(need), np.array(deadline), now)
    assert found == pytest.approx(np.array(due), nan_ok=True)


graphs = st.integers(2, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(1, 50), min_size=n, max_size=n),
        st.lists(st.one_of(st.none(), st.integers(-50, 400)), min_size=n, max_size=n),
        st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12),
    )
)


@given(graphs)
def test_windows_are_wide_enough_exactly_when_the_pipeline_is(
    drawn: tuple[list[int], list[int | None], set[tuple[int, int]]],
) -> None:
    """Against all ways from a first job to a deadline: if every way is short enough, each stage
    begins when all before it are due and has its shortest time until it is due; if not, some stage
    is due before it can be done. Nothing is due later than its latest finish."""
    need, deadline, pairs = drawn
    after: dict[int, list[int]] = {}
    for i, j in sorted(pairs):
        if i < j:
            after.setdefault(j, []).append(i)
    n = len(need)
    own = np.array([NAN if d is None else d for d in deadline], dtype=float)
    got, _ = split_deadlines(after, np.array(need, dtype=float), own, 0.0)

    def ways(j: int) -> list[tuple[int, ...]]:
        return [(*w, j) for i in after.get(j, []) for w in ways(i)] + [(j,)]

    every = list(itertools.chain.from_iterable(ways(j) for j in range(n)))
    in_time = all(np.isnan(own[w[-1]]) or sum(need[i] for i in w) <= own[w[-1]] for w in every)
    begins = [
        max((got[i] for i in after.get(j, []) if not np.isnan(got[i])), default=0.0)
        for j in range(n)
    ]
    if in_time:
        assert all(
            np.isnan(got[j]) or got[j] - max(0.0, begins[j]) >= need[j] - 1e-9 for j in range(n)
        )
    else:
        soonest = [max(sum(need[i] for i in w) for w in ways(j)) for j in range(n)]
        assert any(got[j] < soonest[j] - 1e-9 for j in range(n))
    for w in every:
        for k, j in enumerate(w):
            latest = own[w[-1]] - sum(need[i] for i in w[k + 1 :])
            assert np.isnan(latest) or got[j] <= latest + 1e-9


# two stages of 800 and 1600 units on at most 8 GPUs, rate 1 each: 100 and 200 s at best
STAGES = tables("""jobs:
    job_id=prepare remaining_work=800;
    job_id=train remaining_work=1600 after=prepare deadline_s=900;
    job_id=other remaining_work=800 after=gone deadline_s=5000""")["jobs"]


def test_shortest_times_come_from_the_speeds_a_job_may_have() -> None:
    """8 GPUs, and one of the slow type that the second job must use."""
    rates = columns("gpu_type gpus work_per_s: A 1 1; A 8 8; B 1 0.5")
    jobs = [{}, {"gpu_types": "B", "max_gpus": 1}]
    p = problem(jobs, [{}, {"gpu_type": "B"}], rates)
    assert least_seconds_left(p, np.arange(2)).tolist() == [125, 2000]


def test_a_stage_is_due_before_the_end() -> None:
    """900 s for 300 s of work: the first stage is due at 300, whoever asks; jobs in no pipeline
    keep their deadline.
    """
    p = problem(STAGES)
    assert due_s(p).tolist() == [300, 900, 5000]
    assert due(p)[1].tolist() == [1, 1, 2]
    command = SolveCommand(limits=SolveLimits(gap=0.0))
    e, other = (explain(snapshot(STAGES), job, command) for job in ("prepare", "other"))
    assert (e.due_s, e.due_for) == (300, "train")
    words = 'due at 300 s, its share of the time until the deadline of "train"'
    assert any(words in line for line in e.lines()) and other.lines()[2] == "due at 5000 s"
