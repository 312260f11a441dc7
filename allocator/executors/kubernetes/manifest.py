"""An order as a Job: its name, its pods, and how they say how far they came.

What else a Job needs is in kubernetes.toml in the folder of the state.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from allocator.clusters.kubernetes.nodes import GpuNode
from allocator.clusters.kubernetes.objects import PREFIX
from allocator.clusters.kubernetes.workloads.constraints import pinned_affinity
from allocator.clusters.statements import read_settings as read_site_settings
from allocator.errors import UsageError
from allocator.executors.disk import read_toml
from allocator.executors.ledger import file_name
from allocator.loop.executor import Order
from allocator.objects import Json, Record

STATE, JOB, GENERATION, TOKEN = (PREFIX + name for name in ("state", "job", "generation", "token"))
FINALIZER = PREFIX + "read-end"  # a pod stays until its end was recorded
CONTAINER = "main"
SIDECAR = "progress"
GRACE_MARGIN_S = 5  # for the last words of the sidecar, when the job has ended
PROGRESS = "/allocator/progress"
# Its log has the job's line of progress again and again, and its last message has the last one.
SAY_PROGRESS = """\
say() { head -c 200 "$ALLOCATOR_PROGRESS" 2>/dev/null; }
trap 'say > "${ALLOCATOR_LAST_WORDS:-/dev/termination-log}"; exit 0' TERM
while :; do say; sleep "${ALLOCATOR_SAY_EVERY_S:-10}" & wait $!; done
"""


def shape_of(order: Order, largest: int) -> tuple[int, int]:
    """Return the fewest equal pods that fit the parts of an order, and the GPUs of each.

    An order without parts has nodes of `largest` GPUs.

    Examples
    --------
    >>> shape_of(Order("a", 1, 1, "p", 12, "A", 1.0), 8)
    (3, 4)
    >>> [shape_of(Order("a", 1, 1, "p", 4, "A", 1.0), largest) for largest in (8, 2, 3)]
    [(1, 4), (2, 2), (4, 1)]
    >>> from allocator.loop.executor import NodePart
    >>> nodes = (NodePart("n1", 6), NodePart("n2", 6))
    >>> shape_of(Order("a", 1, 1, "p", 12, "A", 1.0, nodes=nodes), 8)
    (2, 6)
    """
    parts = [part.gpus for part in order.nodes]
    if not parts:
        largest = max(1, largest)
        parts = [largest] * (order.gpus // largest) + [order.gpus % largest]
    each = math.gcd(*parts)
    return order.gpus // each, each


def object_name(state: str, job_id: str, generation: int) -> str:
    """Return the name of the Job of an allocation, which no other allocation has.

    Examples
    --------
    >>> object_name("s", "bert", 3) == object_name("s", "bert", 3)
    True
    """
    digest = hashlib.sha256(f"{state}/{job_id}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"allocator-{digest[:24]}-{generation}"


def build_job(
    order: Order,
    state: str,
    settings: Settings,
    members: Sequence[GpuNode],
    hostnames: Sequence[str],
    grace_s: float,
) -> Json:
    """Return the Job of an order.

    Parameters
    ----------
    order : Order
        The order.
    state : str
        Name of the state of the executor.
    settings : Settings
        Image, namespace and further fields.
    members : sequence of GpuNode
        Nodes of the pool.
    hostnames : sequence of str
        Where its pods shall run; empty: on any of these nodes.
    grace_s : float
        Seconds for a checkpoint.
    """
    pods, gpus = shape_of(order, max((node.gpus for node in members), default=order.gpus))
    name = object_name(state, order.job_id, order.generation)
    labels = {STATE: state, GENERATION: str(order.generation)}
    environment = {
        **order.environment,
        "ALLOCATOR_JOB": order.job_id,
        "ALLOCATOR_GENERATION": str(order.generation),
        "ALLOCATOR_POOL": order.pool,
        "ALLOCATOR_GPUS": str(order.gpus),
        "ALLOCATOR_GPU_TYPE": order.gpu_type,
        "ALLOCATOR_PODS": str(pods),
        "ALLOCATOR_REMAINING_WORK": repr(order.remaining_work),
        "ALLOCATOR_GRACE_S": f"{grace_s:g}",
        "ALLOCATOR_PROGRESS": PROGRESS,
    }
    own: Record = settings.container.get("resources", {})
    resource = members[0].resource if members else "nvidia.com/gpu"
    image = order.environment.get("ALLOCATOR_IMAGE", settings.image)
    mount = {"name": SIDECAR, "mountPath": str(PurePosixPath(PROGRESS).parent)}
    sidecar = {  # it tells the progress, and runs as long as the job
        "name": SIDECAR,
        "image": image,
        "restartPolicy": "Always",
        "command": ["sh", "-c", SAY_PROGRESS],
        "env": [{"name": "ALLOCATOR_PROGRESS", "value": PROGRESS}],
        "volumeMounts": [mount],
    }
    container = {
        **settings.container,
        "name": CONTAINER,
        "image": image,
        "env": [{"name": key, "value": value} for key, value in environment.items()]
        + list(settings.container.get("env", ())),
        "resources": {**own, "limits": {**own.get("limits", {}), resource: str(gpus)}},
        "volumeMounts": [mount, *settings.container.get("volumeMounts", ())],
    }
    if order.command:
        container["command"] = list(order.command)
    if order.workdir:
        container["workingDir"] = order.workdir
    pod = {
        **settings.pod,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace_s) + GRACE_MARGIN_S,
        "containers": [container, *settings.pod.get("containers", ())],
        "initContainers": [*settings.pod.get("initContainers", ()), sidecar],
        "volumes": [{"name": SIDECAR, "emptyDir": {}}, *settings.pod.get("volumes", ())],
        **pinned_affinity(settings.pod, hostnames or [node.hostname for node in members]),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {JOB: file_name(order.job_id), TOKEN: str(order.token)},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels, "finalizers": [FINALIZER]}, "spec": pod},
        },
    }


FILE = "kubernetes.toml"
EXAMPLE = 'namespace = "training", image = "registry/train:1"'


@dataclass(frozen=True)
class Settings:
    """Where Jobs are made, and what their pods have besides what an order says.

    Parameters
    ----------
    image : str
        Image of the jobs; the variable ALLOCATOR_IMAGE of a job names another one.
    namespace : str
        Where the Jobs are.
    context, kubeconfig : str, optional
        As of kubectl.
    pod, container : mapping of str to object
        Further fields of the spec of the pods and of their container: volumes, tolerations ...

    Examples
    --------
    >>> Settings("train:1").namespace
    'default'
    """

    image: str = ""
    namespace: str = "default"
    context: str | None = None
    kubeconfig: str | None = None
    pod: Record = field(default_factory=dict)
    container: Record = field(default_factory=dict)


def read_settings(folder: Path) -> Settings:
    """Return the settings of the state in a folder.

    Raises
    ------
    UsageError
        If there are none, or they make no sense.
    """
    path = folder / FILE
    if not path.exists():
        raise UsageError(f'write "{path}" first, for instance: {EXAMPLE}')
    settings = read_site_settings(Settings, f'"{path}"', read_toml(path))
    if not settings.image:
        raise UsageError(f'"{path}" names no image, for instance: {EXAMPLE}')
    return settings
