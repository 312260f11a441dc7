"""Objects of a small cluster as `kubectl get -o json` shows them: two A100 nodes, one V100 node,
jobs of several kinds, and pods of others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from crd_schemas import find_core_faults

from allocator.clusters.adapter import ClusterView
from allocator.clusters.kubernetes.api import list_rights
from allocator.clusters.kubernetes.objects import Objects
from allocator.clusters.kubernetes.observe import observe

Object = dict[str, Any]
CREATED = "2026-11-01T08:00:00Z"
NOW = "2026-11-01T09:00:00Z"
PREFIX = "allocator.example/"
GPU = "nvidia.com/gpu"


def check(value: Object) -> Object:
    """The object, if the published schema of its kind takes it, with no field that it has not."""
    group, _, version = value["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{value['kind']}"
    assert find_core_faults(name, value, is_partial=False) == []
    return value


def manifest(text: str) -> Object:
    """The object of a manifest."""
    return dict(yaml.safe_load(text))


def marks(**named: object) -> dict[str, str]:
    """Annotations of the allocator's prefix: min_gpus=1 becomes allocator.example/min-gpus."""
    return {PREFIX + name.replace("_", "-"): str(value) for name, value in named.items()}


def meta(name: str, namespace: str | None = None, **more: Any) -> Object:
    """Metadata with a uid that tells the object."""
    place = {} if namespace is None else {"namespace": namespace}
    uid = f"uid-{namespace}-{name}"
    return {"name": name, "uid": uid, "creationTimestamp": CREATED, **place, **more}


def node(
    name: str,
    gpus: int = 8,
    product: str = "NVIDIA-A100-SXM4-80GB",
    *,
    labels: Mapping[str, str] = {},
    taints: Iterable[Object] = (),
    is_ready: bool = True,
    is_cordoned: bool = False,
    more: Mapping[str, str] = {},
) -> Object:
    """A node with GPUs."""
    made = manifest(f"""
        apiVersion: v1
        kind: Node
        metadata:
          labels:
            kubernetes.io/hostname: {name}
            nvidia.com/gpu.product: {product}
            nvidia.com/gpu.memory: "81920"
            topology.kubernetes.io/zone: z1
        spec: {{}}
        status:
          allocatable: {{cpu: "64", memory: 512Gi, pods: "110"}}
          conditions:
          - {{type: Ready, status: "{is_ready or "Unknown"}", lastHeartbeatTime: "{NOW}"}}
    """)
    made["metadata"] = meta(name, labels={**made["metadata"]["labels"], **labels})
    made["spec"] |= ({"unschedulable": True} if is_cordoned else {}) | (
        {"taints": list(taints)} if taints else {}
    )
    made["status"]["allocatable"] |= ({GPU: str(gpus)} if gpus else {}) | dict(more)
    return check(made)


def pod_spec(gpus: int, resource: str = GPU, **more: Any) -> Object:
    """A pod with one container, with a variable that nobody else should see."""
    made = manifest("""
        restartPolicy: Never
        containers:
        - name: main
          image: train:1
          env: [{name: TOKEN, value: secret}]
          resources: {limits: {cpu: "4", memory: 16Gi}}
    """)
    if gpus:
        made["containers"][0]["resources"]["limits"][resource] = str(gpus)
    return made | more


def refer_to(owner: Object) -> Object:
    """A reference of an object to the controller that made it."""
    about = {key: owner[key] for key in ("apiVersion", "kind")}
    about |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {**about, "controller": True}


def pod(
    name: str,
    machine: str | None,
    gpus: int,
    *,
    owner: Object | None = None,
    phase: str = "Running",
    resource: str = GPU,
) -> Object:
    """A pod that is bound to a machine; None: the scheduler found none."""
    more = {} if owner is None else {"ownerReferences": [refer_to(owner)]}
    spec = pod_spec(gpus, resource) | ({"nodeName": machine} if machine else {})
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, "ml", **more)}
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": phase} | ({} if machine else {"conditions": [found]})
    return check({**made, "spec": spec, "status": status})


