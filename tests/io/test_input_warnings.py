"""Inputs that look like slips: each is told, many equal ones in one line, and what is to be
refused is a fault. The warnings themselves are in tests/domain/test_validation.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import problem, snapshot, write_folder
from commands import Output, call
from queues import cluster

from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES, Column, ColumnKind
from allocator.errors import InvalidInput, UsageError
from allocator.io.json_schema import snapshot_schema
from allocator.io.snapshots import parse_snapshot
from allocator.queue.queue import Queue

KEYS = [(name, column) for name, columns in CONFIG_TABLES.items() for column in columns]
PAIR = {"amount": {"until_s": 9.0}, "until_s": {"amount": 9.0}}  # one needs the other
LISTED = [{"tenant": "red", "max_gpus": 2}, {"tenant": "blue"}]


def value_of(column: Column) -> Any:
    """A value that the column may have."""
    lists: dict[ColumnKind, Any] = {ColumnKind.JSON: {}, ColumnKind.TEXTS: ("rack",)}
    return lists.get(column.kind, max(column.low, 1) if column.high > 1 else 0.5)


@pytest.mark.parametrize(("name", "column"), KEYS, ids=[f"{n}.{c.name}" for n, c in KEYS])
def test_every_key_of_a_config_table_has_its_rules(name: str, column: Column) -> None:
    """Of each key in the schema: it is accepted without a word, a value of another kind is a fault,
    a misspelt one is a warning that names it and counts for nothing, and the JSON Schema describes
    it."""
    key, more = column.name, PAIR.get(column.name, {})
    value, slip = value_of(column), key[:-1] + "_"
    sound = problem([{}], [{"market": "on_demand"}], config={name: {key: value} | more})
    assert sound.warnings == () and sound.settings[name][key] == value
    with pytest.raises(InvalidInput) as caught:
        problem([{}], config={name: {key: "no"} | more})
    assert all(str(f).startswith(f"config.toml: [{name}] {key} ") for f in caught.value.faults)
    odd = problem([{}], config={name: {slip: value}})
    known = f'config.toml: [{name}] "{slip}" is not known and is ignored; did you mean "{key}"?'
    assert (odd.warnings, odd.settings[name]) == ((known,), {})
    described = snapshot_schema()["properties"]["config.toml"]["properties"][name]["properties"]
    assert described[key]["description"] == column.doc


@pytest.mark.parametrize("column", CONFIG, ids=lambda c: c.name)
def test_every_key_of_config_is_missed_when_misspelt(column: Column) -> None:
    """The same of the keys outside of tables."""
    slip = column.name[:-1] + "_"
    (found,) = problem([{}], config={slip: 1}).warnings
    assert found.endswith(f'"{slip}" is not known and is ignored; did you mean "{column.name}"?')
    described = snapshot_schema()["properties"]["config.toml"]["properties"]
    assert described[column.name]["description"] == column.doc


def test_keys_of_tables_are_located_and_tables_without_keys_say_so() -> None:
    """The line is that of the key, not of its table; [solver] and [sharing] have no keys."""
    files = {
        "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
        "pools.csv": b"pool,gpu_type,gpus\n",
        "rates.csv": b"model,gpu_type,gpus,work_per_s\n",
        "config.toml": b"[longrun]\naverage_per_hour = 1\nwindw_s = 4\n[solver]\nx = 1\n",
    }
    found = validate(parse_snapshot("x", files)).warnings
    slip = '[longrun] "windw_s" is not known and is ignored; did you mean "window_s"?'
    assert f"config.toml:3: {slip}" in found
    assert 'config.toml:5: [solver] "x" is not known and is ignored' in found


def test_validate_folds_on_the_screen_and_lists_all_as_json(tmp_path: Path, capsys: Output) -> None:
    """30 jobs that want -1 GPUs: one line, exit code 3; 30 faults in JSON. A sound folder has
    none; its warnings are on standard error and in JSON, as in a plan.
    """
    folder = write_folder(snapshot([{"max_gpus": -1}] * 30 + [{"weight": 0}]), tmp_path / "bad")
    for command in ("validate", f"solve --out {tmp_path / 'plans'}"):
        code, out, err = call(capsys, f"{command} {folder}")
        assert (
            (code, out) == (3, "")
            and not (tmp_path / "plans").exists()
            and err.splitlines()
            == [
                'jobs.csv:2-31: max_gpus -1 is below 1 (30 jobs: "j0", "j1", "j2" ...)',
                'jobs.csv:32: weight 0 must be above 0 (job "j30")',
            ]
        )
    code, out, _ = call(capsys, f"validate {folder} --format json")
    told = json.loads(out)
    assert (code, told["valid"], len(told["faults"])) == (3, False, 31)
    first = {"file": "jobs.csv", "line": 2, "message": "max_gpus -1 is below 1"}
    assert told["faults"][0] == first | {"subject": 'job "j0"'}
    sound = write_folder(snapshot([{"tenant": "rde"}], tenants=LISTED), tmp_path / "sound")
    for command in ("validate", "solve --policy greedy"):
        code, out, err = call(capsys, f"{command} {sound} --format json")
        told = json.loads(out)
        assert code == 0 and [f"warning: {w}" for w in told["warnings"]] == [err.strip()]
        assert told.get("valid", True) and told.get("faults", []) == []


def test_queues_refuse_a_tenant_that_is_not_listed_unless_asked(
    tmp_path: Path, capsys: Output
) -> None:
    """Submission and import refuse a misspelt tenant, at its line, and take it with a warning once
    the queue is told to; what was accepted goes on when it is refused again. Unknown keys of tables
    are no settings."""
    name, table = tmp_path / "q.db", tmp_path / "jobs.csv"
    Queue.create(name, cluster()).close()
    table.write_text("job_id,model,total_work,max_gpus,tenant\nb,m,9,1,blue\nc,m,9,1,rde\n")
    job = "--model m --total-work 9 --max-gpus 1 --tenant rde --job-id a"
    for command, where in (
        (f"queue submit {name} {job}", "submission"),
        (f"queue import-csv {name} {table}", "jobs.csv:3"),
    ):
        code, _, err = call(capsys, command)
        assert code == 3 and err.startswith(f'{where}: tenant "rde" is not in tenants.csv, and the')
        assert call(capsys, f"queue config {name} --set unknown_tenants=warn")[0] == 0
        code, _, err = call(capsys, command)
        assert code == 0 and err.startswith(f'warning: {where}: tenant "rde" is not in tenants.csv')
        assert call(capsys, f"queue config {name} --set unknown_tenants=")[0] == 0
    code, out, _ = call(capsys, f"run {name}")
    assert code == 0 and len(out.splitlines()) == 3
    with Queue(name) as queue, pytest.raises(UsageError, match=r'"windw_s" in .longrun.; did you'):
        queue.configure(longrun={"average_per_hour": 1, "windw_s": 9})
