"""Progress of jobs that users submitted: the logs that Ray keeps of them, or their metrics.

Nobody trusts what is read here (io/progress_sources.py). Metrics are asked for on the node of the
job's entrypoint, whatever machine their address names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from allocator.clusters.adapter import Record
from allocator.clusters.ray.api import RayApi, RayUnreachable
from allocator.clusters.ray.observe import read_statement
from allocator.io.progress_sources import (
    LogPattern,
    Progress,
    as_variables,
    fetch_metric,
    move_to_machine,
    read_source,
)

ASKING_S = 5.0  # for all jobs of one look; nothing is known of those that were not asked


def ask_jobs(api: RayApi, answers: Mapping[str, Sequence[Record]]) -> dict[str, Progress]:
    """Return the progress of the running jobs that state its source and their work, by job."""
    addresses = {str(node["node_id"]): str(node["node_ip"]) for node in answers["nodes"]}
    until = time.monotonic() + ASKING_S
    found: dict[str, Progress] = {}
    for record in answers["jobs"]:
        node = str(record.get("driver_node_id") or "")
        said, _ = read_statement(record)
        source = read_source(as_variables(said))
        is_to_be_asked = record.get("status") == "RUNNING" and "total_work" in said
        if source is None or not is_to_be_asked or node not in addresses:
            continue
        if time.monotonic() > until:
            break
        ident = str(record["submission_id"])
        if isinstance(source, LogPattern):
            progress = source.find(_read_log(api, ident, node))
        else:
            value = fetch_metric(move_to_machine(source, addresses[node]))
            progress = None if value is None else (value, value)
        if progress is not None:
            found[ident] = progress
    return found


def _read_log(api: RayApi, ident: str, node: str) -> bytes:
    try:
        return api.read_log(ident, node)
    except RayUnreachable:
        return b""
