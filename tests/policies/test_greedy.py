"""The published greedy baseline and its naive variant, followed by hand."""

from __future__ import annotations

from builders import problem

from allocator.domain.problem import Problem
from allocator.engine.decision import decide


def plan(p: Problem, policy: str) -> list[tuple[str | None, int]]:
    r = decide(p, policy=policy)
    return list(zip(r.jobs["pool"], r.jobs["gpus"], strict=True))


def test_first_come_first_served_at_the_requested_size() -> None:
    """8 GPUs, requests 4, 4, 4 by time of submission: the third, although first in the file,
    waits.
    """
    jobs = [
        {"requested_gpus": 4, "max_gpus": 4, "min_gpus": 4, "submitted_s": s} for s in (9, 0, 5)
    ]
    assert plan(problem(jobs), "greedy") == [(None, 0), ("p0", 4), ("p0", 4)]


def test_halving_until_it_fits_and_not_below_min() -> None:
    """6 of 8 GPUs are taken: a request of 8 is halved to 2; with min_gpus 4 it waits instead."""
    first = {"requested_gpus": 6, "min_gpus": 6, "max_gpus": 6, "sizes": [6]}
    assert plan(problem([first, {"requested_gpus": 8}]), "greedy") == [("p0", 6), ("p0", 2)]
    assert plan(problem([first, {"requested_gpus": 8, "min_gpus": 4}]), "greedy") == [
        ("p0", 6),
        (None, 0),
    ]


def test_doubling_goes_to_the_largest_marginal_speed() -> None:
    """Both start at 1. s(2)-s(1): a 0.9, b 0.5; then a (1.2/2 = 0.6 per GPU) before b's first
    doubling (0.5).
    """
    curves = {"a": {1: 1.0, 2: 1.9, 4: 3.1}, "b": {1: 2.0, 2: 3.0, 4: 4.0}}
    rates = [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": r}
        for m in curves
        for k, r in curves[m].items()
    ]
    jobs = [{"model": "a", "max_gpus": 4}, {"model": "b", "max_gpus": 4}]
    assert plan(problem(jobs, [{"gpus": 6}], rates), "greedy") == [("p0", 4), ("p0", 2)]
    assert plan(problem(jobs, [{"gpus": 5}], rates), "greedy") == [("p0", 4), ("p0", 1)]


def test_greedy_hoards_where_the_objective_would_not() -> None:
    """A nearly finished job is doubled all the same: the baseline looks at speed, not at what is
    left.
    """
    assert plan(problem([{"remaining_work": 1}]), "greedy") == [("p0", 8)]
    assert plan(problem([{"remaining_work": 1}]), "mip") == [("p0", 1)]


def test_faster_pool_first_but_home_before_that() -> None:
    """A queued job goes to the faster type; a running one is first tried where it runs."""
    pools = [{"gpu_type": "A"}, {"gpu_type": "B"}]
    rates = [{"gpu_type": t, "gpus": 1, "work_per_s": r} for t, r in (("A", 1.0), ("B", 3.0))]
    jobs = [{"max_gpus": 1}, {"max_gpus": 1, "state": "running", "pool": "p0", "gpus": 1}]
    assert plan(problem(jobs, pools, rates), "greedy") == [("p1", 1), ("p0", 1)]


def test_naive_never_shrinks_and_takes_all_it_may() -> None:
    """The running job keeps its 2 although it asked for 1; the first waiting job takes 4 of the
    6 left, the next 2.
    """
    jobs = [
        {"state": "running", "pool": "p0", "gpus": 2, "submitted_s": 3},
        {"submitted_s": 1, "max_gpus": 4},
        {"submitted_s": 2, "max_gpus": 4},
    ]
    assert plan(problem(jobs), "greedy-naive") == [("p0", 2), ("p0", 4), ("p0", 2)]
