"""Slurm behind the seam of clusters: look at it, and write plans as a script for its operator."""

from __future__ import annotations

from collections.abc import Sequence

from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob
from allocator.clusters.slurm.answers import ask_slurm, read_answers
from allocator.clusters.slurm.observe import observe_slurm
from allocator.clusters.slurm.script import write_script
from allocator.clusters.slurm.settings import read_slurm_settings
from allocator.objects import Record


class SlurmAdapter:
    """Observe a Slurm by its commands, and write plans as a script of `scontrol`.

    A running job gets another size by being requeued, held, changed and released.
    """

    def observe(self, request: ObserveRequest) -> ClusterView:
        settings = read_slurm_settings(request.settings)
        answers = ask_slurm() if request.answers is None else read_answers(request.answers)
        return observe_slurm(answers, settings)

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> dict[str, str]:
        return {"slurm.sh": write_script(jobs, details)}
