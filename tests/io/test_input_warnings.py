"""Inputs that look like slips: each is told, many equal ones in one line, and what is to be
refused is a fault.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import problem, snapshot, write_folder
from commands import Output, call
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster
from text_tables import columns

from allocator.controller.options import ControllerOptions
from allocator.controller.queue_cluster import QueueCluster
from allocator.controller.reporting.telemetry import Telemetry
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES, Column, ColumnKind
from allocator.domain.snapshot import Snapshot
from allocator.errors import Fault, InvalidInput, UsageError, folded
from allocator.io.json_schema import snapshot_schema
from allocator.io.snapshots import parse_snapshot
from allocator.queue.queue import Queue

KEYS = [(name, column) for name, columns in CONFIG_TABLES.items() for column in columns]
PAIR = {"amount": {"until_s": 9.0}, "until_s": {"amount": 9.0}}  # one needs the other
LISTED = [{"tenant": "red", "max_gpus": 2}, {"tenant": "blue"}]


def refused(snap: Snapshot) -> list[str]:
    """The faults of a snapshot that must have some."""
    with pytest.raises(InvalidInput) as caught:
        validate(snap)
    return [str(f) for f in caught.value.faults]


def value_of(column: Column) -> Any:
    """A value that the column may have."""
    lists: dict[ColumnKind, Any] = {ColumnKind.JSON: {}, ColumnKind.TEXTS: ("rack",)}
    return lists.get(column.kind, max(column.low, 1) if column.high > 1 else 0.5)


@pytest.mark.parametrize(("name", "column"), KEYS, ids=[f"{n}.{c.name}" for n, c in KEYS])
def test_every_key_of_a_config_table_has_its_rules(name: str, column: Column) -> None:
    """Of each key in the schema: it is accepted without a word, a value of another kind is a fault,
    a misspelt one is a warning that names it and counts for nothing, and the JSON Schema describes
    it."""
    more = PAIR.get(column.name, {})
    sound = problem(
        [{}], [{"market": "on_demand"}], config={name: {column.name: value_of(column)} | more}
    )
    assert sound.warnings == () and sound.settings[name][column.name] == value_of(column)
    wrong = refused(snapshot([{}], config={name: {column.name: "no"} | more}))
    assert (
        wrong == [f for f in wrong if f.startswith(f"config.toml: [{name}] {column.name} ")] != []
    )
    slip = column.name[:-1] + "_"
    odd = problem([{}], config={name: {slip: value_of(column)}})
    assert (
        odd.warnings
        == (
            (
                f'config.toml: [{name}] "{slip}" is not known and is ignored; did you mean '
                f'"{column.name}"?'
            ),
        )
        and odd.settings[name] == {}
    )
    described = snapshot_schema()["properties"]["config.toml"]["properties"][name]["properties"]
    assert described[column.name]["description"] == column.doc


@pytest.mark.parametrize("column", CONFIG, ids=lambda c: c.name)
def test_every_key_of_config_is_missed_when_misspelt(column: Column) -> None:
    """The same of the keys outside of tables."""
    slip = column.name[:-1] + "_"
    found = problem([{}], config={slip: 1}).warnings
    assert found == (
        f'config.toml: "{slip}" is not known and is ignored; did you mean "{column.name}"?',
    )


def test_keys_of_tables_are_located_and_tables_without_keys_say_so() -> None:
    """The line is that of the key, not of its table; [solver] and [sharing] have no keys."""
    files = {
        "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
        "pools.csv": b"pool,gpu_type,gpus\n",
        "rates.csv": b"model,gpu_type,gpus,work_per_s\n",
        "config.toml": (
            b"now_s = 1\n[longrun]\naverage_per_hour = 1\nwindw_s = 4\n[solver]\ngap = 1\n"
        ),
    }
    found = [
        w for w in validate(parse_snapshot("x", files)).warnings if w.startswith("config.toml:")
    ]
    assert found[:2] == [
        'config.toml:4: [longrun] "windw_s" is not known and is ignored; did you mean "window_s"?',
        'config.toml:6: [solver] "gap" is not known and is ignored',
    ]
    broken = files | {"config.toml": b"[longrun]\naverage_per_hour = -1\n"}
    assert refused(parse_snapshot("x", broken)) == [
        "config.toml:2: [longrun] average_per_hour -1 must be above 0"
    ]


def test_a_column_is_known_by_a_part_of_its_name() -> None:
    """`price` is what many would call price_per_gpu_hour."""
    assert problem([{}], [{"price": 3}]).warnings == (
        (
            'pools.csv:1: column "price" is not known and is ignored; did you mean'
            ' "price_per_gpu_hour"?'
        ),
    )


def test_a_tenant_that_is_not_listed_has_no_limits_and_is_told() -> None:
    """Job of `rde`, where red may have 2 GPUs: a warning, or a fault where tenants that are not
    listed are refused.
    """
    words = (
        'is not in tenants.csv, whose limits do not hold for it; did you mean "red", which has no'
        " jobs?"
    )
    assert problem([{"tenant": "rde"}], tenants=LISTED).warnings == (
        f'jobs.csv:2: tenant "rde" {words} (job "j0")',
    )
    both = problem([{"tenant": "rde"}, {"tenant": "red"}], tenants=LISTED).warnings
    assert len(both) == 1 and 'did you mean "red"?' in both[0]
    refuse = {"unknown_tenants": "refuse"}
    assert refused(
        snapshot([{"tenant": "rde"}, {"tenant": "blue"}], tenants=LISTED, config=refuse)
    ) == [
        'jobs.csv:2: tenant "rde" is not in tenants.csv; did you mean "red", which has no jobs?'
        ' (job "j0")'
    ]
    assert refused(snapshot([{}], config=refuse)) == [
        'jobs.csv:2: tenant "default" is not in tenants.csv (job "j0")'
    ]
    assert refused(snapshot([{}], config={"unknown_tenants": "refsue"})) == [
        'config.toml: unknown_tenants "refsue" is not known; did you mean "refuse"?'
    ]


def test_tenants_without_limits_or_jobs_are_no_noise() -> None:
    """Where no tenant has a limit, only a slip is told; listed tenants without jobs alone are
    nothing.
    """
    assert (
        problem([{"tenant": "new"}], tenants=[{"tenant": "vision"}, {"tenant": "team-1"}]).warnings
        == ()
    )
    assert problem([{"tenant": "team-2"}], tenants=[{"tenant": "team-1"}]).warnings == ()
    assert problem([{"tenant": "blue"}], tenants=LISTED).warnings == ()


def test_deadlines_in_hours_are_told() -> None:
    """1000 of work takes 125 s at 8 a second: a deadline after 24 hours meant, written 24, is told
    by the clock or by the work; 13 s, less than a tenth away from it, are not."""

    def told(**job: Any) -> tuple[str, ...]:
        return problem([job]).warnings

    assert told(submitted_s=1e9, deadline_s=24) == (
        (
            "jobs.csv:2: deadline_s 24 is not after submitted_s 1000000000; it is a time on the"
            ' same clock, in seconds (job "j0")'
        ),
    )
    assert told(deadline_s=24, remaining_work=10_000) == (
        (
            "jobs.csv:2: deadline_s 24 is 24 s after submitted_s, but the work takes 1250 s at the"
            ' best rate; deadline_s is a time on the clock of submitted_s, in seconds (job "j0")'
        ),
    )
    assert told(deadline_s=13) == told(
        deadline_s=24, remaining_work=10_000, max_gpus=8, state="held", submitted_s=-200
    )
    assert told(deadline_s=13) == ()


def test_running_jobs_without_a_rate_are_told() -> None:
    """On a type without a rate of its model, and beyond the largest measured size; not between
    measured sizes, nor where a curve knows."""

    def told(gpus: int, **more: Any) -> tuple[str, ...]:
        job = {"state": "running", "pool": "p1", "gpus": gpus}
        rates = columns("gpu_type gpus work_per_s: A 1 1; B 1 1; B 4 2")
        found = problem(
            [job], [{}, {"gpu_type": more.get("kind", "B")}], rates, models=more.get("models", [])
        ).warnings
        return tuple(w for w in found if w.startswith("jobs.csv"))

    words = 'where model "m" has no rate: it cannot stay there (job "j0")'
    assert told(3) == () and told(8) == (f'jobs.csv:2: runs on 8 GPUs of type "B", {words}',)
    assert told(1, kind="C") == (f'jobs.csv:2: runs on 1 GPUs of type "C", {words}',)
    curve = columns('model gpu_type kind parameters: m B power {"rate_1":1,"exponent":1}')
    assert told(8, models=curve) == ()


def test_reserved_pools_dearer_than_the_budget_are_told() -> None:
    """8 GPUs for 2 $/h each under a budget of 15; on demand they need not be used."""
    pool = {"price_per_gpu_hour": 2}
    assert problem([{}], [pool], config={"budget_per_hour": 15}).warnings == (
        (
            "pools.csv: the reserved GPUs cost 16 $/h together, more than budget_per_hour 15 of"
            " config.toml, which counts them: some of them stay idle"
        ),
    )
    assert problem([{}], [pool], config={"budget_per_hour": 16}).warnings == ()
    assert (
        problem([{}], [{**pool, "market": "on_demand"}], config={"budget_per_hour": 15}).warnings
        == ()
    )


def test_many_equal_faults_are_one_line() -> None:
    """Five are listed, six are one line with their lines and the first names; another message
    stays by itself.
    """

    def faults(n: int) -> list[Fault]:
        return [Fault("jobs.csv", 2 * i + 2, "is bad", f'job "j{i}"') for i in range(n)]

    other = Fault("jobs.csv", 3, "is worse")
    assert [text for _, text in folded([*faults(5), other])] == [
        *map(str, faults(5)),
        "jobs.csv:3: is worse",
    ]
    assert [text for _, text in folded([*faults(6), other])] == [
        'jobs.csv:2,4,6...12: is bad (6 jobs: "j0", "j1", "j2" ...)',
        "jobs.csv:3: is worse",
    ]
    rows = [Fault("rates.csv", line, "is bad") for line in (2, 3, 4, 9, 7, 6)]
    assert [text for _, text in folded(rows)] == ["rates.csv:2-4,6-7,9: is bad (6 rows)"]
    assert (
        str(InvalidInput(faults(9))) == 'jobs.csv:2,4,6...18: is bad (9 jobs: "j0", "j1", "j2" ...)'
    )
    assert len(InvalidInput(faults(9)).faults) == 9


def test_validate_folds_on_the_screen_and_lists_all_as_json(tmp_path: Path, capsys: Output) -> None:
    """30 jobs that want -1 GPUs: one line, exit code 3; 30 faults in JSON. A sound folder has
    none.
    """
    folder = write_folder(snapshot([{"max_gpus": -1}] * 30 + [{"weight": 0}]), tmp_path / "bad")
    for command in (("validate", folder), ("solve", folder)):
        code, out, err = call(capsys, *command)
        assert (code, out) == (3, "") and err.splitlines() == [
            'jobs.csv:2-31: max_gpus -1 is below 1 (30 jobs: "j0", "j1", "j2" ...)',
            'jobs.csv:32: weight 0 must be above 0 (job "j30")',
        ]
    code, out, err = call(capsys, f"validate {folder} --format json")
    told = json.loads(out)
    assert (code, told["valid"], len(told["faults"]), len(err.splitlines())) == (3, False, 31, 2)
    assert told["faults"][0] == {
        "file": "jobs.csv",
        "line": 2,
        "message": "max_gpus -1 is below 1",
        "subject": 'job "j0"',
    }
    sound = write_folder(snapshot([{"tenant": "rde"}], tenants=LISTED), tmp_path / "sound")
    code, out, err = call(capsys, f"validate {sound} --format json")
    told = json.loads(out)
    assert (
        code == 0
        and told["valid"]
        and told["faults"] == []
        and [f"warning: {w}" for w in told["warnings"]] == [err.strip()]
    )


def test_warnings_reach_solve_and_simulate(tmp_path: Path, capsys: Output) -> None:
    """On standard error and in plan.json."""
    folder = write_folder(snapshot([{"tenant": "rde"}], tenants=LISTED), tmp_path / "s")
    code, out, err = call(capsys, f"solve {folder} --format json --policy greedy")
    assert code == 0 and 'tenant "rde" is not in tenants.csv' in err
    assert [f"warning: {w}" for w in json.loads(out)["warnings"]] == err.splitlines()
    plain = snapshot([], tenants=LISTED)
    (tmp_path / "w").mkdir()
    write_folder(
        Snapshot("w", {}, {f: t for f, t in plain.tables.items() if f != "jobs.csv"}),
        tmp_path / "w",
    )
    (tmp_path / "w" / "workload.csv").write_text(
        "job_id,submitted_s,model,total_work,max_gpus,tenant\na,0,m,100,2,rde\n"
    )
    code, _, err = call(capsys, f"simulate {tmp_path / 'w'} --policy greedy")
    assert code == 0 and 'warning: workload.csv:2: tenant "rde" is not in tenants.csv' in err


def test_queues_refuse_a_tenant_that_is_not_listed_unless_asked(
    tmp_path: Path, capsys: Output
) -> None:
    """Submission and import refuse a misspelt tenant, at its line, and take it with a warning once
    the queue is told to; what was accepted goes on when it is refused again. Unknown keys of tables
    are no settings."""
    name = str(tmp_path / "q.db")
    Queue.create(name, cluster()).close()
    job = ["queue", "submit", name, *["--model", "m", "--total-work", "9", "--max-gpus", "1"]]
    job += ["--tenant", "rde", "--job-id", "a"]
    (tmp_path / "jobs.csv").write_text(
        "job_id,model,total_work,max_gpus,tenant\nb,m,9,1,blue\nc,m,9,1,rde\n"
    )
    table = ("queue", "import-csv", name, tmp_path / "jobs.csv")
    refused = (
        'tenant "rde" is not in tenants.csv, and the queue takes it without limits only after'
        ' `queue config --set unknown_tenants=warn`; did you mean "red"?'
    )
    warned = 'tenant "rde" is not in tenants.csv, whose limits do not hold for it'

    def set_to(value: str) -> None:
        assert call(capsys, "queue", "config", name, "--set", f"unknown_tenants={value}")[0] == 0

    for command, where in ((job, "submission"), (table, "jobs.csv:3")):
        code, _, err = call(capsys, *command)
        assert code == 3 and err.startswith(f"{where}: {refused}")
        set_to("warn")
        code, _, err = call(capsys, *command)
        assert code == 0 and err.startswith(f'warning: {where}: {warned}; did you mean "red"')
        assert call(capsys, "queue", "config", name, "--set", "unknown_tenants=")[0] == 0
    with Queue(name, clock=lambda: NOW) as queue:
        clock = SimulatedClock(NOW + 1e9)
        machines = SimulatedMachines({"a": 8, "b": 4}, clock, MachineBehaviour(rate=lambda _: 1.0))
        rounds = QueueCluster(
            queue.store,
            SimulatedExecutor(machines),
            clock,
            ControllerOptions(),
            Telemetry(clock.now),
        )
        assert len(rounds.observe().jobs) == 3
        with pytest.raises(
            UsageError, match=r'no setting "windw_s" in .longrun.; did you mean "window_s"'
        ):
            queue.configure(longrun={"average_per_hour": 1, "windw_s": 9})
