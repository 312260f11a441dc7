"""Ray behind the seam of clusters: look at it, and write plans as a script for its operator."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from allocator.clusters.adapter import (
    Capabilities,
    ClusterView,
    ObserveRequest,
    PlannedJob,
    Record,
)
from allocator.clusters.ray.api import ANSWERS, RayApi, read_answers
from allocator.clusters.ray.observe import observe_ray
from allocator.clusters.ray.progress import ask_jobs
from allocator.clusters.ray.script import write_script
from allocator.clusters.ray.settings import RaySettings
from allocator.clusters.statements import read_settings

SCRIPT = "ray.sh"


class RayAdapter:
    """Observe a Ray by its dashboard, and write plans as a script of `ray job`.

    A running job gets another size by being stopped and submitted again under another id.
    """

    capabilities = Capabilities(pins_nodes=True)

    def observe(self, request: ObserveRequest) -> ClusterView:
        settings = read_settings(RaySettings, "Ray", request.settings)
        if request.answers is not None:
            answers = read_answers(request.answers)
            progress = {}
        else:
            api = RayApi(settings.address)
            settings = replace(settings, address=api.address)
            answers = {kind: api.list_records(kind) for kind in ANSWERS}
            progress = ask_jobs(api, answers)
        return observe_ray(answers, settings, time.time(), progress)

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> Mapping[str, str]:
        return {SCRIPT: write_script(jobs, details)}
