"""Explanations: the price to beat, the smallest changes that really admit the job, and who would
lose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from advice_rounds import try_rounds
from builders import snapshot
from examples import count
from places import ROOT
from text_tables import columns

import allocator
from allocator.domain.problem import Problem
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.explain import Explanation, explain
from allocator.errors import UsageError
from allocator.solvers.base import SolveLimits

EXACT = SolveLimits(gap=0.0)
SHIPPED = ROOT / "data" / "snapshots"


def one_gpu() -> Snapshot:
    """One GPU, 300 s: "rich" completes 300/400 = 0.75 of its work, "poor" 300/600 = 0.5."""
    jobs = columns("job_id remaining_work max_gpus: rich 400 1; poor 600 1")
    return snapshot(jobs, [{"gpus": 1}])


def why(p: Snapshot, job: str) -> Explanation:
    return explain(p, job, SolveCommand(limits=EXACT))


def said(e: Explanation) -> list[str]:
    """The changes in words."""
    return [str(change) for change in e.changes]


def test_weight_is_tried_where_no_plan_that_serves_the_job_was_found() -> None:
    """Nodes of 5 GPUs and 1: next to "rich" with 4, the 2 GPUs that are left are on two nodes."""
    sizes = {"rich": 4, "poor": 2}
    jobs = [
        {"job_id": name, "min_gpus": k, "max_gpus": k, "placement": "packed", "weight": k}
        for name, k in sizes.items()
    ]
    nodes = [{"node": f"n{k}", "pool": "p0", "gpus": k} for k in (5, 1)]
    e = why(snapshot(jobs, [{"gpus": 6}], nodes=nodes), "poor")
    assert "weight" in [change.kind for change in e.changes]


def test_price_weight_and_loser_by_hand() -> None:
    """poor offers 0.5 per 1/12 GPU-hour = 6; the GPU goes at up to 9; any weight above 1.5 would
    do, or a second GPU; rich would lose 0.25."""
    e = why(one_gpu(), "poor")
    assert e.got["reason"] == "outranked"
    assert e.offered == pytest.approx(6.0)
    assert e.needed is not None and 6.0 - 1e-6 <= e.needed <= 9.0 + 1e-6
    weight, gpus = e.changes
    assert 1.5 < float(weight.values["jobs.poor.weight"]) < 1.502 and weight.before == {
        "jobs.poor.weight": "1"
    }
    assert str(gpus) == 'gpus 2 of pool "p0" instead of 1: it would get 1 x p0'
    assert e.losers == (
        '"rich": 1 -> 0 GPUs',
        'the plan as a whole: 0.25 of value less, with 1 GPU for "poor"',
    )


def test_the_smallest_budget_to_the_cent() -> None:
    """The second GPU costs 2.01 $/h more than the 2.01 spent; the place of a budget given with the
    command is there."""
    jobs = [{"min_gpus": 1, "max_gpus": 1, "weight": w} for w in (2, 1.5)]
    pools = [{"price_per_gpu_hour": 2.01}]
    e = why(snapshot(jobs, pools, config={"budget_per_hour": 3}), "j1")
    assert (
        e.got["reason"] == "budget"
        and said(e)[0] == "budget_per_hour 4.02 instead of 3: it would get 1 x p0"
    )
    e = explain(snapshot(jobs, pools), "j1", SolveCommand(budget=3.0, limits=EXACT))
    assert e.changes[0].values == {"--budget": "4.02"}
    jobs[1] |= {"min_gpus": 2, "max_gpus": 2}  # in place of the other one, which the guess keeps
    e = explain(snapshot(jobs, pools), "j1", SolveCommand(budget=3.0, limits=EXACT), tries=20)
    assert e.changes[0].values == {"--budget": "4.02"}


def test_unknown_job_and_plain_data() -> None:
    """A misspelt name is a usage error with the right one; the explanation is plain data and
    sentences."""
    with pytest.raises(UsageError, match='did you mean "poor"'):
        explain(one_gpu(), "por", SolveCommand())
    e = why(one_gpu(), "poor")
    assert e.to_dict()["changes"][1]["values"] == {"pools.p0.gpus": "2"}
    assert any("outranked" in line for line in e.lines())


def test_a_type_that_would_admit() -> None:
    """A job of a GPU type that no pool has."""
    rates = [{"gpu_type": t, "gpus": 1, "work_per_s": 1} for t in "AB"]
    e = why(snapshot([{"gpu_types": ["B"], "max_gpus": 1}], [{}], rates), "j0")
    assert said(e) == ["gpu_types B|A instead of B: it would get 1 x p0"]


def test_advice_comes_true_when_it_is_taken(tmp_path: Path) -> None:
    """Every objective, features drawn: each change is written into the files, and `solve` gives
    what was said."""
    seen = try_rounds(count(2, 200), 3, tmp_path)
    assert seen["true"] > 1 and not seen["false"] and not seen["no-op"], seen


def test_few_decisions_in_a_large_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 jobs: the weight is guessed so well that a handful of decisions finds and verifies it."""
    made, decide = Counter[str](), SolveCommand.decide

    def counted(self: SolveCommand, problem: Problem) -> Decision:
        made["decisions"] += 1
        return decide(self, problem)

    monkeypatch.setattr(SolveCommand, "decide", counted)
    e = explain(allocator.read_snapshot(SHIPPED / "medium"), "job-0003", SolveCommand())
    assert e.changes[0].kind == "weight" and made["decisions"] <= 5
    assert e.untried, "what was not tried is said"


def test_an_unknown_size_says_where_it_is_expected_from() -> None:
    """One model with two finished jobs, and one alone."""
    p = snapshot(
        [{"model": m, "max_gpus": 1} for m in "ab"],
        [{"gpus": 4}],
        [{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": 1.0} for m in "ab"],
        config={"sizes": "unknown", "interval_s": 300},
        finished=[{"model": "a", "total_work": 900.0}, {"model": "a", "total_work": 900.0}],
    )
    left = (300 + 2 * 900 * 2.718281828459045 ** (0.25**2 / 2)) / 3
    assert [why(p, f"j{i}").expected for i in (0, 1)] == [
        f"remaining work {left:.4g}, expected from 2 finished jobs of its model",
        "remaining work 300, expected from the work that it has done",
    ]
