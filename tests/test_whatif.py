"""A snapshot with other values, and the command that decides it beside the snapshot as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Output, call

import allocator
from allocator.domain.changes import changed
from allocator.errors import InvalidInput, UsageError

SHIPPED = Path(__file__).resolve().parent.parent / "data" / "snapshots"
DEMO = SHIPPED / "demo"


def test_cells_and_settings_are_changed_and_nothing_else() -> None:
    """A number, a list, a default; the snapshot that was given is as it was; changed back, the digest is the same."""
    before = allocator.read_snapshot(DEMO)
    digest = before.digest
    after = changed(before, {"pools.a100.gpus": 12, "jobs.rank.sizes": [1, 2], "budget_per_hour": "24", "now_s": None})
    was, now = allocator.validate(before), allocator.validate(after)
    rank = now.jobs.job_id.index("rank")
    assert now.pools.gpus.tolist() == [12, 8] and was.pools.gpus.tolist() == [8, 8]
    assert after.tables["jobs.csv"].columns["sizes"][rank] == "1|2" and now.budget_per_hour == 24
    assert len(now.jobs) == 12 and before.digest == digest != after.digest
    assert changed(changed(before, {"pools.a100.gpus": 12}), {"pools.a100.gpus": 8}).digest == digest


def test_rows_that_were_not_there() -> None:
    """A new pool with what it needs; limits of a tenant of the jobs in a snapshot without tenants.csv."""
    before = allocator.read_snapshot(DEMO)
    more = allocator.validate(changed(before, {"pools.spot.gpu_type": "A100", "pools.spot.gpus": 4}))
    assert more.pools.pool == ("a100", "v100", "spot") and more.pools.gpus.tolist() == [8, 8, 4]
    limited = allocator.validate(changed(before, {"tenants.default.max_gpus": 4}))
    assert limited.tenants.max_gpus.tolist() == [4]


@pytest.mark.parametrize(("place", "says"), [
    ("pools.a10.gpus", 'did you mean "a100"'), ("pools.a100.gpu", 'did you mean "gpus"'),
    ("budget_per_huor", 'did you mean "budget_per_hour"'), ("tenants.nobody.max_gpus", "no job is of a tenant"),
    ("rates.bert.work_per_s", "write a setting"), ("horizon.round", 'did you mean "horizon.rounds"'), ("", "no"),
    ("jobs.new.model", "submitted_s, remaining_work, max_gpus")])
def test_places_that_do_not_exist(place: str, says: str) -> None:
    """Each is named, with the nearest that does, and nothing is decided."""
    with pytest.raises(UsageError, match=says):
        changed(allocator.read_snapshot(DEMO), {place: 3})


def test_values_are_checked_as_if_the_files_had_them() -> None:
    """File, line, column, value, rule and job; all faults at once."""
    with pytest.raises(InvalidInput) as stop:
        allocator.validate(changed(allocator.read_snapshot(DEMO), {"jobs.rank.weight": -3, "pools.a100.gpus": "x"}))
    assert [str(f) for f in stop.value.faults] == ['jobs.csv:11: weight -3 must be above 0 (job "rank")',
                                                   'pools.csv:2: gpus "x" is not a whole number (pool "a100")']


def test_both_plans_side_by_side(capsys: Output, tmp_path: Path) -> None:
    """Money binds on the demo: four more GPUs change nothing, six more dollars do. What --out wrote decides alike."""
    code, out, err = call(capsys, "whatif", DEMO, "--set", "pools.a100.gpus=12")
    assert (code, err) == (0, "") and out.endswith("No job gets anything else.\n")
    code, out, _ = call(capsys, "whatif", DEMO, "--set", "budget_per_hour=24", "--set", "jobs.rank.weight=2", "--out",
                        tmp_path / "more")
    assert code == 0 and "jobs that differ (1 of 12)" in out and "The plan is worth 0.8 more." in out
    told = json.loads(call(capsys, "whatif", DEMO, "--set", "budget_per_hour=24", "--format", "json")[1])
    assert told["set"] == {"budget_per_hour": "24"} and told["before"]["objective_value"] == pytest.approx(7.14)
    assert told["after"]["budget"]["per_hour"] == 24
    assert json.loads(call(capsys, "solve", tmp_path / "more", "--format", "json")[1])["objective_value"] == \
        pytest.approx(7.94)


def test_a_round_without_plan_may_have_one_with_other_values(capsys: Output) -> None:
    """That is what somebody asks for whose rules clash; and a change after which rules clash is exit code 4."""
    clash = SHIPPED / "infeasible-guarantee-above-quota"
    code, out, err = call(capsys, "whatif", clash, "--set", "tenants.red.max_gpus=6")
    assert code == 0 and err.startswith("as it is: no plan keeps all hard rules") and "with it" in out
    code, out, err = call(capsys, "whatif", DEMO, "--set", "tenants.default.max_gpus=1", "--set",
                          "tenants.default.guaranteed_gpus=4")
    assert (code, out) == (4, "") and "max_gpus" in err


@pytest.mark.parametrize("words", [[], ["--set", "foo"], ["--set", "=3"], ["--set", "a.b=3"]])
def test_wrong_calls(capsys: Output, words: list[str]) -> None:
    """Exit code 2, nothing on standard output."""
    code, out, err = call(capsys, "whatif", DEMO, *words)
    assert (code, out) == (2, "") and err
