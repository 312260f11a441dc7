"""The placement group of an allocation: made by its supervisor, used by the job's own workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from allocator.clusters.ray.resources import NODE_ID
from allocator.errors import UsageError

GROUP = "ALLOCATOR_PLACEMENT_GROUP"  # environment variable with the name of the group
NAMESPACE = "allocator"  # of Ray: supervisors and workers find each other's groups in it


def make_group(name: str, bundles: Sequence[tuple[str, int]]) -> Any:
    """Connect to Ray, and ask for a placement group with GPUs on certain nodes.

    Ray ends the group when this process ends.

    Parameters
    ----------
    name : str
        Name of the group, by which the workers of the job find it.
    bundles : sequence of (str, int)
        Ray's id of each node, and the GPUs that are asked for there.
    """
    import ray
    from ray.util.placement_group import placement_group

    ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    return placement_group(
        [{"GPU": gpus} for _, gpus in bundles],
        name=name,
        bundle_label_selector=[{NODE_ID: node_id} for node_id, _ in bundles],
    )


def get_group() -> Any:
    """Connect to Ray, and return the placement group that holds the GPUs of this allocation.

    Its bundles are the nodes of `ALLOCATOR_NODES` in their order.

    Raises
    ------
    UsageError
        Outside of an allocation with a placement group.
    """
    import ray
    from ray.util.placement_group import get_placement_group

    name = os.environ.get(GROUP)
    if not name:
        raise UsageError(f"there is no placement group: {GROUP} is not set")
    if not ray.is_initialized():
        ray.init(address="auto", namespace=NAMESPACE, logging_level="ERROR")
    return get_placement_group(name)
