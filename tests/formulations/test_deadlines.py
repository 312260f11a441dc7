"""Deadlines: the policies edf and elasticflow by hand, the objective tardiness, promises
(docs/deadlines.md).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot, write_folder
from commands import Output, call
from hypothesis import given, settings, strategies as st
from worlds import workload

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.engine.promises import FIELDS, promise, promises
from allocator.errors import UsageError
from allocator.simulator import SimulationOptions, simulate
from formulations.deadlines.kept_bound import DatedJobs, bound_kept_deadlines
from formulations.deadlines.satisfactory_shares import DeadlineNeed, reservation, soonest

RUNS = {"state": "running", "pool": "p0"}


def gpus(p: Problem, policy: str) -> list[int]:
    return list(decide(p, policy=policy).jobs["gpus"])


def due(*pairs: tuple[float, float | None], **more: Any) -> list[dict[str, Any]]:
    """Jobs of so much work that are due at these times, submitted one after the other."""
    return [
        {"remaining_work": w, "deadline_s": d, "submitted_s": s - 9, **more}
        for s, (w, d) in enumerate(pairs)
    ]


def now(jobs: list[dict[str, Any]], total: int = 8, **config: Any) -> Problem:
    return problem(
        jobs, [{"gpus": total}], config={"now_s": 0, "interval_s": 300, "restart_s": 0, **config}
    )


def test_edf_gives_the_fewest_gpus_that_are_enough() -> None:
    """8 GPUs: 1,200 work in 300 s takes 4 GPUs and comes first, 1,200 in 600 s takes 2. Two are
    left: the first would need four more for its next size, the other grows to 4."""
    assert gpus(now(due((1200, 600), (1200, 300))), "edf") == [4, 4]


def test_elasticflow_refuses_what_would_break_a_promise() -> None:
    """1 GPU, work of 600 s due at 700 first, then 300 s due at 400: together 900 s by 700 cannot
    be; the first was there first and keeps its promise, although the other is due sooner. edf takes
    the other way."""
    p = now(due((600, 700), (300, 400), max_gpus=1), total=1)
    assert gpus(p, "elasticflow") == [1, 0]
    assert gpus(p, "edf") == [0, 1]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(1, 1500),
    st.integers(1, 900),
    st.integers(0, 120),
    st.sampled_from([0, 1, 2, 4]),
)
@settings(max_examples=200)
def test_a_share_does_the_work_in_time(
    free: list[int], work: int, by: int, pause: int, held: int
) -> None:
    """Followed slot by slot: never more than is free, and the work is done at done_s, by the
    deadline. Smaller sizes alone are not enough."""
    pauses = float(pause), float(pause)
    need = DeadlineNeed(
        np.array([1, 2, 4]), np.array([1.0, 1.8, 3.0]), float(work), float(by), *pauses, held
    )
    found = reservation(need, np.array(free), 100.0)
    if found is None:
        return
    assert (found.size <= np.array(free)[: len(found.size)]).all() and found.done_s <= by + 1e-6
    speed, done, before = {0: 0.0, 1: 1.0, 2: 1.8, 4: 3.0}, 0.0, held
    for t, size in enumerate(found.size.tolist()):
        seconds = min(100.0, found.done_s - 100.0 * t)
        done += speed[size] * max(0.0, seconds - (pause if size != before else 0.0))
        before = size
    assert done == pytest.approx(work)
    few = int(np.searchsorted(need.sizes, found.size.max()))
    fewer = dataclasses.replace(
        need, sizes=need.sizes[:few], rate=need.rate[:few], held=held * (held < found.size.max())
    )
    assert reservation(fewer, np.array(free), 100.0) is None
    assert soonest(need, np.array(free), 100.0) <= found.done_s + 1e-6


def test_long_jobs_do_not_lengthen_the_slots() -> None:
    """Two jobs of two slots each, one after the other, and one of weeks without a deadline: it is
    offered the time when it would be done behind them. Asked for one job alone the answer is the
    same."""
    p = now(due((500, 700), (500, 1300), (1e7, None), max_gpus=1), total=1)
    found = promises(p).jobs
    assert [a.promised for a in found] == [True, True, None] and found[1].done_s == pytest.approx(
        1100
    )
    assert found[2].earliest_s is not None and 1e7 + 1100 <= found[2].earliest_s < 1.1e7
    assert [promise(p, a.job_id) for a in found] == list(found)
    with pytest.raises(UsageError, match='did you mean "j0"'):
        promise(p, "j00")


def test_a_refused_job_is_promised_what_was_offered() -> None:
    """On random rounds: with earliest_s as its deadline each refused job is promised, and nobody
    loses a promise.
    """
    rng, refused = np.random.default_rng(4), 0
    for _ in range(6):
        jobs = due(
            *[(float(rng.integers(100, 5000)), float(rng.integers(200, 1500))) for _ in range(7)]
        )
        found = promises(now(jobs, total=4))
        for j, a in enumerate(found.jobs):
            if not a.promised:
                refused += 1
                assert a.earliest_s is not None
                rows = [{**row, "submitted_s": row["submitted_s"] - 99} for row in jobs]
                rows[j] = {**jobs[j], "deadline_s": a.earliest_s + 1e-3}
                again = [b.promised for b in promises(now(rows, total=4)).jobs]
                assert again == [b.promised or b is a for b in found.jobs]
    assert refused > 4


def test_promises_are_kept_by_elasticflow() -> None:
    """Nobody comes later, speeds are right: every deadline that is promised at the start is met
    in the simulator.
    """
    rng, kept = np.random.default_rng(1), 0
    for _ in range(3):
        jobs = [
            {
                "total_work": float(rng.integers(100, 9000)),
                "max_gpus": 8,
                "deadline_s": float(rng.integers(300, 4000)),
            }
            for _ in range(8)
        ]
        w = workload(jobs, gpus=8, config={"restart_s": 20})
        promised = {a.job_id for a in promises(w.problem).jobs if a.promised}
        ended = simulate(
            w, policy="elasticflow", options=SimulationOptions(prove_every=0)
        ).jobs.set_index("job_id")["finished_s"]
        limit = dict(zip(w.problem.jobs.job_id, w.problem.jobs.deadline_s.tolist(), strict=True))
        assert all(ended[j] <= limit[j] + 1e-6 for j in promised)
        kept += len(promised)
    assert kept > 5


def test_no_plan_keeps_more_than_the_bound() -> None:
    """Jobs of one or two slots, one GPU, slots of one second: every order tried; the bound is
    never below the best.
    """
    rng = np.random.default_rng(0)
    for _ in range(15):
        work, by = rng.integers(1, 4, 5).astype(float), rng.integers(1, 9, 5).astype(float)
        best = 0
        for order in itertools.permutations(range(5)):
            at, met = 0.0, 0
            for j in order:
                if at + work[j] <= by[j]:
                    at, met = at + work[j], met + 1
            best = max(best, met)
        five = np.arange(5)
        one, none = np.ones(5), np.zeros(5, np.int64)
        dated = DatedJobs(one, work, by, five, one, none, five, one, np.ones(1))
        bound = bound_kept_deadlines(dated)
        assert best - 1e-6 <= bound <= 5


def test_promises_where_nothing_can_run() -> None:
    """No jobs; a held job; a job that must keep too little to be in time: each said so."""
    assert promises(validate(snapshot([]))).jobs == ()
    fixed = {**RUNS, "gpus": 1, "preemptible": False, "remaining_work": 600, "deadline_s": 300}
    found = promises(
        now([fixed, {"state": "held", "deadline_s": 900}, {**fixed, "deadline_s": 700}])
    )
    assert [a.promised for a in found.jobs] == [False, False, True]
    assert "keeps what it holds" in found.jobs[0].reason and "held" in found.jobs[1].reason
    assert found.jobs[0].earliest_s == 600


def test_command(tmp_path: Path, capsys: Output) -> None:
    """`allocator promise` prints a table, and writes all fields."""
    jobs, config = due((600, 700), (300, 400), (50, None), max_gpus=1), {"now_s": 0}
    folder = write_folder(snapshot(jobs, [{"gpus": 1}], config=config), tmp_path / "s")
    _, out, _ = call(capsys, "promise", folder, "--out", tmp_path / "o")
    assert "1 of 2 deadlines can be promised together; no plan keeps more than 1" in out
    assert json.loads((tmp_path / "o" / "promises.json").read_text())["kept"] == 1
    assert (tmp_path / "o" / "promises.csv").read_text().splitlines()[0] == ",".join(FIELDS)
