"""Documents for server-side apply, held against what definitions of custom resources say of the
fields that the allocator writes (tests/data/crd_fields.csv). No other field passes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

Row = Mapping[str, str]
TABLE = Path(__file__).resolve().parents[2] / "data" / "crd_fields.csv"
VERSION = "1.34.0"  # of the published schemas of Kubernetes
STABLE = ("io.k8s.api.core.v1", "io.k8s.api.batch.v1", "io.k8s.apimachinery.pkg.apis.meta.v1")
PARTIAL = ("PodSpec", "JobSpec")  # a document for server-side apply need not have all of them
TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
METADATA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "namespace": {"type": "string"},
        "uid": {"type": "string"},
        "resourceVersion": {"type": "string"},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@cache
def read_fields() -> dict[tuple[str, str], dict[str, Row]]:
    """Rows by path, by apiVersion and kind."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = f"{row['group']}/{row['version']}", row["kind"]
            found.setdefault(key, {})[row["path"]] = row
    return found


def immutable_fields(api_version: str, kind: str) -> list[tuple[str, ...]]:
    """Paths of the fields that no update may change."""
    rows = read_fields().get((api_version, kind), {})
    return [tuple(path.split(".")) for path, row in rows.items() if row["is_immutable"]]


def build_schema(rows: Mapping[str, Row], path: str) -> dict[str, Any]:
    """The schema of a field, with all that is below it."""
    row = rows.get(path, {"type": "object"})
    kind = row["type"]
    if kind.endswith("TemplateSpec"):
        return refer_to_core(kind)
    schema: dict[str, Any] = {"type": "string" if kind == "date-time" else kind}
    if kind == "date-time":
        schema["pattern"] = TIME
    is_list = kind == "array"
    for name, found in (("min", "shortest"), ("max", "longest")):
        if row.get(found):
            schema[name + ("Items" if is_list else "Length")] = int(row[found])
    for name in ("required", "enum"):
        if row.get(name):
            schema[name] = row[name].split()
    if row.get("pattern"):
        schema["pattern"] = row["pattern"]
    if is_list:
        schema["items"] = build_schema(rows, path + "[]")
    elif path + "{}" in rows:
        schema["additionalProperties"] = build_schema(rows, path + "{}")
    elif kind == "object":
        start = f"{path}." if path else ""
        names = {one.removeprefix(start) for one in rows if one.startswith(start)}
        inner = {name: build_schema(rows, start + name) for name in names if name.isalnum()}
        schema |= {"properties": inner, "additionalProperties": False}
    return schema


@cache
def core_types() -> dict[str, Any]:
    """Types as Kubernetes publishes them, strictly, by their full names."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}-local-strict"
    types: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return types


def refer_to_core(name: str) -> dict[str, str]:
    """A reference to a type of Kubernetes, by its full name, or of the stable APIs by its own."""
    names = (name, *(f"{group}.{name}" for group in STABLE))
    (full,) = (one for one in names if one in core_types())
    return {"$ref": f"core#/$defs/{full}"}


@cache
def core_schemas(is_partial: bool) -> Registry[Any]:
    """The types of Kubernetes; parts of specs pass, too, if `is_partial`."""
    types = {
        name: {k: v for k, v in one.items() if k != "required"}
        if is_partial and name.rpartition(".")[2] in PARTIAL
        else one
        for name, one in core_types().items()
    }
    document = {"$schema": Draft202012Validator.META_SCHEMA["$id"], "$defs": types}
    return Registry().with_resource("core", Resource.from_contents(document))


def find_faults(document: Mapping[str, Any]) -> list[str]:
    """What a document for server-side apply has that its kind does not allow."""
    rows = read_fields().get((str(document.get("apiVersion")), str(document.get("kind"))))
    if rows is None:
        return [f"no rows for {document.get('apiVersion')} {document.get('kind')}"]
    schema = build_schema(rows, "")
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": METADATA}
    return _faults(schema, document)


def find_core_faults(name: str, value: object, *, is_partial: bool = True) -> list[str]:
    """What a value of the API of Kubernetes itself has that its type does not allow."""
    return _faults(refer_to_core(name), value, is_partial)


def _faults(schema: Mapping[str, Any], value: object, is_partial: bool = True) -> list[str]:
    validator = Draft202012Validator(schema, registry=core_schemas(is_partial))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
