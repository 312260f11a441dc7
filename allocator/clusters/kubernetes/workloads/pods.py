"""GPUs that pods ask for, and where they hold them."""

from __future__ import annotations

from collections import Counter

from allocator.clusters.kubernetes.nodes import is_gpu
from allocator.clusters.kubernetes.objects import Object, field, quantity


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
    run = [(True, one) for one in field(spec, "containers") or ()]
    run += [
        (one.get("restartPolicy") == "Always", one) for one in field(spec, "initContainers") or ()
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
