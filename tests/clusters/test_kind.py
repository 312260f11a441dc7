"""On a cluster of one's own, such as kind with Kueue: the current context of kubectl. Nothing is
changed: what would be written is sent as a dry run, or held against the schemas of the cluster.

./scripts/test -m kind
"""

from __future__ import annotations

import time

import pytest

from allocator.clusters.folder import build_snapshot
from allocator.clusters.kubernetes.api import APPLY, RESOURCES, Reader, Request, path_of
from allocator.clusters.kubernetes.client import ClientApi
from allocator.clusters.kubernetes.observe import observe_cluster
from allocator.domain.rules.snapshot_rules import validate
from allocator.executors.kubernetes.manifest import build_job
from allocator.executors.kubernetes.settings import Settings
from allocator.loop.executor import Order

pytestmark = pytest.mark.kind


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
