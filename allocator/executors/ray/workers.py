"""The placement group of an allocation: made by its supervisor, used by the job's own workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from allocator.clusters.ray.resources import NODE_ID
from allocator.errors import UsageError

GROUP = "ALLOCATOR_PLACEMENT_GROUP"
NAMESPACE = "allocator"


def make_group(name: str, bundles: Sequence[tuple[str, int]]) -> Any:
    """Connect to Ray and ask for GPUs on nodes, given by their ids; the group ends with this
    process.
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
