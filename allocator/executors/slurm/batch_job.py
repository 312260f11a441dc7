"""The supervisor of an allocation inside its batch job of Slurm.

Usage: python -m allocator.executors.slurm.batch_job FOLDER

Slurm chose GPUs and nodes, which are those of the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from allocator.clusters.slurm.values import expand_names
from allocator.executors.supervision.supervisor import BatchSupervisor, supervise_batch_job
from allocator.objects import Json

SHARED_GPUS = "ALLOCATOR_SHARED_GPUS"  # indices of GPUs that another batch job holds


class SlurmSupervisor(BatchSupervisor):
    """The supervisor of one batch job of Slurm."""

    def __init__(self, folder: Path, order: Json) -> None:
        if (indices := os.environ.get(SHARED_GPUS)) is not None:
            order["devices"] = indices.split(",")
        super().__init__(folder, order)

    def read_given(self) -> Json:
        """Return what Slurm gave to this batch job."""
        given = os.environ.get
        return {
            "slurm_job_id": given("SLURM_JOB_ID", ""),
            "partition": given("SLURM_JOB_PARTITION", ""),
            "nodes": expand_names(given("SLURM_JOB_NODELIST", "")),
            "node": given("SLURMD_NODENAME", ""),
            "gpus": int(given("SLURM_GPUS_ON_NODE") or 0),
            "indices": given(SHARED_GPUS) or given("SLURM_JOB_GPUS", ""),
        }

    def describe_difference(self) -> str:
        """Return how what Slurm gave differs from the order; "" if it does not."""
        order, given = self.order, self.identity
        if not order["asked"]:
            return ""
        asked = {node: gpus for node, gpus in order["asked"] if node}
        here = asked.get(given["node"], order["asked"][0][1])
        if asked and set(asked) != set(given["nodes"]):
            return f"asked for nodes {' '.join(asked)}, got {' '.join(given['nodes'])}"
        if len(order["asked"]) != len(given["nodes"]):
            return f"asked for {len(order['asked'])} nodes, got {len(given['nodes'])}"
        if given["partition"] != order["pool"]:
            return f"asked for partition {order['pool']}, got {given['partition']}"
        if here != given["gpus"]:
            return f"asked for {here} GPUs on {given['node']}, got {given['gpus']}"
        return ""


if __name__ == "__main__":
    sys.exit(supervise_batch_job(Path(sys.argv[1]), SlurmSupervisor))
