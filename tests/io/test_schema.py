"""The JSON Schemas describe what is read and written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from builders import problem
from everything import EVERYTHING
from everything_workload import EVERY_WORKLOAD
from jsonschema import Draft202012Validator

from allocator.domain.plan import Plan
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import TABLES, ColumnKind, TableSchema
from allocator.domain.schema.workload_columns import WORKLOAD_TABLES
from allocator.domain.snapshot import Snapshot
from allocator.engine.decision import decide
from allocator.io.folders import parse_folder
from allocator.io.json_schema import result_schema, snapshot_schema, workload_schema
from allocator.io.plans import to_json
from allocator.io.snapshots import parse_snapshot
from allocator.io.workloads import FOLDER

SCHEMAS = [snapshot_schema(), workload_schema(), result_schema()]
SAY_ONLY = {"$schema", "$defs", "title", "description", "default", "contentMediaType"}


def breaches(value: Any, schema: dict[str, Any]) -> list[str]:
    """Where a JSON value departs from a schema."""
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def keywords(schema: Any) -> Iterator[str]:
    """The keywords of a schema and of those in it."""
    if isinstance(schema, Mapping):
        yield from schema
        for word, part in schema.items():
            for inner in part.values() if word in ("properties", "$defs") else [part]:
                yield from keywords(inner)


@pytest.mark.parametrize("schema", SCHEMAS, ids=["snapshot", "workload", "result"])
def test_schemas_are_sound(schema: dict[str, Any]) -> None:
    """Each is strict JSON that keeps the draft it names, and no keyword is misspelt."""
    json.dumps(schema, allow_nan=False)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)
    assert set(keywords(schema)) <= {*Draft202012Validator.VALIDATORS, *SAY_ONLY}


@pytest.mark.parametrize("policy", ["greedy", "marginal"])
def test_plans_keep_their_schema(policy: str) -> None:
    """plan.json of the snapshot that uses everything, and of an empty round."""
    for round_ in (validate(parse_snapshot("everything", EVERYTHING)), problem()):
        document = json.loads(to_json(decide(round_, policy=policy)))
        assert breaches(document, result_schema()) == []


def test_schema_and_result_name_the_same_fields_in_the_same_order() -> None:
    """A field added to Plan must be described."""
    assert list(result_schema()["properties"]) == ["schema_version", *Plan.__dataclass_fields__]


def document_of(snap: Snapshot, tables: Mapping[str, TableSchema]) -> dict[str, Any]:
    """A folder as the values that its schema describes, row by row."""
    document: dict[str, Any] = {"config.toml": snap.config}
    for file, table in snap.tables.items():
        kind = {c.name: c.kind for c in tables[file].columns}
        document[file] = [
            {
                name: typed(kind.get(name), cell)
                for name, cell in zip(table.columns, row, strict=True)
                if cell
            }
            for row in zip(*table.columns.values(), strict=True)
        ]
    return document


def typed(kind: ColumnKind | None, cell: str) -> Any:
    """A cell as the value that the schema describes."""
    if kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        return float(cell)
    return cell in ("true", "yes") if kind is ColumnKind.BOOLEAN else cell


def test_folders_keep_their_schema() -> None:
    """The snapshot and the workload that use everything, row by row; and the schema sees what is
    wrong with a job. There is one definition of parameters for each kind of curve.
    """
    work = document_of(parse_folder("all", EVERY_WORKLOAD, FOLDER), WORKLOAD_TABLES)
    assert breaches(work, workload_schema()) == []
    document = document_of(parse_snapshot("everything", EVERYTHING), TABLES)
    assert breaches(document, snapshot_schema()) == []
    wrong = {"max_gpus": 0, "remaining_work": 0, "state": "gone", "sizes": "1|", "preemptible": 1}
    wrong |= {"gpu_types": "A|", "min_gpus": 1e8}
    document["jobs.csv"][0] |= wrong
    assert len(breaches(document, snapshot_schema())) == len(wrong)
    power = snapshot_schema()["$defs"]["parameters_power"]
    assert breaches({"rate_1": 1, "exponent": 0.5}, power) == []
    assert breaches({"rate_1": -1, "exponent": 0.5}, power) != []
