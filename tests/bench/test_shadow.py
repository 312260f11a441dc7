"""A shadow (`allocator shadow`): figures by hand, rounds decided again, kills, gaps, no write."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Output, call
from examples import series
from fakes.slurm_commands import FakeSlurm
from places import ROOT
from waiting import wait_for

import allocator
from allocator.bench.shadow.judging import judge
from allocator.bench.shadow.record import GAP, ROUND, Look, Record, summarise
from allocator.bench.shadow.watching import Watch, observer
from allocator.clusters.adapter import ClusterUnreachable, ObserveRequest
from allocator.errors import UsageError
from allocator.io.snapshots import write_snapshot

HOUR = 3600.0


@dataclass
class Changing:
    """A cluster and its clock: each look gets the next of `states`; an error is raised."""

    states: list[Any]
    now_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    def observe(self) -> tuple[allocator.Snapshot, tuple[str, ...]]:
        state = self.states.pop(0)
        self.now_s += 60.0  # a look takes a minute, which moves no tick
        if isinstance(state, Exception):
            raise state
        return state, ("a note",)


def cluster(*jobs: allocator.Job, gpus: int = 4) -> allocator.Snapshot:
    """Rigid jobs at 1 work/s for each GPU, on GPUs at 2 $/h."""
    return allocator.Problem.build(
        jobs=jobs,
        pools=[allocator.Pool("a", "A100", gpus, price_per_gpu_hour=2.0)],
        rates=[allocator.Rate("m", "A100", k, float(k)) for k in (1, 2, 4)],
        now_s=0.0,
    ).snapshot


def job(name: str, gpus: int, hours: float, runs: bool = False) -> allocator.Job:
    """A job of so many GPUs for so many hours, which may not be stopped."""
    held: dict[str, Any] = {"state": "running", "pool": "a", "gpus": gpus} if runs else {}
    sizes: dict[str, Any] = {"min_gpus": gpus, "max_gpus": gpus, "preemptible": False}
    return allocator.Job(name, "m", remaining_work=gpus * hours * HOUR, **sizes, **held)


def watch(record: Path, world: Changing, **options: Any) -> Watch:
    return Watch(Record(record), "fake", world.observe, world, HOUR, **options)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record by hand. Hour 0: `long` runs on 2 of 4 GPUs, a tenth of its work in the hour, value
    .1; `short` fits beside it and would be done in the hour, value 1; `wide` needs all GPUs. Hour
    1: no answer. Hour 2: `short` runs, too, and `long` has 8 hours left, value .125. The shadow is
    off, and hour 7: a snapshot that breaks a rule.
    """
    record = tmp_path_factory.mktemp("shadow") / "tiny.db"
    world = Changing(
        [
            cluster(job("long", 2, 10, runs=True), job("short", 2, 1), job("wide", 4, 9)),
            ClusterUnreachable("squeue: no answer within 20 s"),
            cluster(job("long", 2, 8, True), job("short", 2, 1, True), job("wide", 4, 9)),
        ]
    )
    assert watch(record, world).run(3) == 2
    assert world.slept_s == [HOUR - 60, HOUR - 60]
    broken = cluster(job("a", 1, 1)).with_columns("pools.csv", gpus=["-1"])
    assert watch(record, Changing([broken], 7 * HOUR)).run(1) == 0
    return record


def test_figures_by_hand(tiny: Path) -> None:
    """Hour 0 stands for 1 hour, hour 2 for two intervals and not for the five until the next look:
    2 + 2 x 4 of 3 x 4 GPU-hours in use, 2 idle that `short` could have used, at 2 $ each.
    """
    found = summarise(Record(tiny).looks())
    assert [found[name] for name in ("rounds", "gaps", "faults")] == [2, 1, 1]
    assert (found["hours"], found["unseen_hours"], found["every_s"]) == (3.0, 5.0, HOUR)
    hours = [found[f"{name}_gpu_hours"] for name in ("gpus", "used", "usable")]
    assert hours == [12.0, 10.0, 2.0] and found["usable_dollars"] == 4.0
    assert found["longest_passed_over"] == {"short": 1.0} and found["passed_over"] == 1
    rounds = [look for look in found["looks"] if look["kind"] == ROUND]
    assert [r["regret"] for r in rounds] == pytest.approx([1.0, 0.0])
    assert [r["cluster_value"] for r in rounds] == pytest.approx([0.1, 1.125])
    assert [r["cost_per_hour"] - r["cluster_cost_per_hour"] for r in rounds] == [4.0, 0.0]
    assert found["regretted"] == 1 and found["broken"] == 0
    assert found["regret_percent"] == pytest.approx(100 * 1.0 / 1.225)
    assert found["regret_percent"] <= found["bound_percent"] + 1e-9
    assert (found["rigid_percent"], found["assumed_percent"]) == (100.0, 0.0)


