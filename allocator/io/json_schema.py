"""Derive the JSON Schema (draft 2020-12) of snapshots, workloads and plans.

The schemas are derived from the columns and fields that the code itself uses.
"""

import inspect
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from allocator.domain.objectives import MOST_LEVELS, REGISTRY
from allocator.domain.plan import SCHEMA_VERSION, BudgetPlan, JobPlan, NodePlan, Plan, PoolPlan
from allocator.domain.schema.columns import (
    CONFIG,
    CONFIG_TABLES,
    CURVE_PARAMETERS,
    MOST_INTEGER,
    MOST_NUMBER,
    RULE,
    TABLES,
    Column,
    ColumnKind,
    TableSchema,
)
from allocator.domain.schema.workload_columns import WORKLOAD_CONFIG, WORKLOAD_TABLES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {ColumnKind.INTEGER: "integer", ColumnKind.NUMBER: "number", ColumnKind.BOOLEAN: "boolean"}
PLAIN = {str: "string", int: "integer", float: "number", NoneType: "null"}
IN_TOML: Mapping[ColumnKind, Mapping[str, Any]] = {
    ColumnKind.JSON: {"type": "object"},
    ColumnKind.TEXTS: {"type": "array", "items": {"type": "string"}},
}
PATTERNS = {
    ColumnKind.INTEGERS: r"^\s*[0-9]+(\s*\|\s*[0-9]+)*\s*$",
    ColumnKind.TEXTS: r"^[^|]+(\|[^|]+)*$",
}

Schema = dict[str, Any]


def snapshot_schema() -> Schema:
    """Return the schema of a snapshot folder as one object.

    The object maps each file name to its rows. Each row is an object of its non-empty cells as
    values.
    """
    return _folder(
        "snapshot",
        "A folder of CSV files and config.toml: the state of a cluster at one moment.",
        TABLES,
        CONFIG,
    )


def workload_schema() -> Schema:
    """Return the schema of a workload folder, in the form of `snapshot_schema`."""
    return _folder(
        "workload",
        "A folder of CSV files and config.toml: every job that is ever submitted, the cluster, "
        "and how it changes.",
        WORKLOAD_TABLES,
        WORKLOAD_CONFIG,
    )


def _folder(
    title: str, doc: str, tables: Mapping[str, TableSchema], config: tuple[Column, ...]
) -> Schema:
    files: Schema = {"config.toml": _config(config)}
    files |= {file: _table(schema) for file, schema in tables.items()}
    speeds: Schema = {"anyOf": [{"required": ["rates.csv"]}, {"required": ["models.csv"]}]}
    return {
        "$schema": DIALECT,
        "title": title,
        "description": doc,
        "type": "object",
        "properties": files,
        "required": [file for file, schema in tables.items() if schema.required],
        **(speeds if tables is WORKLOAD_TABLES else {}),
        "$defs": {
            f"parameters_{kind}": _object(columns) for kind, columns in CURVE_PARAMETERS.items()
        },
    }


def _table(schema: TableSchema) -> Schema:
    unique = f"; unique: {', '.join(schema.key)}" if schema.key else ""
    return {"type": "array", "description": schema.doc + unique, "items": _object(schema.columns)}


def _config(columns: tuple[Column, ...]) -> Schema:
    out = _object(columns)
    for name, keys in CONFIG_TABLES.items():
        out["properties"][name] = table = _object(keys)
        table["properties"] |= {
            c.name: {**IN_TOML[c.kind], "description": c.doc} for c in keys if c.kind in IN_TOML
        }
    return out | {"description": "settings of the round (TOML)"}


def _object(columns: tuple[Column, ...]) -> Schema:
    return {
        "type": "object",
        "properties": {c.name: _cell(c) for c in columns},
        "required": [c.name for c in columns if c.required],
    }


