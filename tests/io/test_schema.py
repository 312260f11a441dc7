"""The JSON Schemas describe what is read and written: checked by a small validator of the
keywords they use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from builders import problem
from everything import EVERYTHING

from allocator.domain.plan import Plan
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import TABLES, ColumnKind
from allocator.engine.decision import decide
from allocator.io.json_schema import result_schema, snapshot_schema
from allocator.io.plans import to_json
from allocator.io.snapshots import parse_snapshot

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
KNOWN = {
    "$schema",
    "$defs",
    "title",
    "description",
    "default",
    "contentMediaType",
    "anyOf",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "pattern",
    "minLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
}


def breaches(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Where a JSON value departs from a schema; only the keywords of KNOWN may appear."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    fits = [
        t
        for t in types
        if isinstance(value, TYPES[t]) and (t == "boolean" or not isinstance(value, bool))
    ]
    if types and not fits:
        yield f"{place}: {value!r} is not {types}"
        return
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{place}: {value!r} is not among the values"
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value) or len(value) < schema.get(
            "minLength", 0
        ):
            yield f"{place}: {value!r} does not match"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high or value <= schema.get("exclusiveMinimum", value - 1):
            yield f"{place}: {value!r} is out of range"
    elif isinstance(value, dict):
        yield from (
            f"{place}: {key} is missing" for key in schema.get("required", []) if key not in value
        )
        fields, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, part in value.items():
            if key in fields or isinstance(more, dict):
                yield from breaches(part, fields.get(key, more), f"{place}/{key}")
            elif not more:
                yield f"{place}: {key} is not known"
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from breaches(part, schema.get("items", {}), f"{place}/{i}")


@pytest.mark.parametrize("policy", ["greedy", "marginal"])
def test_plans_keep_their_schema(policy: str) -> None:
    """plan.json of the snapshot that uses everything, and of an empty round."""
    for round_ in (validate(parse_snapshot("everything", EVERYTHING)), problem()):
        document = json.loads(to_json(decide(round_, policy=policy)))
        assert list(breaches(document, result_schema())) == []


def test_schema_and_result_name_the_same_fields_in_the_same_order() -> None:
    """A field added to Plan must be described."""
    assert list(result_schema()["properties"]) == ["schema_version", *Plan.__dataclass_fields__]


def typed(file: str, name: str, text: str) -> Any:
    """A cell as the value that the schema describes."""
    kind = next((c.kind for c in TABLES[file].columns if c.name == name), ColumnKind.TEXT)
    if kind in (ColumnKind.NUMBER, ColumnKind.INTEGER):
        number = float(text)
        return int(number) if kind is ColumnKind.INTEGER else number
    return text in ("true", "yes") if kind is ColumnKind.BOOLEAN else text


def test_snapshots_keep_their_schema() -> None:
    """The snapshot that uses everything, row by row; and the schema sees what is wrong with a
    job.
    """
    snap = parse_snapshot("everything", EVERYTHING)
    document: dict[str, Any] = {"config.toml": snap.config}
    for file, table in snap.tables.items():
        rows = zip(*table.columns.values(), strict=True)
        document[file] = [
            {n: typed(file, n, c) for n, c in zip(table.columns, row, strict=True) if c}
            for row in rows
        ]
    assert list(breaches(document, snapshot_schema())) == []
    document["jobs.csv"][0] |= {
        "max_gpus": 0,
        "remaining_work": 0,
        "state": "gone",
        "sizes": "1|",
        "preemptible": 1,
    }
    assert len(list(breaches(document, snapshot_schema()))) == 5


def test_parameters_of_curves_are_described_by_kind() -> None:
    """models.csv: one definition for each kind."""
    definitions = snapshot_schema()["$defs"]
    assert list(breaches({"rate_1": 2, "parallel": 0.5}, definitions["parameters_amdahl"])) == []
    assert list(breaches({"rate_1": -1, "exponent": 0.5}, definitions["parameters_power"])) != []
