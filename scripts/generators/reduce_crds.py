"""Write what definitions of custom resources say of the fields that the allocator writes.

    python scripts/generators/reduce_crds.py CRD.yaml ... > tests/data/crd_fields.csv

One row for each field: its type, the names that it must have, its values and limits, the keys by
which the entries of a list are told, and whether it is immutable. Descriptions and all other fields
are left out. Templates of pods and of jobs are those of Kubernetes itself: only that is noted. The
table is of kubernetes-sigs/kueue (v1beta1 and v1beta2: 0ed155a, 57d3e21), kubernetes-sigs/jobset
(v1alpha2: 0a2be5c) and kubeflow/training-operator (v1: c20bf65).
"""

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

# by kind, the fields that the allocator writes
_CHECKS = "status.admissionChecks[]"
_REPLICAS = "spec.pytorchReplicaSpecs{}"
WRITTEN = {
    "AdmissionCheck": ("spec.controllerName", "status.conditions"),
    "Workload": (
        "spec.active",
        *(f"{_CHECKS}.{name}" for name in ("name", "state", "message", "lastTransitionTime")),
        *(f"{_CHECKS}.podSetUpdates[].{name}" for name in ("name", "nodeSelector")),
    ),
    "JobSet": ("spec.suspend", "spec.replicatedJobs[].name", "spec.replicatedJobs[].template"),
    "PyTorchJob": ("spec.runPolicy.suspend", f"{_REPLICAS}.replicas", f"{_REPLICAS}.template"),
}
COLUMNS = (
    *("group", "kind", "version", "path", "type", "required", "enum", "pattern"),
    *("shortest", "longest", "keys", "is_immutable"),
)
IMMUTABLE = "self == oldSelf"
# a field that tells the spec of a template of Kubernetes itself
CORE = {"containers": "PodTemplateSpec", "parallelism": "JobTemplateSpec"}
MARKS = (".", "[", "{")


def reduce_definition(definition: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the rows of all versions of a definition."""
    spec = definition["spec"]
    kind = spec["names"]["kind"]
    for version in spec["versions"]:
        place = {"group": spec["group"], "kind": kind, "version": version["name"]}
        for path, field in list_fields(version["schema"]["openAPIV3Schema"], ""):
            if is_written(path, WRITTEN[kind]):
                yield place | describe_field(path, field, kind)


def is_written(path: str, written: Sequence[str]) -> bool:
    """Return whether a field is written, is above a written one, or below it."""
    return any(
        longer == shorter or longer.startswith(tuple(shorter + mark for mark in MARKS))
        for one in written
        for shorter, longer in ((one, path), (path, one))
    )


def list_fields(field: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every field below a field, with its path."""
    if name_core(field):
        return
    for name, inner in sorted((field.get("properties") or {}).items()):
        below = f"{path}.{name}".lstrip(".")
        yield below, inner
        yield from list_fields(inner, below)
    for name, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := field.get(name), Mapping):
            yield path + mark, inner
            yield from list_fields(inner, path + mark)


def name_core(field: Mapping[str, Any]) -> str:
    """Return the name of the template of Kubernetes itself that a field is, "" if it is none."""
    spec = (field.get("properties") or {}).get("spec") or {}
    found = (CORE[name] for name in CORE if name in (spec.get("properties") or {}))
    return next(found, "")


def describe_field(path: str, field: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the row of a field."""
    core = name_core(field)
    below = (f"{path}.{name}" for name in field.get("required") or ())
    needed = [name.rpartition(".")[2] for name in below if is_written(name, WRITTEN[kind])]
    rules = [one["rule"] for one in field.get("x-kubernetes-validations") or ()]
    return {
        "path": path,
        "type": core or _name_type(field),
        "required": "" if core else " ".join(sorted(needed)),
        "enum": " ".join(field.get("enum") or ()),
        "pattern": str(field.get("pattern", "")),
        "shortest": str(field.get("minLength", field.get("minItems", ""))),
        "longest": str(field.get("maxLength", field.get("maxItems", ""))),
        "keys": " ".join(field.get("x-kubernetes-list-map-keys") or ()),
        "is_immutable": "yes" if IMMUTABLE in rules else "",
    }


def _name_type(field: Mapping[str, Any]) -> str:
    return "date-time" if field.get("format") == "date-time" else str(field.get("type", "any"))


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="CRD.yaml")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for file in parser.parse_args(argv).files:
        for definition in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            writer.writerows(reduce_definition(definition))
    sys.stdout.write(text.getvalue())


if __name__ == "__main__":
    main()
