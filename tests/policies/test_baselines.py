"""Rule-based baselines followed by hand: static, equal, srtf, las, afs (docs/policies.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import LINEAR, problem
from fakes.random_rounds import random_snapshot

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import NO_LIMITS, decide, run_policy
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.free_capacity import keeps_rules
from allocator.policies.registry import POLICIES
from formulations.model.choices import choices

RUNS = {"state": "running", "pool": "p0"}


def gpus(p: Problem, policy: str) -> list[int]:
    return list(decide(p, policy=policy).jobs["gpus"])


def pools(p: Problem, policy: str) -> list[str | None]:
    return list(decide(p, policy=policy).jobs["pool"])


def asking(*sizes: int, **more: Any) -> list[dict[str, Any]]:
    """Jobs submitted one after the other that ask for these sizes and may have no other."""
    return [
        {"requested_gpus": k, "min_gpus": k, "max_gpus": k, "submitted_s": s, **more}
        for s, k in enumerate(sizes)
    ]


def test_static_blocks_behind_the_head() -> None:
    """8 GPUs: 4 start, 8 do not fit, so the 1 behind them waits although 4 GPUs idle; srtf and
    las skip instead.
    """
    p = problem(asking(4, 8, 1))
    assert gpus(p, "static") == [4, 0, 0]
    assert gpus(p, "las") == [4, 0, 1]
    assert gpus(
        problem(
            [{**j, "remaining_work": w} for j, w in zip(asking(4, 8, 1), (1, 90, 50), strict=True)]
        ),
        # at the requested size 1/4 s, 90/8 = 11 s (does not fit), 50 s
        "srtf",
    ) == [4, 0, 1]


def test_static_blocks_only_the_pools_the_head_waits_for() -> None:
    """The head wants 8 of type A where 4 are free: later jobs may not use A, but B is open to
    them.
    """
    jobs = [
        {"requested_gpus": 4, "gpu_types": "A", **RUNS, "gpus": 4},
        *asking(8, gpu_types="A"),
        *asking(2, 2),
    ]
    two = [{"gpu_type": "A"}, {"gpu_type": "B"}]
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": f * k}
        for t, f in (("A", 9.0), ("B", 1.0))
        for k in (1, 2, 4, 8)
    ]
    p = problem([{**j, "submitted_s": s} for s, j in enumerate(jobs)], two, rates)
    assert pools(p, "static") == ["p0", None, "p1", "p1"]


def test_static_does_not_wait_behind_a_quota() -> None:
    """The oldest job stands behind its tenant's quota of 1, which may never change; the next
    starts all the same.
    """
    jobs = [{**j, "tenant": t} for j, t in zip(asking(2, 4), ("small", "big"), strict=True)]
    assert gpus(problem(jobs, tenants=[{"tenant": "small", "max_gpus": 1}]), "static") == [0, 4]


def test_static_never_resizes_nor_preempts() -> None:
    """A running job keeps 8 although it asked for 2 and an older one waits; the waiting one gets
    what it asked for.
    """
    held = {"requested_gpus": 2, **RUNS, "gpus": 8, "submitted_s": 5}
    assert gpus(problem([held, {"requested_gpus": 4}]), "static") == [8, 0]
    assert gpus(problem([held, {"requested_gpus": 4}], [{"gpus": 16}]), "static") == [8, 4]


def test_requested_size_that_no_pool_offers() -> None:
    """Asked 6, offered 1, 2, 4, 8: both 4 and 8 are 2 away, the smaller is taken."""
    for policy in ("static", "srtf", "las"):
        assert gpus(problem([{"requested_gpus": 6}]), policy) == [4]


def test_equal_share_and_leftovers() -> None:
    """8 GPUs, 3 jobs: share 2 (8 // 3), 2 are left and make the oldest, the last of the file, a
    4.
    """
    assert gpus(problem([{"submitted_s": 3}, {"submitted_s": 2}, {"submitted_s": 1}]), "equal") == [
        2,
        2,
        4,
    ]


def test_equal_share_is_clipped() -> None:
    """Share 8 // 2 = 4: the first may have 1 at most, the second takes 4 and then, as the only
    one left, 8 of 9 - 1.
    """
    assert gpus(problem([{"max_gpus": 1}, {}], [{"gpus": 9}]), "equal") == [1, 8]
    # share 2, but the oldest needs 8
    assert gpus(problem([{"min_gpus": 8}, {}, {}]), "equal") == [8, 0, 0]


def test_equal_share_spreads_over_types() -> None:
    """4 fast and 4 slow GPUs, 4 jobs: 2 each; the two oldest get the fast ones."""
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": f * k}
        for t, f in (("A", 1.0), ("B", 3.0))
        for k in (1, 2, 4)
    ]
    p = problem(
        [{"submitted_s": s} for s in range(4)],
        [{"gpu_type": "A", "gpus": 4}, {"gpu_type": "B", "gpus": 4}],
        rates,
    )
    assert list(zip(pools(p, "equal"), gpus(p, "equal"), strict=True)) == [
        ("p1", 2),
        ("p1", 2),
        ("p0", 2),
        ("p0", 2),
    ]


def test_srtf_preempts_the_longer_job() -> None:
    """The running job needs 100/4 = 25 s more, the new one 40/8 = 5 s: the running one is
    paused.
    """
    running = {"requested_gpus": 4, "remaining_work": 100, **RUNS, "gpus": 4}
    new = {"requested_gpus": 8, "submitted_s": 9}
    assert gpus(problem([running, {**new, "remaining_work": 40}]), "srtf") == [0, 8]
    # 50 s: it has to wait
    assert gpus(problem([running, {**new, "remaining_work": 400}]), "srtf") == [4, 0]


def test_srtf_counts_time_not_work() -> None:
    """100 units at 8 GPUs take 12.5 s, 60 units at 4 take 15 s: the job with more work comes
    first on 8 GPUs.
    """
    assert gpus(
        problem(
            [
                {"requested_gpus": 4, "remaining_work": 60},
                {"requested_gpus": 8, "remaining_work": 100},
            ]
        ),
        "srtf",
    ) == [0, 8]


def test_las_prefers_less_attained_service() -> None:
    """Above 3600 GPU-s a job is in the second queue: it is paused for a new one, though older;
    3599 is the first.
    """
    old = {"requested_gpus": 8, **RUNS, "gpus": 8}
    new = {"requested_gpus": 8, "submitted_s": 50}
    assert gpus(problem([{**old, "attained_gpu_s": 3600}, new]), "las") == [0, 8]
    assert gpus(problem([{**old, "attained_gpu_s": 3599}, new]), "las") == [8, 0]


def test_las_is_first_started_first_served_inside_a_queue() -> None:
    """Both in the first queue: the one that has had service keeps its turn although the other
    was submitted before.
    """
    jobs = [
        {"requested_gpus": 8, "submitted_s": 0},
        {"requested_gpus": 8, "submitted_s": 7, "attained_gpu_s": 5},
    ]
    assert gpus(problem(jobs), "las") == [0, 8]


def test_las_does_not_know_lengths() -> None:
    """A job with a second left and one with a year: the order of submission decides."""
    jobs = [
        {"requested_gpus": 8, "remaining_work": 1e9},
        {"requested_gpus": 8, "remaining_work": 1, "submitted_s": 1},
    ]
    assert gpus(problem(jobs), "las") == [8, 0]


def measured(**curves: Sequence[float]) -> list[dict[str, Any]]:
    """Rates of models at 1, 2, 3 ... GPUs."""
    return [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": r}
        for m, c in curves.items()
        for k, r in enumerate(c, 1)
    ]


def test_afs_two_jobs_by_hand() -> None:
    """Sizes 1, 2, 3. Short job a: 1, 1.5, 1.7; long job b: 1, 1.9, 2.6; one GPU each, then the
    third: (1.9 - 1)/1.9 = 0.474 of b against (1.5 - 1)/1 = 0.5 of a: a. The fourth: b's 0.474
    against (1.7 - 1.5)/1.5 = 0.133 of a: b. The fifth: b's (2.6 - 1.9)/2.6 = 0.269 against 0.133:
    b."""
    jobs = [
        {"model": "a", "remaining_work": 100, "sizes": [1, 2, 3]},
        {"model": "b", "remaining_work": 900, "sizes": [1, 2, 3]},
    ]
    rates = measured(a=(1.0, 1.5, 1.7), b=(1.0, 1.9, 2.6))
    given = {g: gpus(problem(jobs, [{"gpus": g}], rates), "afs") for g in range(1, 7)}
    assert given == {1: [1, 0], 2: [1, 1], 3: [2, 1], 4: [2, 2], 5: [2, 3], 6: [3, 3]}


def test_afs_looks_at_the_length() -> None:
    """The same curve 1, 1.5, for both: the shorter gets the third GPU (1.5-1)/1 > (1.5-1)/1.5,
    whichever it is.
    """
    rates = measured(m=(1.0, 1.5))
    for work in ((10, 20), (20, 10)):
        p = problem(
            [{"remaining_work": w, "sizes": [1, 2], "max_gpus": 2} for w in work],
            [{"gpus": 3}],
            rates,
        )
        assert gpus(p, "afs") == ([2, 1] if work[0] < work[1] else [1, 2])


def test_afs_shortest_first_where_not_everyone_gets_one() -> None:
    """Three jobs, two GPUs: the two shortest."""
    assert gpus(problem([{"remaining_work": w} for w in (3, 1, 2)], [{"gpus": 2}]), "afs") == [
        0,
        1,
        1,
    ]


def test_afs_leaves_gpus_that_bring_nothing() -> None:
    """From 1 to 2 GPUs the job becomes no faster: it stays at 1."""
    assert gpus(problem([{"sizes": [1, 2]}], rates=measured(m=(1.0, 1.0))), "afs") == [1]


def test_afs_uses_slow_pools_too() -> None:
    """8 fast (3 per GPU) and 8 slow GPUs (2), four jobs, the shortest first. Speed x GPUs / jobs in
    the pool if it came: first 24 v 16: fast; second 12 v 16: slow; third 12 v 8: fast; fourth 8 v
    8: the faster. Then all grow."""
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": f * k}
        for t, f in (("A", 3.0), ("B", 2.0))
        for k in (1, 2, 4, 8)
    ]
    p = problem(
        [{"remaining_work": w} for w in (1, 2, 3, 4)], [{"gpu_type": "A"}, {"gpu_type": "B"}], rates
    )
    assert pools(p, "afs") == ["p0", "p1", "p0", "p0"] and sum(gpus(p, "afs")) == 16


def by_the_book(round_: CompiledRound) -> list[int]:
    """AFS-L on one pool without further rules as its page says, one full tournament for each
    step.
    """
    i, jobs = round_.instance, round_.problem.jobs
    rate = round_.option_table.rate[round_.option]
    first = i.start[:-1]
    free = int(i.capacity[0])
    choice = np.full(len(i.mandatory), -1)
    for j in np.lexsort((jobs.submitted_s, jobs.remaining_work / rate[first])).tolist():
        if i.gpus[first[j]] <= free:
            choice[j] = first[j]
            free -= int(i.gpus[first[j]])
    out = {j for j in range(len(choice)) if choice[j] < 0}

    def gain(j: int, after: int) -> float:
        o = int(choice[j])
        return float((rate[o + 1] - rate[o]) / rate[o + after] / (i.gpus[o + 1] - i.gpus[o]))

    while True:
        for j in range(len(choice)):
            o = int(choice[j])
            if j not in out and (
                o + 1 == i.start[j + 1]
                or rate[o + 1] <= rate[o]
                or i.gpus[o + 1] - i.gpus[o] > free
            ):
                out.add(j)
        able = sorted(
            (j for j in range(len(choice)) if j not in out),
            key=lambda j: jobs.remaining_work[j] / rate[choice[j]],
        )
        if not able:
            return [int(i.gpus[o]) if o >= 0 else 0 for o in choice]
        champion = able[0]
        for j in able[1:]:
            if gain(j, 1) > gain(champion, 0):
                champion = j
        free -= int(i.gpus[choice[champion] + 1] - i.gpus[choice[champion]])
        choice[champion] += 1


def test_afs_agrees_with_full_tournaments() -> None:
    """The line of champions gives what a whole tournament per GPU gives, on 40 random rounds of
    one pool.
    """
    for s in range(40):
        p = validate(
            random_snapshot(np.random.default_rng(60 + s), 12, rules=False, pools=1).snapshot()
        )
        round_ = compile_round(p, prunes=False)
        if (np.diff(round_.instance.start) == 0).any():
            continue
        _, d = run_policy(round_, POLICIES["afs"].decide, None, NO_LIMITS, np.inf)
        assert round_.allocation(d.choice).gpus.tolist() == by_the_book(round_)


@pytest.mark.parametrize("policy", ["equal", "srtf", "las", "afs", "static"])
def test_limit_on_changes_pins_those_that_come_first(policy: str) -> None:
    """Three running jobs of 4 on 12 GPUs in the way of better ones: one change allowed, so two
    keep their 4.
    """
    jobs = [
        {
            **RUNS,
            "gpus": 4,
            "sizes": [1, 4, 8],
            "requested_gpus": 8,
            "submitted_s": s,
            "remaining_work": 100 + s,
            "attained_gpu_s": 9000,
        }
        for s in range(3)
    ]
    jobs += [{"requested_gpus": 4, "remaining_work": 10, "submitted_s": 5}]
    p = problem(jobs, [{"gpus": 12}], LINEAR, config={"max_changes": 1})
    r = decide(p, policy=policy)
    assert sum(a == "keep" for a in r.jobs["action"]) >= 2
    if policy in ("srtf", "las"):
        assert list(r.jobs["gpus"]) == [4, 4, 0, 4]


@pytest.mark.parametrize("policy", ["static", "srtf", "las", "equal", "afs"])
def test_guarantee_goes_before_the_order(policy: str) -> None:
    """The job of tenant b, last by age, length and service, is owed 4 GPUs."""
    jobs = [
        {"requested_gpus": 8, "tenant": "a", "remaining_work": 10},
        {
            "requested_gpus": 4,
            "min_gpus": 4,
            "tenant": "b",
            "submitted_s": 1,
            "remaining_work": 5000,
            "attained_gpu_s": 9e5,
        },
    ]
    assert gpus(problem(jobs, tenants=[{"tenant": "b", "guaranteed_gpus": 4}]), policy)[1] >= 4


@pytest.mark.parametrize(
    "policy", ["greedy", "greedy-naive", "static", "equal", "srtf", "las", "afs"]
)
def test_no_model_where_no_repair_is_needed(policy: str) -> None:
    """The round's model, its structure and its prices are not made: a decision costs little more
    than its steps.
    """
    jobs = [
        {"submitted_s": s, "remaining_work": 50 * s + 9, "requested_gpus": 2} for s in range(12)
    ]
    running = {**RUNS, "gpus": 4, "preemptible": False}
    p = problem(
        [running, *jobs],
        [{"price_per_gpu_hour": 1}, {}],
        config={"budget_per_hour": 7},
        tenants=[{"tenant": "default", "max_gpus": 14, "guaranteed_gpus": 3}],
    )
    round_ = compile_round(p, prunes=False)
    task, proposal = run_policy(round_, POLICIES[policy].decide, None, NO_LIMITS, np.inf)
    assert (proposal.choice >= 0).sum() >= 3
    assert not {"model", "choices", "dual"} & {*vars(round_), *vars(task)}


def test_cheap_check_says_what_the_model_says() -> None:
    """keeps_rules against the rows of the model, on what runs and on plans with ever more jobs
    changed at random.
    """
    agreed = {True: 0, False: 0}
    for s in range(60):
        rng = np.random.default_rng(s)
        round_ = compile_round(validate(random_snapshot(rng, 8).snapshot()), prunes=False)
        i, view = round_.instance, choices(round_.model)
        if not len(i.job):
            continue
        choice = round_.unchanged_choice()
        for _ in range(6):
            ok = keeps_rules(i, choice)
            assert ok == view.feasible(choice)
            agreed[ok] += 1
            o = int(rng.integers(len(i.job)))
            choice = choice.copy()
            choice[i.job[o]] = o if rng.random() < 0.8 else -1
    assert min(agreed.values()) > 50
