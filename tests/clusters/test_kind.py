"""On a cluster of one's own, such as kind with Kueue: the current context of kubectl. Nothing is
changed: what would be written is sent as a dry run, or held against the schemas of the cluster.

./scripts/test -m kind
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from cluster_tables import plan
from jsonschema import Draft202012Validator
from kubernetes_objects import kueue_cluster, look

from allocator.clusters.folder import build_snapshot
from allocator.clusters.kubernetes.api import APPLY, RESOURCES, Reader, Request, path_of
from allocator.clusters.kubernetes.client import ClientApi
from allocator.clusters.kubernetes.observe import observe_cluster
from allocator.clusters.kubernetes.suggestions.suggest import list_changes
from allocator.domain.rules.snapshot_rules import validate
from allocator.executors.kubernetes.manifest import build_job
from allocator.executors.kubernetes.settings import Settings
from allocator.loop.executor import Order

pytestmark = pytest.mark.kind


def strict(schema: Any) -> Any:
    """A schema of a CRD in which objects have no other fields than it names."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: strict(one) for name, one in schema.items()}
    if made.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    is_open = made.get("x-kubernetes-preserve-unknown-fields")
    if made.get("type") == "object" and "properties" in made and not is_open:
        made.setdefault("additionalProperties", False)
    return made


def test_a_look_at_the_cluster_is_a_valid_snapshot() -> None:
    """All lists are read by the official client, and the tables keep every rule."""
    view = observe_cluster(Reader(ClientApi()), time.time())
    assert view.tables["nodes.csv"], "no node has GPUs"
    validate(build_snapshot("cluster", view))


def test_the_job_of_an_order_is_taken_as_a_dry_run() -> None:
    """The API server itself judges the Job, and keeps nothing of it."""
    order = Order("kind-test", 1, 1, "none", 1, "none", 10.0, ("sleep", "1"))
    job = build_job(order, "0" * 32, Settings("busybox:1"), [], ["no-such-node"], 5.0)
    query = {"fieldManager": "allocator", "dryRun": "All"}
    path = path_of(RESOURCES["Job"], "default", job["metadata"]["name"], **query)
    assert ClientApi().send(Request("PATCH", path, job, APPLY))["spec"]["parallelism"] == 1


def test_documents_of_workloads_fit_the_schema_of_the_cluster() -> None:
    """The CRD of Kueue as this cluster has it, with no field that it does not name."""
    place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io"
    crd = ClientApi().send(Request("GET", place))
    schemas = {one["name"]: one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"]}
    planned = plan("ml/running pause was 4; ml/checked start n1:4")
    view = look(kueue_cluster())
    changes = [one for one in list_changes(planned, view.details) if one.document is not None]
    assert len(changes) == 2
    for change in changes:
        document = dict(change.document or {}) | {"metadata": {}}
        schema = strict(schemas.get("v1beta2") or next(iter(schemas.values())))
        schema["properties"]["metadata"] = {"type": "object"}
        schema["properties"]["spec"].pop("required", None)
        assert [
            str(one.message) for one in Draft202012Validator(schema).iter_errors(document)
        ] == []
