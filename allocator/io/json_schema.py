"""Derive the JSON Schema (draft 2020-12) of snapshots, workloads and plans.

The schemas are derived from the columns and fields that the code itself uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from allocator.domain.objectives import MOST_LEVELS, REGISTRY
from allocator.domain.plan import JOB_FIELDS, SCHEMA_VERSION
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
        table = _object(keys)
        table["properties"] |= {
            c.name: {"type": "object", "description": c.doc}
            for c in keys
            if c.kind is ColumnKind.JSON
        }
        table["properties"] |= {
            c.name: {"type": "array", "items": {"type": "string"}, "description": c.doc}
            for c in keys
            if c.kind is ColumnKind.TEXTS
        }
        out["properties"][name] = table
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
    """Describe plan.json."""
    fields: Schema = {
        "schema_version": {"const": SCHEMA_VERSION},
        "snapshot": _of("string", "name of the snapshot folder"),
        "digest": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "SHA-256 of the snapshot's content",
        },
        "now_s": _of("number", "time of the snapshot, seconds"),
        "interval_s": _of("number", "length of the round, seconds"),
        "policy": _of("string", "who decided"),
        "objective": {"type": "string", "pattern": _objectives()},
        "solver": _maybe("string", "back end, if any"),
        "solver_version": _maybe("string", "its version"),
        "solver_choice": _maybe("string", "why auto picked this back end"),
        "seed": _of("integer", "seed handed to the solver"),
        "status": {"enum": ["optimal", "feasible", "infeasible", "error"]},
        "termination": _of("string", "why the search ended: gap, time_limit ..."),
        "fallback": _maybe("string", "who made the plan where the asked solver had none"),
        "objective_value": _of("number", "V: proven V <= best possible <= B"),
        "bound": _of("number", "B"),
        "gap": {"type": "number", "minimum": 0, "description": "(B - V) / max(|V|, 1e-9)"},
        "bound_by": _of("string", "who proved the bound: lagrangian or a solver"),
        "seconds": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "required": ["total"],
            "description": "time spent: read, validate, build, solve, total",
        },
        "jobs": _rows("every job of the snapshot once", _job()),
        "pools": _rows(
            "every pool",
            {
                "pool": _of("string", "name"),
                "gpus": _of("integer", "usable now"),
                "used": _of("integer", "given away"),
                "marginal_value": _maybe("number", "objective per further GPU"),
            },
        ),
        "tenants": _rows(
            "every tenant",
            {
                "tenant": _of("string", "name"),
                "gpus": _of("integer", "held by its jobs"),
                "guaranteed": _of("integer", "guaranteed_gpus"),
                "max_gpus": _maybe("integer", "null = no limit"),
                "cost_per_hour": _of("number", "US dollars"),
            },
        ),
        "budget": _closed(
            {
                "per_hour": _maybe("number", "US dollars, null = none"),
                "spent_per_hour": _of("number", "US dollars"),
                "marginal_value": _maybe("number", "objective per further dollar/hour"),
            }
        ),
        "warnings": {"type": "array", "items": {"type": "string"}},
        "placement": _closed(
            {
                "value_before": _of("number", "value of the plan that counts GPUs by pool"),
                "lost": _of("number", "the part of it that the nodes do not allow"),
                "gap": _of("number", "lost / max(|V|, 1e-9)"),
                "moved": _of("integer", "jobs that move to other nodes of their pool"),
                "reduced": _of("integer", "jobs that get another option than in that plan"),
            }
        ),
    }
    whole = _closed(fields)
    whole["required"].remove("placement")  # only where pools have nodes
    return {
        "$schema": DIALECT,
        "title": "plan",
        "description": "One decision and its proof.",
    } | whole


def _job() -> Schema:
    fields: Schema = {
        "job_id": _of("string", "name"),
        "tenant": _of("string", "who pays"),
        "pool": _maybe("string", "null = nothing"),
        "gpus": {"type": "integer", "minimum": 0},
        "batch_size": _maybe("integer", "of the row of rates.csv it runs at"),
        "shared_with": _maybe("string", "job on the same GPUs"),
        "nodes": {
            "type": ["array", "null"],
            "description": "nodes of the pool, null without nodes.csv",
            "items": _node(),
        },
        "previous_pool": _maybe("string", "held until now"),
        "previous_gpus": _of("integer", "held until now"),
        "action": {"enum": ["start", "keep", "grow", "shrink", "move", "pause", "wait"]},
        "reason": _maybe("string", "code, if it does not get what it could use"),
        "detail": _maybe("string", "the numbers behind the reason"),
        "work_per_s": _of("number", "speed"),
        "value": _of("number", "share of the objective"),
        "cost_per_hour": _of("number", "US dollars"),
        "accumulation": _maybe("integer", "passes per step of that row"),
        "variant": _maybe("string", "of that row: how the job has to be run"),
        "mode": _maybe("string", "how its workers are kept in step, of the modes that it lists"),
        "position": _maybe("integer", "place among those that wait, from 1"),
        **_range("expected_start", "when it is expected to start, if it waits, clock of now_s"),
        **_range("expected_done", "when it is expected to be done, clock of now_s"),
        **_range("time_saved", "seconds saved against running as requested"),
        "expected_note": _maybe("string", "why nothing is expected"),
    }
    return {name: fields[name] for name in JOB_FIELDS}


def _range(name: str, doc: str) -> Schema:
    """Return the fields of an estimate with its range."""
    return {
        f"{name}_s": _maybe("number", doc),
        f"{name}_low_s": _maybe("number", "low end of the range of 90 %"),
        f"{name}_high_s": _maybe("number", "high end of the range of 90 %"),
    }


def _node() -> Schema:
    entry = _closed(
        {
            "node": _of("string", "name"),
            "gpus": {"type": "integer", "minimum": 1},
            "gpu": _of("integer", "number of the GPU of which it has a share"),
            "fraction": _of("number", "gpu_fraction"),
        }
    )
    return entry | {"required": ["node", "gpus"]}


def _of(kind: str, doc: str) -> Schema:
    return {"type": kind, "description": doc}


def _maybe(kind: str, doc: str) -> Schema:
    return {"type": [kind, "null"], "description": doc}


def _closed(fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _rows(doc: str, fields: Schema) -> Schema:
    return {"type": "array", "description": doc, "items": _closed(fields)}
