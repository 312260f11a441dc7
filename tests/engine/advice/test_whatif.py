"""A snapshot with other values, and the command that compares it with the snapshot as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import snapshot
from commands import Output, call
from examples import series
from places import FAULTY, ROOT

import allocator
from allocator.domain.changes import changed
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decided import Decision
from allocator.engine.whatif import AS_IS, WITH, compare
from allocator.errors import UsageError
from allocator.solvers.base import SolveLimits
from formulations.objectives import BUILT_IN as OBJECTIVES

SHIPPED = ROOT / "data" / "snapshots"
DEMO = SHIPPED / "demo"


def test_cells_and_settings_are_changed_and_nothing_else() -> None:
    """A number, a list, a default; the snapshot that was given is as it was; changed back, the
    digest is the same."""
    before = allocator.read_snapshot(DEMO)
    digest = before.digest
    after = changed(
        before,
        {"pools.a100.gpus": 12, "jobs.rank.sizes": [1, 2], "budget_per_hour": "24", "now_s": None},
    )
    was, now = allocator.validate(before), allocator.validate(after)
    rank = now.jobs.job_id.index("rank")
    assert now.pools.gpus.tolist() == [12, 8] and was.pools.gpus.tolist() == [8, 8]
    assert after.tables["jobs.csv"].columns["sizes"][rank] == "1|2" and now.budget_per_hour == 24
    assert len(now.jobs) == 12 and before.digest == digest != after.digest
    assert (
        changed(changed(before, {"pools.a100.gpus": 12}), {"pools.a100.gpus": 8}).digest == digest
    )


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("pools.a10.gpus", 'did you mean "a100"'),
        ("budget_per_huor", 'did you mean "budget_per_hour"'),
        ("tenants.nobody.max_gpus", "no job is of a tenant"),
        ("rates.bert.work_per_s", "write a setting"),
        ("jobs.new.model", "submitted_s, remaining_work, max_gpus"),
    ],
)
def test_places_that_do_not_exist(place: str, says: str) -> None:
    """Each is named, with the nearest that does, and nothing is decided."""
    with pytest.raises(UsageError, match=says):
        changed(allocator.read_snapshot(DEMO), {place: 3})


def test_both_plans_side_by_side(capsys: Output, tmp_path: Path) -> None:
    """Money binds on the demo: four more GPUs change nothing, six more dollars do. What --out wrote
    decides alike."""
    code, out, err = call(capsys, "whatif", DEMO, "--set", "pools.a100.gpus=12")
    assert (code, err) == (0, "") and "No job gets anything else.\n" in out
    assert "  budget_per_hour " in out and "pools.a100.gpus has no price" in out
    code, out, _ = call(
        capsys,
        "whatif",
        DEMO,
        "--set",
        "budget_per_hour=24",
        "--set",
        "jobs.rank.weight=2",
        "--out",
        tmp_path / "more",
    )
    assert code == 0 and "jobs that differ (1 of 12)" in out and "jobs: 1 grows\n" in out
    assert out.startswith("1 job grows: the round does ")
    assert "dollars: 2 $/h more (18 -> 20 per hour)" in out
    assert "value: 0.4 more, both plans valued with the other values" in out
    told = json.loads(
        call(capsys, "whatif", DEMO, "--set", "budget_per_hour=24", "--format", "json")[1]
    )
    assert told["set"] == {"budget_per_hour": "24"} and told["before"][
        "objective_value"
    ] == pytest.approx(7.14)
    assert json.loads(call(capsys, "solve", tmp_path / "more", "--format", "json")[1])[
        "objective_value"
    ] == pytest.approx(7.94)


def decided(words: dict[str, object], objective: str = "progress") -> Decision:
    """The decision about the demo with other values."""
    command = SolveCommand(objective=objective, limits=SolveLimits(gap=0.0))
    return command.decide(command.problem(changed(allocator.read_snapshot(DEMO), words), {}))


@pytest.mark.parametrize("objective", series(list(OBJECTIVES), 6))
def test_more_never_has_less_value_and_less_never_more(objective: str) -> None:
    """Under some objectives the values themselves depend on the GPUs: with 12 instead of 8 the
    plan once had 1.947 less. Both plans are valued in one scale: a limit that is lifted costs
    nothing, one that is cut gains nothing, whatever the objective."""
    now, wide = (
        decided({}, objective),
        decided({"pools.a100.gpus": 12, "budget_per_hour": 30}, objective),
    )
    more, less = compare(now, wide), compare(wide, now)
    assert (more.scale, less.scale) == (WITH, AS_IS)
    slip = 1e-6 * max(1.0, abs(now.value), abs(wide.value))
    assert more.value[1] >= more.value[0] - slip and less.value[1] <= less.value[0] + slip
    assert (less.work_h, less.dollars) == (more.work_h[::-1], more.dollars[::-1])


def test_hours_dollars_and_jobs_by_hand() -> None:
    """A second GPU at 2 $/h: the job that waited starts; an interval of 300 s is 1/12 hour of its
    work, as requested; 1000 units at 1 a second are left, 0.278 h."""
    jobs = [{"max_gpus": 1, "weight": w} for w in (2, 1)]
    command = SolveCommand(limits=SolveLimits(gap=0.0))
    source = snapshot(jobs, [{"gpus": 1, "price_per_gpu_hour": 2}])
    before, after = (
        command.decide(command.problem(changed(source, {"pools.p0.gpus": n}), {})) for n in (1, 2)
    )
    c = compare(before, after)
    assert c.work_h == pytest.approx((1 / 12, 2 / 12)) and c.dollars == (2.0, 4.0)
    assert [(job.job_id, job.what, job.left_h_before) for job in c.jobs] == [("j1", "starts", None)]
    assert c.jobs[0].left_h_after == pytest.approx(1000 / 3600)
    assert next(c.lines()) == "jobs: 1 starts"


def test_a_round_without_plan_may_have_one_with_other_values(capsys: Output) -> None:
    """That is what somebody asks for whose rules clash; and a change after which rules clash is
    exit code 4."""
    clash = FAULTY / "infeasible-guarantee-above-quota"
    code, out, err = call(capsys, "whatif", clash, "--set", "tenants.red.max_gpus=6")
    assert (
        code == 0 and err.startswith("as it is: no plan keeps all hard rules") and "with it" in out
    )
    code, out, err = call(
        capsys,
        "whatif",
        DEMO,
        "--set",
        "tenants.default.max_gpus=1",
        "--set",
        "tenants.default.guaranteed_gpus=4",
    )
    assert (code, out) == (4, "") and "max_gpus" in err