def _cell(c: Column) -> Schema:
    out: Schema = {"type": TYPES.get(c.kind, "string"), "description": c.doc}
    if c.kind is ColumnKind.CHOICE:
        out["enum"] = list(c.choices)
    if c.kind is ColumnKind.OBJECTIVE:
        out["pattern"] = _objectives()
    if c.kind is ColumnKind.JSON:
        out["contentMediaType"] = "application/json"
    if c.kind is ColumnKind.TEXT and c.required:
        out["minLength"] = 1
    if c.kind in PATTERNS:
        out["pattern"] = PATTERNS[c.kind]
    if c.kind in (ColumnKind.INTEGER, ColumnKind.NUMBER):
        most = MOST_INTEGER if c.kind is ColumnKind.INTEGER else MOST_NUMBER
        out |= (
            {"exclusiveMinimum": c.above}
            if math.isfinite(c.above)
            else {"minimum": max(c.low, -most)}
        )
        out["maximum"] = min(c.high, most)
    if c.default is not None and c.default != RULE:
        out["default"] = c.default
    return out


def _objectives() -> str:
    """Return the pattern of objectives: names with factors, joined by commas, ranked by ">"."""
    term = rf"\s*({'|'.join(REGISTRY.names())})\s*(=\s*[0-9.eE+-]+\s*)?"
    terms = f"{term}(,{term})*"
    return f"^{terms}(>{terms}){{0,{MOST_LEVELS - 1}}}$"


def result_schema() -> Schema:
    """Describe plan.json: the fields of `Plan`, in the words of its docstring."""
    node = _closed(
        {
            "node": {"type": "string", "description": "name"},
            "gpus": {"type": "integer", "minimum": 1},
            "gpu": {"type": "integer", "description": "number of the GPU of which it has a share"},
            "fraction": {"type": "number", "description": "gpu_fraction"},
        }
    )
    node["required"] = ["node", "gpus"]
    job = _record(
        JobPlan,
        gpus={"minimum": 0},
        nodes={"type": ["array", "null"], "items": node},
        action={"enum": ["start", "keep", "grow", "shrink", "move", "pause", "wait"]},
    )
    unknown = {"type": ["number", "null"]}  # nan in Python
    pool = _record(PoolPlan, marginal_value=unknown)
    plan = _record(
        Plan,
        digest={"pattern": "^[0-9a-f]{64}$"},
        objective={"pattern": _objectives()},
        status={"enum": ["optimal", "feasible", "infeasible", "error"]},
        gap={"minimum": 0},
        seconds={
            "type": "object",
            "additionalProperties": {"type": "number"},
            "required": ["total"],
        },
        jobs={"type": "array", "items": job, "description": "every job of the snapshot once"},
        pools={"items": pool},
        budget=_record(BudgetPlan, marginal_value=unknown),
        placement=_record(NodePlan),
    )
    plan["properties"] = {"schema_version": {"const": SCHEMA_VERSION}, **plan["properties"]}
    optional = ("placement",)  # only where pools have nodes
    return {
        "$schema": DIALECT,
        "title": "plan",
        "description": "One decision and its proof.",
        **plan,
        "required": [name for name in plan["properties"] if name not in optional],
    }


def _record(record: type, **more: Schema) -> Schema:
    """Return the schema of a dataclass; `more` is what its types do not say of a field."""
    words = _describe_fields(record)
    return _closed(
        {
            name: _value(kind) | {"description": words[name]} | more.get(name, {})
            for name, kind in get_type_hints(record).items()
        }
    )


def _describe_fields(record: type) -> dict[str, str]:
    """Return what the docstring of a record says of each field."""
    listed = (inspect.getdoc(record) or "").partition("Attributes\n----------\n")[2]
    described: dict[str, str] = defaultdict(str)
    for names, words in re.findall(r"^(\w.*?) : .*\n((?: {4}.*\n?)+)", listed, re.MULTILINE):
        described |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return described


def _value(kind: Any) -> Schema:
    """Return the schema of a type of a field; {} for one that is described by hand."""
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _value(parts[0])}
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind)
    names = [PLAIN.get(part) for part in parts or (kind,)]
    return {} if None in names else {"type": names if parts else names[0]}


def _closed(fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
