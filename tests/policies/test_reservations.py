"""Reservations: a large job that smaller, later ones would pass over starts on time.

Pools of 4 GPUs, jobs that may not be stopped, speed k on k GPUs, rounds of 300 s.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import series
from text_tables import cases, cells, given
from worlds import workload

from allocator.audit import audit
from allocator.domain.problem import NO_RESERVATIONS, Problem, Reservation
from allocator.engine.decision import decide, decide_round
from allocator.engine.expected import forecast
from allocator.engine.results import build_result
from allocator.options.instance_building import compile_round
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import simulate
from allocator.solvers.base import SolveLimits

EXACT = SolveLimits(gap=0.0)
FIRM = {"preemptible": False}
ONE = {**FIRM, "max_gpus": 1}
LARGE = {**FIRM, "min_gpus": 4, "max_gpus": 4, "remaining_work": 4000, "submitted_s": 10}
NEVER = 1e9
TENANTS = given("tenants: tenant=a; tenant=b max_gpus=3; tenant=c guaranteed_gpus=1")
# why; the large job; the others; seconds until a reservation
NOBODY = cases("""
it has not waited long enough ->  ->  -> 200
the others came before it ->  -> submitted_s=5 -> 0
the others have more weight ->  -> weight=2 -> 0
the others are as large -> min_gpus=1 max_gpus=1 remaining_work=900 ->  -> 0
the others can be stopped ->  -> preemptible=true -> 0
they leave it enough by the next round ->  -> remaining_work=250 -> 0
its tenant may not have so many -> tenant=b -> tenant=a -> 0
""")
# why; the large job; the others
DUE_CASES = cases("""
it is there for 2,000 s, as long as it takes alone ->  ->  -> starts
it runs, is there for half of it -> state=running pool=p0 gpus=4 remaining_work=16000 ->  -> starts
it runs for less -> state=running pool=p0 gpus=4 remaining_work=16001 ->  -> waits
it takes longer than it is there -> remaining_work=8001 ->  -> waits
it may not be stopped -> preemptible=false ->  -> starts
the others came before it ->  -> submitted_s=5 -> waits
the others are done by the next round ->  -> remaining_work=300 -> waits
the others have more weight ->  -> weight=2 -> waits
its tenant may not have so many -> tenant=b -> tenant=a -> waits
a guarantee needs a GPU of the others -> tenant=a -> tenant=c -> waits
""")


def runs(work: float) -> dict[str, Any]:
    """A job that holds one GPU for so many seconds from now."""
    return {**ONE, "state": "running", "pool": "p0", "gpus": 1, "remaining_work": work}


def waits(work: float, **more: Any) -> dict[str, Any]:
    """A job of one GPU, submitted after the large one."""
    return {**ONE, "submitted_s": 100, "remaining_work": work, **more}


def a_round(*jobs: dict[str, Any], after_s: float = 0.0, **tables: Any) -> Problem:
    config = {
        "interval_s": 300,
        "now_s": 200,
        "reserve_after_s": after_s,
        "objective": "completion",
    }
    pools = tables.pop("pools", [{"gpus": 4}])
    return problem(jobs, pools, config=config, **tables)


def expected_s(p: Problem, j: int = 0) -> float:
    """Seconds until a job is expected to start, by the model."""
    return float(forecast(decide_round(p, limits=EXACT)).start_s[j])


def decided(p: Problem) -> tuple[list[int], tuple[Reservation, ...]]:
    """What each job gets, and what is reserved."""
    decision = decide_round(p, limits=EXACT)
    return decision.allocation.gpus.tolist(), decision.round.problem.kept


def test_jobs_that_end_in_time_fill_the_gap_and_others_wait() -> None:
    """Of four GPUs one is held for 450 s and one for 700 s. The large job needs all four, so it is
    promised a start after 900 s, the end of the third round. Until then a job of 800 s may use one
    of the two GPUs that are free. A job of 1,000 s may use one only if it can be stopped. Where
    sizes are estimates, that of 800 s may not, either: it could take twice as long."""
    p = a_round(LARGE, runs(450), runs(700), waits(1000), waits(800))
    assert decided(p) == ([0, 1, 1, 0, 1], (Reservation(0, 0, 4, 900.0),))
    assert decided(dataclasses.replace(p, reserve_after_s=NEVER)) == ([0, 1, 1, 1, 1], ())
    can_stop = a_round(LARGE, runs(450), runs(700), waits(1000, preemptible=True), waits(1000))
    assert decided(can_stop)[0] == [0, 1, 1, 1, 0]
    assert decided(dataclasses.replace(p, left_error=np.zeros(5)))[0] == [0, 1, 1, 0, 0]


def test_when_it_is_time_the_large_job_starts() -> None:
    """All four GPUs are free. Four later jobs are together worth more, and would all start if
    nothing were reserved. The large job starts."""
    p = a_round(LARGE, *[waits(400)] * 4)
    assert decided(p) == ([4, 0, 0, 0, 0], (Reservation(0, 0, 4, 0.0),))
    assert decided(dataclasses.replace(p, reserve_after_s=NEVER))[0] == [0, 1, 1, 1, 1]
    assert decide(p, policy="horizon").jobs["gpus"] == [4, 0, 0, 0, 0]


@pytest.mark.parametrize(("why", "large", "others", "after_s"), NOBODY)
def test_nobody_gets_one(why: str, large: str, others: str, after_s: str) -> None:
    """All later jobs start, and the large one waits."""
    tables = TENANTS if "tenant" in large else {}
    jobs = LARGE | cells(large), *[waits(400) | cells(others)] * 4
    p = a_round(*jobs, after_s=float(after_s), **tables)
    assert decided(p) == ([0, 1, 1, 1, 1], ()), why


SOFT = {"min_gpus": 4, "max_gpus": 4, "remaining_work": 8000, "submitted_s": 10}
DUE: dict[str, Any] = {"due_after_runs": 1.0}
SHORT = {"preemptible": True, "submitted_s": 100}


@pytest.mark.parametrize("row", DUE_CASES)
def test_a_job_that_is_there_for_longer_than_it_takes_alone_is_due(row: list[str]) -> None:
    """All others can be stopped. The four short ones are together worth more, and would all run."""
    (large, others), starts = map(cells, row[1:3]), row[3] == "starts"
    one = waits(400, **SHORT) if "pool" in large else runs(400) | SHORT
    tables = TENANTS if "tenant" in large | others else {}
    p = dataclasses.replace(
        a_round(SOFT | large, *[one | others] * 4, **tables), **DUE, now_s=2010.0
    )
    kept = (Reservation(0, 0, 4, 0.0),)
    assert decided(p) == (([4, 0, 0, 0, 0], kept) if starts else ([0, 1, 1, 1, 1], ())), row
    if starts:
        plan = decide(p, limits=EXACT)
        text = '4 GPUs of pool "p0" are kept for job "j0" now: submitted 2000 s ago'
        assert plan.job("j1").detail.endswith(text)


@pytest.mark.parametrize("seed", series(range(40), 12))
def test_every_round_of_jobs_that_can_be_stopped_agrees_with_the_rule_read_again(seed: int) -> None:
    """Six jobs that all ran alone for as long as they were there, on six GPUs. Those that are due
    are found from the plan without reservations, and the plan is the best with all of them."""
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    for at in rng.permutation(6).tolist():
        k, weight = int(rng.choice([1, 2, 4])), float(rng.choice([1, 2]))
        job = {"min_gpus": k, "max_gpus": k, "remaining_work": k * 400, "weight": weight}
        jobs.append(job | {"submitted_s": at, "preemptible": True})
    p = dataclasses.replace(a_round(*jobs, pools=[{"gpus": 6}]), **DUE, now_s=405.0)
    without = decided(dataclasses.replace(p, reserve_after_s=NEVER))[0]
    got, free, due = list(without), 6 - sum(without), []
    for j in sorted(range(6), key=lambda j: -jobs[j]["weight"] * (705 - jobs[j]["submitted_s"])):
        me, k = jobs[j], jobs[j]["min_gpus"]
        over = [
            i
            for i in sorted(range(6), key=lambda i: -jobs[i]["submitted_s"])
            if without[i] and jobs[i]["submitted_s"] > me["submitted_s"]
            if jobs[i]["weight"] <= me["weight"] and jobs[i]["min_gpus"] < k
        ]
        if without[j] or not over or k <= 6 - sum(without) or free + sum(got[i] for i in over) < k:
            continue
        due.append(j)
        for i in over:
            if free < k:
                free, got[i] = free + got[i], 0
        free -= k
    decision = decide_round(p, limits=EXACT)
    assert [r.job for r in decision.round.problem.kept] == due
    i = compile_round(p, prunes=False).instance
    value = dict(zip(i.job.tolist(), i.value.tolist(), strict=True))
    plans = [x for n in range(7) for x in itertools.combinations(range(6), n)]
    plans = [x for x in plans if set(due) <= set(x) and sum(jobs[j]["min_gpus"] for j in x) <= 6]
    assert decision.value == pytest.approx(max(sum(value[j] for j in x) for x in plans))


def test_of_two_large_jobs_the_one_with_more_weight_and_wait_comes_first() -> None:
    """Weight times time since submission, one round added: 490 s for the first job, and 440 s for
    the second, which comes first if it has twice the weight."""
    for weight, first in ((1, 0), (2, 1)):
        other = {**LARGE, "submitted_s": 60, "weight": weight}
        p = a_round(LARGE, other, runs(1000), waits(9000))
        assert [r.job for r in decided(p)[1]] == [first]


def test_nodes_are_kept_too() -> None:
    """Two nodes of 4 GPUs, and a job that needs all four of one node. One GPU of n0 is held for 450
    s, and one of n1 for 2,000 s, so n0 is kept for it after 600 s. Later jobs that run for 1,000 s
    get the three free GPUs of n1 and none of n0. One that runs for 500 s gets a GPU of n0."""
    places = given("placements: job_id=j1 node=n0 gpus=1; job_id=j2 node=n1 gpus=1")
    p = a_round(
        LARGE,
        runs(450),
        runs(2000),
        *[waits(1000)] * 5,
        waits(500),
        **leaving_nodes(),
        **places,
    )
    decision = decide_round(p, limits=EXACT)
    at = decision.allocation.places
    node_of = dict(zip(at.job.tolist(), at.node.tolist(), strict=True))
    assert decision.round.problem.kept == (Reservation(0, 0, 4, 600.0, ((0, 4),)),)
    assert sorted(node_of.get(j, -1) for j in range(3, 8)) == [-1, -1, 1, 1, 1]
    assert node_of[8] == 0


def leaving_nodes(**leaves: float) -> dict[str, Any]:
    """Two nodes of 4 GPUs, of which the first leaves, and a large job that needs both."""
    there = "nodes: node=n0 pool=p0 gpus=4; node=n1 pool=p0 gpus=4"
    found = given(f"pools: gpus=8 gpus_per_node=4 / {there}")
    found["nodes"][0] |= leaves
    return found


def test_nobody_starts_on_a_node_that_leaves_before_he_is_done() -> None:
    """n0 leaves after 1,000 s, at 1200. Of jobs of one GPU that may not be stopped, those of 900 s
    are done by then, and the five of 1,001 s get the four GPUs of n1. A job that can be stopped
    needs a round of 300 s and two pauses: 30 s to be moved, and none to start."""
    p = a_round(*[waits(1001)] * 5, *[waits(900)] * 2, **leaving_nodes(leaves_s=1200))
    plan = decide_round(p, limits=EXACT).allocation
    of = dict(zip(plan.places.job.tolist(), plan.places.node.tolist(), strict=True))
    assert [of.get(j, -1) for j in range(7)].count(-1) == 1
    assert {of[j] for j in range(5) if j in of} == {1} and {of[5], of[6]} == {0}
    one = decide(p, limits=EXACT).job(f"j{next(j for j in range(5) if j not in of)}")
    assert one.reason == "capacity" and one.detail is not None
    assert one.detail.endswith('; node "n0" leaves after 1000 s: too early for it')
    for leaves_s, starts in ((529, 4), (530, 8)):
        soft = [waits(9000, preemptible=True)] * 8
        p = a_round(*soft, **leaving_nodes(leaves_s=leaves_s))
        assert sum(decided(p)[0]) == starts


def test_jobs_stay_while_a_later_round_may_move_them() -> None:
    """A running job stays on a node that leaves at 501, and moves where it leaves at the end of the
    round, at 500. One that may not be stopped stays in any case."""
    for leaves_s, firm, node in ((501, False, 0), (500, False, 1), (500, True, 0)):
        job = runs(9000) | {"preemptible": not firm}
        places = given("placements: job_id=j0 node=n0 gpus=1")
        p = a_round(job, **places, **leaving_nodes(leaves_s=leaves_s))
        assert decide_round(p, limits=EXACT).allocation.places.node.tolist() == [node]


def test_jobs_make_way_on_nodes_that_stay() -> None:
    """n0 leaves after 1,000 s. A job of four GPUs that is not done by then needs n1, so the one
    that is there moves to n0 for as long. A new job goes to n1, though its hole is larger."""
    soft = {"preemptible": True}
    here = given("placements: job_id=j0 node=n1 gpus=1", **leaving_nodes(leaves_s=1200))
    p = a_round(runs(9000) | soft, LARGE | {"remaining_work": 4004}, **here)
    assert decided(p)[0] == [1, 4]
    here["placements"][0]["node"] = "n0"
    p = a_round(runs(900), waits(9000, **soft), **here)
    assert decide_round(p, limits=EXACT).allocation.places.node.tolist() == [0, 1]


def test_the_start_of_a_large_job_waits_for_nodes_that_return() -> None:
    """A job of 8 GPUs needs two of three nodes for 500 s, and n2 has a job for ever. n0 is away
    until 1,001, so it is promised a start after 900 s, the end of the third round. Until then n1 is
    for jobs that end by then, and others get the three free GPUs of n2. If n0 is there and leaves
    after 600 s for 201 s, the job of 500 s starts now, and that of 700 s after 900 s: it would not
    be done in time."""
    large = {**LARGE, "min_gpus": 8, "max_gpus": 8}
    places = given("placements: job_id=j1 node=n2 gpus=1")
    for leaves_s, work, after_s in ((0, 4000, 900), (800, 4000, 0), (800, 5600, 900)):
        back = leaving_nodes(leaves_s=leaves_s, returns_s=1001)
        back["pools"][0]["gpus"] = 12
        back["nodes"].append(cells("node=n2 pool=p0 gpus=4"))
        jobs = large | {"remaining_work": work}, runs(9000), *[waits(1000)] * 5
        p = a_round(*jobs, **places, **back)
        got, found = decided(p)
        assert len(decide(p, limits=EXACT).jobs["detail"]) == 7  # reasons without nodes, too
        kept = Reservation(0, 0, 8, after_s, ((0, 4), (1, 4)))
        assert [dataclasses.replace(r, nodes=tuple(sorted(r.nodes))) for r in found] == [kept]
        assert after_s in (0, expected_s(p))
        assert (got[0], sum(got[2:])) == (8 if after_s == 0 else 0, 3)


def test_the_audit_finds_jobs_that_come_to_leaving_nodes() -> None:
    """The plan as if n0 stayed."""
    p = a_round(*[waits(1001)] * 8, **leaving_nodes(leaves_s=1200))
    stays = dataclasses.replace(p.nodes, leaves_s=np.full(2, np.inf))
    plan = decide_round(dataclasses.replace(p, nodes=stays), limits=EXACT).allocation
    round_ = compile_round(p)
    faults = audit(p, plan, round_.repairs, round_.offer).faults
    assert len(faults) == 4
    assert faults[0] == (
        'job "j0" comes to node "n0", which leaves at 1200: it needs the node for 1001 s'
    )


def test_the_audit_says_what_is_wrong() -> None:
    """The plan without the reservations, where one is kept, and one is asked for."""
    p = asked(LARGE, runs(450), runs(700), waits(1000), waits(800), at_s=1101)
    free = dataclasses.replace(p, reserve_after_s=NEVER, reservations=NO_RESERVATIONS)
    plan = decide_round(free, limits=EXACT).allocation
    asks = 'pool "p0" with 4 GPUs: other jobs hold 1 at 1101, 4 are kept by reservations'
    later = (
        'pool "p0" with 4 GPUs: jobs that may not be stopped still hold 1 after 900 s, 4 are kept'
    )
    for after_s, fault in (
        (900.0, f'{later} for job "j0"'),
        (0.0, 'job "j0" gets nothing, and 4 GPUs are kept for it from now on'),
    ):
        kept = dataclasses.replace(p, **DUE, kept=(Reservation(0, 0, 4, after_s),))
        round_ = compile_round(kept)
        assert set(audit(kept, plan, round_.repairs, round_.offer).faults) == {asks, fault}


def asked(*jobs: dict[str, Any], tables: dict[str, Any] | None = None, **row: Any) -> Problem:
    """A round with one reservation that is asked for: by default all 4 GPUs from 1,100 on."""
    row = {"reservation": "r", "pool": "p0", "gpus": 4, "at_s": 1100.0} | row
    return a_round(*jobs, reservations=[row], **(tables or {}))


def test_gpus_are_kept_as_asked() -> None:
    """From 1,100 on, 900 s from now. So a job that may not be stopped starts if it is done by then.
    From 500 on, the next round, others leave three GPUs at once: two jobs of the tenant run, and
    one other. A reservation that is over, or whose job is, keeps nothing."""
    three = waits(1000), waits(900), waits(1000, preemptible=True)
    assert decided(asked(*three))[0] == [0, 1, 1]
    assert decided(asked(*three, gpus=3))[0] == [1, 1, 1]
    assert decided(asked(*three, job_id="j0"))[0] == [1, 1, 1]
    assert decided(asked(runs(9000), *three))[0] == [1, 0, 1, 1]
    own, tenants = waits(1000, tenant="t"), given("tenants: tenant=t; tenant=u")
    five = own, own, *[waits(1000, preemptible=True, tenant="u")] * 3
    now = asked(*five, tables=tenants, gpus=3, at_s=500, tenant="t")
    assert sorted(decided(now)[0][2:]) == [0, 0, 1] and decided(now)[0][:2] == [1, 1]
    assert decided(asked())[0] == []  # no jobs
    for over in {"at_s": 0, "until_s": 200}, {"job_id": "done"}:
        assert decided(asked(*three, **over))[0] == [1, 1, 1]


def test_the_plan_speaks_of_what_was_asked_for() -> None:
    """Both waiting jobs are told of the reservation, and for whom it is. Its holder is expected to
    start when all GPUs are free, after two rounds, or, if others hold them until then, when the
    reservation begins, at 1,100. A job that the reservation keeps out has no expected start."""
    plan = decide(asked(LARGE, runs(450), waits(1000), job_id="j0", until_s=9200), limits=EXACT)
    for j, whom in ("j0", "it"), ("j2", 'job "j0"'):
        assert plan.job(j).detail.endswith(  # type: ignore[union-attr]
            f'; 4 GPUs of pool "p0" are kept for {whom} after 900 s until 9000 s from now'
            ' (reservation "r")'
        )
    assert plan.job("j0").expected_start_s == 200 + 600
    assert decide(asked(waits(9), at_s=0)).job("j0").expected_start_s is None
    assert expected_s(asked(waits(9), at_s=0, until_s=4901)) == 4800
    # the large job would run from 900 s on, until after the begin at 1,300 s
    late = asked(LARGE, runs(450), runs(700), waits(1000), at_s=1500, until_s=4901)
    assert [r.after_s for r in decided(late)[1]] == [4800]
    stops = asked(LARGE, waits(9e5, preemptible=True, weight=1e9), job_id="j0")
    assert decide(stops).job("j0").expected_start_s == 1100


def test_nodes_are_kept_as_asked() -> None:
    """Jobs that end in time are on three GPUs of n0, and one for ever on n1. So n0 is kept, and a
    job that runs beyond 1,100 goes to n1. What is left of a node is used: 7 GPUs are kept for a job
    from now on, a job of 4 stops, and one gets the last GPU."""
    places = [{"job_id": f"j{j}", "node": f"n{j // 3}", "gpus": 1} for j in range(4)]
    tables = {**leaving_nodes(), "placements": places}
    p = asked(*[runs(900)] * 3, runs(9000), waits(1000), tables=tables)
    assert decide_round(p, limits=EXACT).allocation.places.node[-1] == 1
    four = SHORT | cells("min_gpus=4 max_gpus=4")
    jobs = four | cells("state=running pool=p0 gpus=4"), four, waits(1000, **SHORT)
    tables["placements"] = [places[0] | {"gpus": 4}]
    assert decided(asked(*jobs, tables=tables, gpus=7, at_s=0, job_id="j1"))[0] == [0, 4, 1]


def test_a_simulation_keeps_what_was_asked_for() -> None:
    """Nobody has the GPUs from 900 to 30,000, so a job of 1,200 s starts after it."""
    row = cells("reservation=r pool=p gpus=1 at_s=900 until_s=30000")
    w = workload([{**FIRM, "total_work": 1200}], 1, reservations=[row])
    done = simulate(w, policy="greedy", options=SimulationOptions()).jobs
    assert done["started_s"].tolist() == [30_000]


def test_it_gives_way_where_no_plan_keeps_it() -> None:
    """A guarantee needs the GPUs that would be kept."""
    p = a_round(
        LARGE,
        runs(450),
        *[waits(1000, tenant="t")] * 3,
        **given("tenants: tenant=default; tenant=t guaranteed_gpus=3"),
    )
    assert decided(p) == ([0, 1, 1, 1, 1], ())
    tables = given("tenants: tenant=t guaranteed_gpus=3")
    p = asked(*[waits(1000, tenant="t")] * 3, tables=tables)
    assert decided(p)[0] == [1, 1, 1]
    told = build_result(p, decide_round(p), policy="mip", seed=0)  # as a controller tells it
    for plan in decide(p), told:
        assert plan.warnings[-1].startswith('no plan keeps "r" of reservations.csv')
    both = "reservation=s pool=p0 gpus=4 at_s=1100; reservation=r pool=p0 gpus=1 at_s=200"
    p = a_round(*[waits(1000, tenant="t")] * 3, **given(f"reservations: {both}"), **tables)
    some = decide_round(p).round.problem
    assert some.reservations.reservation == ("r",) and '"s"' in some.warnings[-1]


def test_a_due_job_that_cannot_start_keeps_no_other_from_it() -> None:
    """Two jobs are due, each in a pool of its own. A guarantee needs a GPU of the first pool."""
    a, b, short = {"gpu_types": ["A"]}, {"gpu_types": ["B"]}, waits(400, **SHORT)
    jobs = SOFT | a, SOFT | b, *[short | a | {"tenant": "c"}] * 4, *[short | b] * 4
    p = a_round(*jobs, **given("pools: gpus=4; gpus=4 gpu_type=B"), **TENANTS)
    assert decided(dataclasses.replace(p, **DUE, now_s=2010.0))[0] == [0, 4, *[1] * 4, *[0] * 4]


def test_plan_and_reasons_speak_of_it() -> None:
    """The large job is expected to start when its GPUs are kept from, or when it is due, as others
    pass it over: at 2,010, four rounds after 1,000. The other lacks those."""
    soon = dataclasses.replace(a_round(SOFT, *[runs(400) | SHORT] * 4), **DUE, now_s=1000.0)
    assert expected_s(soon) == 1200
    plan = decide(a_round(LARGE, runs(450), runs(700), waits(1000), waits(800)), limits=EXACT)
    large, other = plan.job("j0"), plan.job("j3")
    assert large.expected_start_s == 200 + 900
    assert large.detail.endswith('4 GPUs of pool "p0" are kept for it after 900 s')
    assert other.reason == "capacity"
    assert other.detail.endswith('4 GPUs of pool "p0" are kept for job "j0" after 900 s')


@pytest.mark.parametrize("seed", series(range(3), 1))
def test_a_gang_waits_for_what_runs_and_no_longer(seed: int) -> None:
    """Jobs of one GPU and 30 min use 95 % of 8 GPUs, and after an hour a gang comes that needs all
    8. It waits at most as long as the longest job that runs then, and two rounds. Without
    reservations it waits for more than an hour."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0, 3 * 3600, int(0.95 * 8 * 3 * 2)))
    jobs = [{**FIRM, "submitted_s": float(s), "total_work": 1800} for s in at]
    gang = {**FIRM, "submitted_s": 3600, "total_work": 8 * 1800, "min_gpus": 8, "max_gpus": 8}

    def wait_s(after_s: float) -> float:
        w = workload([gang, *jobs], 8, config={"reserve_after_s": after_s})
        done = simulate(w, policy="mip", options=SimulationOptions()).jobs.set_index("job_id")
        return float(done.loc["j0", "started_s"]) - 3600

    assert wait_s(0.0) <= 1800 + 300 + 300
    assert wait_s(NEVER) > 3600