def test_what_it_says(tiny: Path, tmp_path: Path, capsys: Output) -> None:
    """One sentence first, no figure without its assumption, a page, and a row for each look."""
    page = tmp_path / "page.html"
    code, out, err = call(capsys, f"shadow report {tiny} --out {page}")
    assert code == 0 and str(page) in err
    assert out.startswith(
        "In 3 h beside fake, 2 of 12 GPU-hours (16.7 %) were idle although waiting jobs"
        " could have used them, 1 job waited while others of lower value ran, and decisions made"
        " here would have been worth more in 1 of 2 rounds (+82 % over all).\n"
    )
    written = page.read_text()
    table = out.partition("assuming\n")[2].splitlines()
    assert len(table) == 9 and "short 60 min" in out
    for line in table:
        assumed = line.split("  ")[-1].strip()
        assert len(assumed) > 10 and assumed.split(";")[0] in written
    assert "<svg" in written and (tmp_path / "pictures" / "shadow.svg").exists()
    assert json.loads(call(capsys, f"shadow report {tiny} --format json")[1])["rounds"] == 2


def test_what_breaks_a_rule_is_counted_and_not_regretted(tmp_path: Path) -> None:
    """A tenant has more GPUs than it may: the plan repairs that, and is worth less."""
    snapshot = allocator.Problem.build(
        jobs=[
            allocator.Job(name, "m", 90_000, max_gpus=2, state="running", pool="a", gpus=2)
            for name in "ab"
        ],
        pools=[allocator.Pool("a", "A100", 4)],
        rates=[allocator.Rate("m", "A100", k, float(k)) for k in (1, 2)],
        tenants=[allocator.Tenant("default", max_gpus=3)],
    ).snapshot
    watch(tmp_path / "s.db", Changing([snapshot])).run(1)
    found = summarise(Record(tmp_path / "s.db").looks())
    assert (found["broken"], found["regretted"]) == (1, 0) and found["looks"][0]["regret"] < 0
    assert found["usable_dollars"] is None and "max_gpus" in found["looks"][0]["broken"][0]


def test_what_is_refused(tiny: Path, tmp_path: Path, capsys: Output) -> None:
    """A record of another cluster, of no cluster, or none."""
    with pytest.raises(UsageError, match="is a record of fake, not of slurm"):
        Watch(Record(tiny), "slurm", Changing([]).observe, Changing([]), HOUR)
    for words, why in (
        (f"report {tmp_path}/none.db", "there is no record"),
        (f"watch nowhere {tmp_path}/a.db", "unknown cluster"),
    ):
        code, _, err = call(capsys, f"shadow {words}")
        assert code in (1, 2) and why in err


@pytest.mark.parametrize("seed", series(range(6), 0))
def test_killed_at_any_moment(seed: int, tmp_path: Path) -> None:
    """Beside a Slurm whose jobs come, start and end, and which does not answer for a while, the
    watch is killed after looks and during one: no look is lost or written twice, only reading calls
    were made, and each recorded round is decided again as it was. SIGTERM ends it with exit code 0.
    """
    rng, slurm, path = random.Random(seed), FakeSlurm(tmp_path), tmp_path / "shadow.db"
    argv = ("-P", "-m", "allocator", "shadow", "watch", "slurm", str(path), "--every", "30s")
    environment = {**slurm.environment, "PYTHONPATH": str(ROOT)}
    before: list[Look] = []
    for turn in range(5):
        slurm.recorded.add_job(
            2 + turn, tres_per_node=f"gres/gpu:{rng.choice((1, 2, 4))}", submit_time=1795319769
        )
        slurm.change(job_state=[rng.choice(("RUNNING", "COMPLETED"))])
        slurm.switch(is_up=turn != 2)
        calls = slurm.count_calls()
        child = subprocess.Popen(
            [sys.executable, *argv], env=environment, stderr=subprocess.DEVNULL
        )

        try:
            wait_for(partial(_has_come, path, len(before) + (turn != 1), slurm, calls + 1))
            os.kill(child.pid, signal.SIGTERM if turn == 4 else signal.SIGKILL)
            assert child.wait() == (0 if turn == 4 else -signal.SIGKILL)
        finally:
            child.kill()
            child.wait()
        after = list(Record(path).looks(whole=True))
        assert after[: len(before)] == before
        assert [look.number for look in after] == list(range(1, len(after) + 1))
        before = after
    kinds = {look.kind for look in before}
    assert kinds == {ROUND, GAP} and slurm.writes() == set()
    assert len({look.snapshot for look in before}) > 2
    for look in before:
        if look.kind == ROUND:
            assert judge(look.snapshot or b"", "mip") == (look.said, look.plan)
        else:
            assert "Unable to contact slurm controller" in look.said


def _has_come(path: Path, looks: int, slurm: FakeSlurm, calls: int) -> bool:
    return slurm.count_calls() >= calls and sum(1 for _ in Record(path).looks()) >= looks


def test_a_folder_that_somebody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot of each look counts; a folder that is gone for a moment is a gap."""
    folder, world = tmp_path / "now", Changing([])
    write_snapshot(cluster(job("a", 1, 1), job("b", 4, 1)), folder)
    look = observer(str(folder), ObserveRequest(), [])
    shadow = Watch(Record(tmp_path / "s.db"), "now", look, world, 60.0)
    assert shadow.run(1) == 1
    folder.rename(tmp_path / "gone")
    assert shadow.run(1) == 0
    kinds = [(one.kind, one.every_s) for one in Record(tmp_path / "s.db").looks()]
    assert kinds == [(ROUND, 60.0), (GAP, 60.0)]
    (tmp_path / "ray").mkdir()
    monkeypatch.chdir(tmp_path)  # the name of a kind is no folder
    with pytest.raises(ClusterUnreachable):
        observer("ray", ObserveRequest({"address": "http://127.0.0.1:1"}), [])()
