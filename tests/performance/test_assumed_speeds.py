"""Models without a rate: jobs run at their requested size, at an assumed speed, said so, until
it is measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import problem, snapshot
from examples import series
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster
from text_tables import columns, tables

from allocator.api import solve
from allocator.audit import audit
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decision import decide
from allocator.engine.explain import explain
from allocator.engine.promises import promise
from allocator.errors import InvalidInput
from allocator.io.snapshots import parse_snapshot
from allocator.io.workloads import parse_workload
from allocator.options.instance_building import compile_round
from allocator.performance.speed import GUESSED, believed_speeds
from allocator.policies.base import POLICIES
from allocator.queue.cluster_tables import read_learned_rates
from allocator.queue.queue import Queue
from allocator.queue.snapshot import replace_cluster

TWO = columns("pool gpu_type gpus: a A 8; b B 4")
JOBS = tables("""jobs:
    job_id=odd model=x requested_gpus=3 remaining_work=600;
    job_id=wide model=x requested_gpus=4 max_gpus=4 gpu_types=B;
    job_id=runs model=y requested_gpus=4 state=running pool=a gpus=2;
    job_id=known model=m max_gpus=2;
    job_id=huge model=y requested_gpus=9 max_gpus=16""")["jobs"]
RATES = columns("model gpu_type gpus work_per_s: m A 1 2; m A 2 3")
TOLD = (
    'jobs.csv: 4 jobs of 2 models without a rate, "x", "y": each runs at requested_gpus only, at an'
    " assumed speed of 1 work/s, until it is measured"
)


def mixed() -> Problem:
    """Four jobs of models without a rate, one of a model with rates for type A."""
    return problem(JOBS, TWO, RATES)


def rows(result: Plan) -> dict[str, dict[str, Any]]:
    return {row["job_id"]: row for row in result.to_dict()["jobs"]}


def test_plan_says_what_is_assumed() -> None:
    """Half of 600 in 300 s is .5; the plan and each of its jobs say that the speed is none that was
    measured, also where a job fits nowhere."""
    result = decide(mixed())
    got = rows(result)
    assert (got["odd"]["gpus"], got["odd"]["work_per_s"], got["odd"]["value"]) == (3, 1.0, 0.5)
    assert (got["wide"]["pool"], got["wide"]["gpus"], got["runs"]["action"]) == ("b", 4, "keep")
    assumed = "assumed speed, not measured"
    assert [got[n]["detail"] for n in ("odd", "wide", "known")] == [assumed, assumed, None]
    assert got["huge"]["reason"] == "exceeds_cluster" and assumed in got["huge"]["detail"]
    assert TOLD in result.warnings
    assert assumed in "\n".join(explain(snapshot(JOBS, TWO, RATES), "huge", SolveCommand()).lines())


@pytest.mark.parametrize("policy", series([*POLICIES], 8))
def test_every_policy_gives_the_requested_size_or_what_is_held(policy: str) -> None:
    """Together with a job with rates, and where there is no rate at all; the audit has passed each
    plan.
    """
    for p in (mixed(), problem(JOBS[:3], TWO, [])):
        got = rows(decide(p, policy=policy))
        assert (
            got["odd"]["gpus"] in (0, 3)
            and got["wide"]["gpus"] in (0, 4)
            and got["runs"]["gpus"] in (0, 2, 4)
        )
        assert got["odd"]["gpus"] == 3 or policy in ("rental", "spot-wait")


def test_tables_need_no_rates() -> None:
    """rates.csv may be absent, or have a header alone, in frames and in files; a simulation has to
    know how fast jobs run: there a model without a rate is a fault."""
    names = "job_id model submitted_s remaining_work max_gpus requested_gpus"
    jobs = pd.DataFrame(columns(f"{names}: a x 0 60 2 2"))
    pools = pd.DataFrame(columns("pool gpu_type gpus: p A 2"))
    plan = solve(Snapshot.from_frames(jobs=jobs, pools=pools))
    assert rows(plan)["a"]["gpus"] == 2 and 'without a rate, "x"' in plan.warnings[0]
    head = b"model,gpu_type,gpus,work_per_s\n"
    files = {
        f"{name}.csv": t.to_csv(index=False).encode()
        for name, t in (("jobs", jobs), ("pools", pools))
    }
    for more in ({}, {"rates.csv": head}):
        assert rows(solve(parse_snapshot("x", files | more)))["a"]["gpus"] == 2
    files["workload.csv"] = b"job_id,submitted_s,model,total_work,max_gpus\na,0,x,1,1\n"
    del files["jobs.csv"]
    with pytest.raises(InvalidInput, match=r"rates.csv: is missing"):
        parse_workload("w", files)
    with pytest.raises(InvalidInput, match=r'model "x" has no row in rates.csv'):
        parse_workload("w", files | {"rates.csv": head + b"m,A,1,1\n"})


@pytest.mark.parametrize(
    ("model", "config", "fault"),
    [
        ("bret", {}, 'did you mean "bert"? If it is another model, set unknown_models = "assume"'),
        ("bret", {"unknown_models": "assume"}, None),
        ("bert-7b", {}, None),
        ("gnmt", {"unknown_models": "refuse"}, "has no row in rates.csv"),
    ],
)
def test_slips_of_known_models_stay_faults(
    model: str, config: dict[str, Any], fault: str | None
) -> None:
    """A name that is almost that of a model with rates is refused, unless it is said to be
    meant.
    """
    snap = snapshot(
        [{"model": model}],
        rates=columns("model gpu_type gpus work_per_s: bert A 1 1"),
        config=config,
    )
    if fault is None:
        assert f'"{model}"' in validate(snap).warnings[0]
        return
    with pytest.raises(
        InvalidInput, match=r"jobs.csv:2: model .* has no row in rates.csv"
    ) as caught:
        validate(snap)
    assert fault in str(caught.value)


def test_a_model_with_some_rates_is_no_model_without() -> None:
    """Type B alone, where only type A has rates: the job waits with no_matching_gpu_type."""
    p = problem([{}], TWO[1:], columns("gpu_type gpus work_per_s: A 1 1"))
    assert rows(decide(p))["j0"]["reason"] == "no_matching_gpu_type"


def test_a_size_that_was_not_seen_does_as_much_per_gpu_as_the_nearest_one() -> None:
    """Seen: 8 a second on 2 GPUs, 12 on 4. Eight do 24, with a larger error; the job may have the
    sizes that were seen, too."""
    seen = columns("model gpu_type gpus work_per_s observed: x A 2 8 true; x A 4 12 true")
    p = problem([{"model": "x", "requested_gpus": 8}], TWO[:1], seen)
    zeros = np.zeros(3, dtype=np.int64)
    speed = believed_speeds(p, zeros, zeros, np.array([2, 4, 8]))
    assert speed.rate.tolist() == [8.0, 12.0, 24.0]
    assert speed.error[0] < speed.error[2] == GUESSED
    assert compile_round(p, prunes=False).offer.gpus.tolist() == [2, 4, 8]


def test_lists_of_sizes_hold() -> None:
    """A list without the requested size has the size below it; without one below, its smallest."""
    p = problem(
        [{"model": "x", "requested_gpus": k, "min_gpus": 1, "sizes": "2|4"} for k in (3, 1, 4)],
        TWO,
        [],
    )
    assert p.jobs.requested_gpus.tolist() == [2, 2, 4] and [s.tolist() for s in p.size_lists] == [
        [2],
        [4],
    ]


def test_audit_knows_the_rule_by_itself() -> None:
    """A plan that gives another size than the requested one at an assumed speed is refused."""
    p = problem([{"model": "x", "requested_gpus": 3}], TWO, [])
    round_ = compile_round(replace(p, size_lists=(np.array([3, 4]),)))
    wider = replace(round_.allocation(np.array([0])), gpus=np.array([4]))
    told = audit(round_.problem, wider, round_.repairs, round_.offer).faults
    assert any("at an assumed speed" in fault for fault in told)


def test_nothing_is_promised_on_an_assumed_speed() -> None:
    """60 of work in an hour would be easy at 1 a second."""
    p = problem([{"model": "x", "remaining_work": 60, "deadline_s": 3600}], TWO, [])
    assert promise(p, "j0").promised is False and "assumed" in promise(p, "j0").reason


def test_a_controller_learns_speeds_of_which_nothing_was_known(tmp_path: Path) -> None:
    """Thousands of times from the assumed speed: after a round it is known, the next round decides
    with it. A second job of another size runs at the requested one. An export keeps what was seen,
    and rates that are given later are corrected by what is seen then, not by what was learned
    without them."""
    clock, speed = SimulatedClock(NOW), 5000.0
    queue = Queue.create(tmp_path / "q.db", cluster(), clock=clock.now)
    machines = SimulatedMachines({"a": 8}, clock, MachineBehaviour(rate=lambda o: speed))
    options = ControllerOptions(every_s=60.0, poll_s=10.0)
    controller = Controller(queue.store, SimulatedExecutor(machines), clock, options)
    seen = pytest.approx(speed, rel=1e-6)

    def submit(name: str, gpus: int) -> None:
        more = {"max_gpus": 8, "requested_gpus": gpus, "gpu_types": "A"}
        queue.submit(job_id=name, model="x", total_work=1e9, **more)

    def learned_after(seconds: float) -> dict[int, float]:
        for _ in range(round(seconds / 10)):
            controller.step()
            clock.sleep(10.0)
        with queue.store.read() as connection:
            return {r["gpus"]: r["work_per_s"] for r in read_learned_rates(connection)}

    submit("one", 3)
    assert learned_after(10) == {} and queue.job("one").want_gpus == 3
    assert learned_after(240) == {3: seen}
    submit("two", 5)
    assert learned_after(240) == {3: seen, 5: seen}
    assert {j.job_id: j.want_gpus for j in queue.jobs()} == {"one": 3, "two": 5}
    p = validate(queue.snapshot())
    one = rows(decide(p))["one"]
    assert p.rates.observed.sum() == 2 and (one["work_per_s"], one["detail"]) == (seen, None)

    with Queue.create(tmp_path / "again.db", queue.snapshot(), clock=clock.now) as again:
        q = validate(again.snapshot())
    assert q.rates.observed.tolist() == p.rates.observed.tolist()
    assert q.rates.rate.tolist() == pytest.approx(p.rates.rate.tolist())
    rates = "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,B,1,1\nn,A,1,1\n"
    rates += "".join(f"x,A,{k},{1.5 * speed}\n" for k in (3, 5))
    with queue.store.write() as connection:
        replace_cluster(connection, cluster(**{"rates.csv": rates}), clock.now())
    learned_after(600)
    p = validate(queue.snapshot())
    assert not p.rates.observed.any()
    of_x = p.rates.model == p.models.index("x")
    assert p.rates.rate[of_x].tolist() == pytest.approx([speed] * 2, rel=0.1)
    queue.close()
