"""What the owner of a job may ask of Ray: a JSON object in the job's variable ALLOCATOR_RAY."""

from __future__ import annotations

import json
from collections.abc import Mapping

from allocator.clusters.adapter import Json
from allocator.errors import UsageError

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
    found = _parse(environment)
    unknown = sorted(found.keys() - {*FIELDS, WORKERS})
    if unknown:
        raise UsageError(f'{OPTIONS} has no "{unknown[0]}"; there are {", ".join(FIELDS)}')
    return {name: value for name, value in found.items() if name != WORKERS}


def is_own_workers(environment: Mapping[str, str]) -> bool:
    """Return whether the job starts its own workers, so that its GPUs are a placement group."""
    return bool(_parse(environment).get(WORKERS))


def _parse(environment: Mapping[str, str]) -> Json:
    text = environment.get(OPTIONS, "{}")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{OPTIONS} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{OPTIONS} is no JSON object")
    return found
