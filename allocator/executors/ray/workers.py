"""What a job may ask of Ray, and its placement group.

Its owner asks by a JSON object in the job's variable ALLOCATOR_RAY. The placement group is made by
the supervisor, and used by the job's own workers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from allocator.clusters.ray.resources import NODE_ID
from allocator.errors import UsageError
from allocator.objects import Json

OPTIONS = "ALLOCATOR_RAY"
WORKERS = "own_workers"  # the job starts its own workers in a placement group
FIELDS = ("entrypoint_num_cpus", "entrypoint_memory", "entrypoint_resources", "runtime_env")


def read_options(environment: Mapping[str, str]) -> Json:
    """Return fields of a request to submit a job.

    Raises
    ------
    UsageError
        If they are no JSON object, or would change what the order says.

    Examples
    --------
    >>> read_options({"ALLOCATOR_RAY": '{"entrypoint_num_cpus": 4, "own_workers": true}'})
    {'entrypoint_num_cpus': 4}
    """
    options = _parse(environment)
    unknown = sorted(options.keys() - {*FIELDS, WORKERS})
    if unknown:
        raise UsageError(f'{OPTIONS} has no "{unknown[0]}"; there are {", ".join(FIELDS)}')
    return {name: value for name, value in options.items() if name != WORKERS}


def is_own_workers(environment: Mapping[str, str]) -> bool:
    """Return whether the job starts its own workers, so that its GPUs are a placement group."""
    return bool(_parse(environment).get(WORKERS))


def _parse(environment: Mapping[str, str]) -> Json:
    text = environment.get(OPTIONS, "{}")
    try:
        options = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{OPTIONS} is no JSON: {error}") from error
    if not isinstance(options, dict):
        raise UsageError(f"{OPTIONS} is no JSON object")
    return options


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