def job(
    name: str,
    pods: int = 1,
    gpus: int = 4,
    *,
    is_suspended: bool = False,
    annotations: Mapping[str, str] = {},
    queue: str | None = None,
    started: str | None = None,
    **pod_fields: Any,
) -> Object:
    """A Job of so many pods."""
    labels = {} if queue is None else {"kueue.x-k8s.io/queue-name": queue}
    status: Object = {} if started is None else {"startTime": started}
    made = manifest(f"""
        apiVersion: batch/v1
        kind: Job
        spec:
          parallelism: {pods}
          completions: {pods}
          completionMode: Indexed
          suspend: {str(is_suspended).lower()}
          backoffLimit: 0
    """)
    made["metadata"] = meta(name, "ml", annotations=dict(annotations), labels=labels)
    made["spec"] |= {"template": {"spec": pod_spec(gpus, **pod_fields)}}
    return check({**made, "status": status})


def waiting_job(name: str, pods: int = 1, gpus: int = 4, **said: object) -> Object:
    """A suspended Job that the allocator may start, with more annotations."""
    annotations = marks(managed="true", **said)
    return job(name, pods, gpus, is_suspended=True, annotations=annotations)


def job_set(name: str, workers: int, gpus: int, *, is_suspended: bool = True) -> Object:
    """A JobSet with a driver without GPUs and workers with them."""
    made = manifest(f"""
        apiVersion: jobset.x-k8s.io/v1alpha2
        kind: JobSet
        spec:
          suspend: {str(is_suspended).lower()}
          replicatedJobs:
          - {{name: driver, replicas: 1, template: {{spec: {{parallelism: 1}}}}}}
          - {{name: workers, replicas: 1, template: {{spec: {{parallelism: {workers}}}}}}}
    """)
    for part, n in zip(made["spec"]["replicatedJobs"], (0, gpus), strict=True):
        part["template"]["spec"]["template"] = {"spec": pod_spec(n)}
    return {**made, "metadata": meta(name, "ml", annotations=marks(managed="true"))}


def pytorch_job(name: str, workers: int, gpus: int, **said: object) -> Object:
    """A suspended PyTorchJob with a master and workers."""
    made = manifest(f"""
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        spec:
          runPolicy: {{suspend: true}}
          pytorchReplicaSpecs: {{Master: {{replicas: 1}}, Worker: {{replicas: {workers}}}}}
    """)
    for part in made["spec"]["pytorchReplicaSpecs"].values():
        part["template"] = {"spec": pod_spec(gpus)}
    return {**made, "metadata": meta(name, "ml", annotations=marks(managed="true", **said))}


def small_cluster() -> list[Object]:
    """Two A100 nodes of 8 and a V100 node of 4. Running: an elastic job of 2 x 2 GPUs, a job that
    says nothing of itself, and 4 GPUs of a pod of nobody's. Waiting: two jobs.
    """
    elastic = job(
        "elastic",
        2,
        2,
        annotations=marks(model="bert", min_gpus=2, max_gpus=8, preemptible="true"),
        started=CREATED,
    )
    plain = job("plain", 1, 4, started=CREATED)
    waiting = job(
        "waiting",
        1,
        4,
        is_suspended=True,
        annotations=marks(managed="true", model="resnet", expected_seconds=600),
        nodeSelector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
    )
    done = job("done", 1, 8)
    done["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    return [
        node("n1"),
        node("n2"),
        node("v1", 4, "Tesla-V100"),
        elastic,
        plain,
        waiting,
        done,
        job("asleep", 1, 2, is_suspended=True),
        pod("elastic-0", "n1", 2, owner=elastic),
        pod("elastic-1", "n1", 2, owner=elastic),
        pod("plain-0", "n2", 4, owner=plain),
        pod("notebook", "n2", 4),
        pod("over", "n2", 4, phase="Succeeded"),
        pod("unbound", None, 4),
    ]


