"""GPUs of nodes: resources, products, states, and where a node stands; and of pods on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from allocator.clusters.kubernetes.objects import (
    HOSTNAME,
    PREFIX,
    Object,
    field,
    is_true,
    name_of,
    quantity,
)

MIG = "nvidia.com/mig-"
WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
PRODUCT_LABELS = (
    PREFIX + "gpu-type",
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "amd.com/gpu.product-name",
)
SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
LEAVING = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")  # taints of drained nodes
LEVELS = {  # columns of nodes.csv, the nearest first, and the labels that say them
    "rack": ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack"),
    "block": ("topology.kubernetes.io/block", "cloud.provider.com/topology-block"),
    "zone": ("topology.kubernetes.io/zone",),
}
# labels by which a node selector can name nodes
PLACES = (
    HOSTNAME,
    PREFIX + "pool",
    *PRODUCT_LABELS,
    *(label for labels in LEVELS.values() for label in labels),
)
GIGABYTE = 1e9
MIB = 2.0**20


@dataclass(frozen=True)
class GpuNode:
    """The GPUs of one resource on one node; a node with MIG slices may be several of these.

    Parameters
    ----------
    name : str
        Name in nodes.csv: the node, or node/slice.
    node, hostname : str
        Name of the node, and its label kubernetes.io/hostname.
    resource, product : str
        GPU resource, and what the GPUs are called.
    gpus : int
        Allocatable GPUs.
    state : str
        "up", "drain" or "down".
    is_spot : bool
        The node may be taken back.
    pool : str
        Pool that a label names, "" if none does.
    labels, taints
        Of the node.
    cpus, host_memory_gb : float
        Allocatable CPUs and memory.
    memory_gb : float, optional
        Memory of one GPU.
    levels : mapping of str to str
        Where the node stands, by column.
    """

    name: str
    node: str
    hostname: str
    resource: str
    product: str
    gpus: int
    state: str
    is_spot: bool
    pool: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    cpus: float
    host_memory_gb: float
    memory_gb: float | None
    levels: Mapping[str, str]


def is_gpu(resource: str) -> bool:
    """Return whether a resource of a node or a pod is GPUs or slices of them.

    Examples
    --------
    >>> is_gpu("nvidia.com/mig-1g.10gb"), is_gpu("cpu")
    (True, False)
    """
    return resource in WHOLE or resource.startswith(MIG)


def read_nodes(nodes: Sequence[Object]) -> list[GpuNode]:
    """Return the GPUs of all nodes."""
    return [row for node in nodes for row in _read_node(node)]


def _read_node(node: Object) -> Iterator[GpuNode]:
    name = name_of(node)
    labels = field(node, "metadata", "labels") or {}
    allocatable: Object = field(node, "status", "allocatable") or {}
    resources = {key: int(quantity(n)) for key, n in allocatable.items() if is_gpu(key)}
    present = {key: n for key, n in resources.items() if n > 0}
    product = next((labels[key] for key in PRODUCT_LABELS if labels.get(key)), "gpu")
    for resource, gpus in sorted(present.items()):
        piece = resource.removeprefix(MIG) if resource.startswith(MIG) else ""
        yield GpuNode(
            f"{name}/{piece}" if len(present) > 1 and piece else name,
            name,
            str(labels.get(HOSTNAME, name)),
            resource,
            f"{product}-MIG-{piece}" if piece else str(product),
            gpus,
            _state(node),
            any(labels.get(key) == value for key, value in SPOT_LABELS.items()),
            str(labels.get(PREFIX + "pool", "")),
            labels,
            tuple(field(node, "spec", "taints") or ()),
            quantity(allocatable.get("cpu")),
            round(quantity(allocatable.get("memory")) / GIGABYTE, 3),
            _read_memory(piece, labels.get("nvidia.com/gpu.memory")),
            {
                column: str(labels[key])
                for column, keys in LEVELS.items()
                for key in reversed(keys)
                if key in labels
            },
        )


def _read_memory(piece: str, mebibytes: str | None) -> float | None:
    """Return the GB of a slice by its name, or of a GPU by what its label says."""
    if piece:
        match = re.search(r"(\d+)gb", piece)
        return float(match[1]) if match else None
    if mebibytes is None or not mebibytes.isdigit():
        return None
    return round(int(mebibytes) * MIB / GIGABYTE, 1)


def _state(node: Object) -> str:
    if not is_true(node, "Ready"):
        return "down"
    leaves = any(taint["key"] in LEAVING for taint in field(node, "spec", "taints") or ())
    return "drain" if leaves or field(node, "spec", "unschedulable") else "up"


def gpus_of_pod(spec: Object) -> dict[str, int]:
    """Return the GPUs by resource that a pod of this spec holds.

    Containers run together, and so do init containers that go on running. Other init containers
    run one after another before them.

    Examples
    --------
    >>> asks = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    >>> gpus_of_pod({"containers": [asks, asks], "initContainers": [asks]})
    {'nvidia.com/gpu': 8}
    """
    together, alone = Counter[str](), Counter[str]()
    run = [(True, container) for container in field(spec, "containers") or ()]
    run += [
        (container.get("restartPolicy") == "Always", container)
        for container in field(spec, "initContainers") or ()
    ]
    for goes_on, container in run:
        asked = field(container, "resources")
        amounts = (field(asked, "requests") or {}) | (field(asked, "limits") or {})
        gpus = Counter({name: int(quantity(n)) for name, n in amounts.items() if is_gpu(name)})
        if goes_on:
            together += gpus
        else:
            alone |= gpus
    return dict(sorted((together | alone).items()))


def is_over(pod: Object) -> bool:
    """Return whether a pod has ended, so that it holds no GPUs and needs no node."""
    return field(pod, "status", "phase") in ("Succeeded", "Failed")


def node_of_pod(pod: Object) -> str | None:
    """Return the node on which a pod holds its resources, or None if it holds none."""
    if is_over(pod):
        return None
    return field(pod, "spec", "nodeName") or None
