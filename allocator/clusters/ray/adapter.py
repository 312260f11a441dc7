"""Ray behind the seam of clusters: look at it, and write plans as a script for its operator.

Of jobs that users submitted, progress is asked: the logs that Ray keeps of them, or their metrics.
Nobody trusts what is read there (io/progress_sources.py). Metrics are asked for on the node of the
job's entrypoint, whatever machine their address names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob
from allocator.clusters.ray.api import ANSWERS, RayApi, RayUnreachable, read_answers
from allocator.clusters.ray.observe import RaySettings, observe_ray, read_statement
from allocator.clusters.ray.script import write_script
from allocator.clusters.statements import read_settings
from allocator.io.progress_sources import (
    LogPattern,
    Progress,
    as_variables,
    read_source,
)
from allocator.objects import Record

ASKING_S = 5.0  # for all jobs of one look; nothing is known of those that were not asked


class RayAdapter:
    """Observe a Ray by its dashboard, and write plans as a script of `ray job`.

    A running job gets another size by being stopped and submitted again under another id.
    """

    def observe(self, request: ObserveRequest) -> ClusterView:
        settings = read_settings(RaySettings, "Ray", request.settings)
        if request.answers is not None:
            return observe_ray(read_answers(request.answers), settings, time.time())
        api = RayApi(settings.address)
        answers = {kind: api.list_records(kind) for kind in ANSWERS}
        progress = ask_jobs(api, answers)
        return observe_ray(answers, replace(settings, address=api.address), time.time(), progress)

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> dict[str, str]:
        return {"ray.sh": write_script(jobs, details)}


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
            try:
                progress = source.find(api.read_log(ident, node))
            except RayUnreachable:
                progress = None
        else:
            progress = source.move_to(addresses[node]).fetch()
        if progress is not None:
            found[ident] = progress
    return found