def kueue_object(kind: str, name: str, namespace: str | None = None, **spec: Any) -> Object:
    """An object of Kueue."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": meta(name, namespace),
        "spec": spec,
    }


def flavor_quota(flavor: str, nominal: int, **limits: int) -> Object:
    """A resource group of one flavor of GPUs."""
    amounts = {name: str(n) for name, n in limits.items()}
    return {
        "coveredResources": [GPU],
        "flavors": [
            {"name": flavor, "resources": [{"name": GPU, "nominalQuota": str(nominal), **amounts}]}
        ],
    }


def workload(
    owner: Object,
    pods: int,
    *,
    conditions: Iterable[tuple[str, str, str, str]] = (),
    checks: Mapping[str, str] = {},
    is_active: bool = True,
) -> Object:
    """The workload of a job, with conditions (type, status, reason, message). Quota that is
    reserved is of the flavor a100.
    """
    conditions = list(conditions)
    is_reserved = any(one[:2] == ("QuotaReserved", "True") for one in conditions)
    given = {"name": "main", "flavors": {GPU: "a100"}, "count": pods}
    made = manifest(f"""
        apiVersion: kueue.x-k8s.io/v1beta2
        kind: Workload
        spec: {{active: {str(is_active).lower()}, podSets: [{{name: main, count: {pods}}}]}}
    """)
    made["metadata"] = meta(
        f"job-{owner['metadata']['name']}", "ml", ownerReferences=[refer_to(owner)]
    )
    made["spec"]["podSets"][0]["template"] = owner["spec"]["template"]
    names = ("type", "status", "reason", "message")
    made["status"] = {
        "conditions": [
            {**dict(zip(names, one, strict=True)), "lastTransitionTime": NOW} for one in conditions
        ],
        "admissionChecks": [
            {"name": name, "state": state, "message": "", "lastTransitionTime": NOW}
            for name, state in checks.items()
        ],
        **({"admission": {"podSetAssignments": [given]}} if is_reserved else {}),
    }
    return made


QUEUES = f"""
{{kind: ResourceFlavor, name: a100, nodeLabels: {{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}}}
---
kind: ClusterQueue
name: research-cq
cohortName: all
resourceGroups: [{json.dumps(flavor_quota("a100", 10, borrowingLimit=4))}]
preemption: {{reclaimWithinCohort: Any}}
fairSharing: {{weight: "2"}}
---
kind: ClusterQueue
name: product-cq
cohortName: all
resourceGroups: [{json.dumps(flavor_quota("a100", 6, lendingLimit=2))}]
---
{{kind: LocalQueue, name: research, namespace: ml, clusterQueue: research-cq}}
---
{{kind: LocalQueue, name: product, namespace: ml, clusterQueue: product-cq}}
---
{{kind: AdmissionCheck, name: gpus, controllerName: allocator.example/gpu-allocator}}
"""


def kueue_cluster() -> list[Object]:
    """Two nodes, two cluster queues of one cohort, and three jobs: one admitted, one that waits for
    the allocator's check, one whose quota is not reserved.
    """
    running = job("running", 1, 4, queue="research", started=CREATED)
    checked = job("checked", 1, 4, queue="research", is_suspended=True)
    pending = job("pending", 2, 4, queue="product", is_suspended=True)
    reserved = ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue")
    return [
        node("n1"),
        node("n2"),
        *(kueue_object(**one) for one in yaml.safe_load_all(QUEUES)),
        running,
        checked,
        pending,
        pod("running-0", "n1", 4, owner=running),
        workload(running, 1, conditions=[reserved, ("Admitted", "True", "Admitted", "admitted")]),
        workload(checked, 1, conditions=[reserved], checks={"gpus": "Pending"}),
        workload(
            pending,
            2,
            conditions=[
                (
                    "QuotaReserved",
                    "False",
                    "Pending",
                    "couldn't assign flavors to pod set main: insufficient unused quota",
                )
            ],
        ),
    ]


def look(objects: Iterable[Object]) -> ClusterView:
    """What the allocator sees of the objects, a little later."""
    return observe(Objects(list(objects)), 1.8e9)


def rights(name: str) -> set[tuple[str, str, str]]:
    """(verb, group, resource) that a manifest of the package allows."""
    return {right[1:] for right in list_rights(name)}


def kubeconfig(folder: Path, address: str, **cluster: Any) -> Path:
    """A kubeconfig with a token for an address."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address} | cluster}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps(document))
    return path
